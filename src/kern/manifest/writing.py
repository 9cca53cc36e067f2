"""Writing a manifest: in a stable order, without defaults, one buffer or dispatch per line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from kern.manifest.types import Kernel, Manifest, Program, Step

_CODE = ("symbol", "cubin", "sha256")
_LAUNCH = tuple(name for name in Step.model_fields if name not in (*_CODE, "params", "args"))
_STEP_LINES = (_CODE, ("params",), _LAUNCH, ("args",))


def write(manifest: Manifest) -> str:
    """The manifest's text. Reading it gives an equal manifest."""
    sections: dict[str, str] = {"meta": _line(_wire(manifest.meta))}
    if manifest.symbols:
        sections["symbols"] = _block({n: _line(_wire(s)) for n, s in manifest.symbols.items()}, 1)
    if manifest.states:
        sections["states"] = _block({n: _line(_wire(s)) for n, s in manifest.states.items()}, 1)
    sections["buffers"] = _block({n: _line(_shaped(b)) for n, b in manifest.buffers.items()}, 1)
    sections["kernels"] = _block({n: _kernel(k) for n, k in manifest.kernels.items()}, 1)
    sections["programs"] = _block({n: _program(p) for n, p in manifest.programs.items()}, 1)
    return _block(sections, 0) + "\n"


def _wire(part: Any) -> Any:
    return part.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _block(members: Mapping[str, str], depth: int) -> str:
    """An object with one member a line; the members' texts are already written."""
    if not members:
        return "{}"
    inner = " " * (depth + 1)
    return "{\n" + ",\n".join(f"{inner}{_line(n)}: {text}" for n, text in members.items()) + "\n" + " " * depth + "}"


def _array(items: Iterable[str], depth: int) -> str:
    inner = " " * (depth + 1)
    lines = [inner + item for item in items]
    return "[\n" + ",\n".join(lines) + "\n" + " " * depth + "]" if lines else "[]"


def _shaped(part: Any) -> dict[str, Any]:
    """Buffers and scratch: in a shape a symbol is its bare name."""
    fields: dict[str, Any] = _wire(part)
    fields["shape"] = [d["sym"] if isinstance(d, dict) and "sym" in d else d for d in fields["shape"]]
    return fields


def _kernel(kernel: Kernel) -> str:
    impl: dict[str, str] = {}
    if kernel.impl.scratch:
        impl["scratch"] = _block({n: _line(_shaped(s)) for n, s in kernel.impl.scratch.items()}, 4)
    impl["steps"] = _array((_step(step, 5) for step in kernel.impl.steps), 4)
    return _block({"params": _line([str(p) for p in kernel.params]), "impl": _block(impl, 3)}, 2)


def _step(step: Step, depth: int) -> str:
    fields = _wire(step)
    inner = " " * (depth + 1)
    lines = [", ".join(f"{_line(n)}: {_line(fields[n])}" for n in names if n in fields) for names in _STEP_LINES]
    return "{\n" + ",\n".join(inner + line for line in lines if line) + "\n" + " " * depth + "}"


def _program(program: Program) -> str:
    members: dict[str, str] = {}
    if program.symbols:
        members["symbols"] = _line({n: _wire(b) for n, b in program.symbols.items()})
    members["dispatches"] = _array((_line(_wire(d)) for d in program.dispatches), 3)
    return _block(members, 2)
