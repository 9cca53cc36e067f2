"""All rules applied to a manifest, and the type that proves that it is valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kern.manifest.diagnostics import Code, Diagnostic
from kern.manifest.errors import KernError
from kern.manifest.types import Manifest
from kern.verifier import (
    arrays,
    dataflow,
    dispatches,
    flow,
    geometry,
    interfaces,
    pointer_args,
    states,
    steps,
    symbols,
    unused,
)
from kern.verifier.ranges import Ranges
from kern.verifier.scope import Scope


class InvalidManifest(KernError, code="invalid-manifest"):
    """A manifest breaks rules; `diagnostics` says which, in the order of the rules."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        first, more = diagnostics[0], len(diagnostics) - 1
        message = f"{first.code} at {first.pointer or 'the top'}: {first.message}"
        super().__init__(message + (f" (and {more} more)" if more else ""), first.help)
        self.diagnostics = diagnostics


_SEAL = object()


@dataclass(frozen=True, slots=True)
class VerifiedManifest:
    """A valid manifest, and the symbol ranges that it was verified for. Made by `verified`."""

    manifest: Manifest
    ranges: Ranges
    _seal: object = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        if self._seal is not _SEAL:
            raise TypeError("a VerifiedManifest is made by kern.verifier.verified")


def check(manifest: Manifest) -> tuple[Diagnostic, ...]:
    """The errors in `manifest` by rules 2 to 9, in their order; none if it is valid."""
    return _diagnostics(Scope.of(manifest))


def verified(manifest: Manifest) -> VerifiedManifest:
    """`manifest`, verified. Raises InvalidManifest with its errors."""
    scope = Scope.of(manifest)
    if diagnostics := _diagnostics(scope):
        raise InvalidManifest(diagnostics)
    return VerifiedManifest(manifest, scope.ranges, _SEAL)


def _diagnostics(scope: Scope) -> tuple[Diagnostic, ...]:
    """The rules in phases: a check whose references do not all resolve would report the same cause again."""
    found = [
        *symbols.check(scope), *states.check(scope), *arrays.check(scope), *steps.check(scope), *interfaces.check(scope)
    ]  # fmt: skip
    broken = {str(d.path[1]) for d in found if d.code in _BREAK_FORWARDING}
    broken_scratch = {str(d.path[1]) for d in found if d.code in _BREAK_SCRATCH}
    for name, kernel in scope.manifest.kernels.items():
        if name not in broken:
            found += flow.check(kernel, ("kernels", name), name not in broken_scratch)
    found += dispatches.check(scope, broken | broken_scratch)
    programs = scope.manifest.programs.values()
    idle = not programs or not all(program.dispatches for program in programs)
    unresolved = {kind for kind, codes in _UNRESOLVED.items() if idle or any(d.code in codes for d in found)}
    found += dataflow.check_results(scope) if "buffer" not in unresolved else ()
    found += dataflow.check_programs(scope, {d.path[:4] for d in found if d.code in _UNRESOLVED["buffer"]})
    found += dataflow.check_states(scope) if "state" not in unresolved else ()
    found += unused.check(scope, broken, unresolved)
    return tuple(dict.fromkeys(found))


def _ids(*codes: Code) -> frozenset[str]:
    return frozenset(code.id for code in codes)


_BREAK_FORWARDING: Final = _ids(
    steps.NO_STEPS, steps.ARGUMENT_COUNT, steps.ARGUMENT_KIND,
    interfaces.ARG_OUT_OF_RANGE, interfaces.ARG_TYPE, interfaces.WRITE_THROUGH_IN,
)  # fmt: skip
"""Errors after which it is unclear what the steps of a kernel do with its interface parameters."""

_BREAK_SCRATCH: Final = _ids(interfaces.SCRATCH_UNKNOWN, interfaces.SCRATCH_DTYPE)
"""The same for its scratch."""

_ANY: Final = _ids(dispatches.ARGUMENT_COUNT, pointer_args.ARGUMENT_KIND)
_UNRESOLVED: Final[Mapping[str, frozenset[str]]] = {
    "symbol": _ANY | _ids(
        symbols.PROGRAM_BOUNDS_UNKNOWN, arrays.SHAPE_SYMBOL_UNKNOWN, geometry.STEP_SYMBOL_UNKNOWN,
        dispatches.SYMBOL_UNKNOWN,
    ),
    "state": _ANY | _ids(dispatches.KERNEL_UNKNOWN, dispatches.STATE_UNKNOWN, pointer_args.STATE_TO_BUFFER),
    "buffer": _ANY | _ids(
        dispatches.KERNEL_UNKNOWN, dispatches.BUFFER_UNKNOWN, pointer_args.DTYPE, pointer_args.STATE_TO_BUFFER
    ),
    "kernel": _ids(dispatches.KERNEL_UNKNOWN),
}  # fmt: skip
"""Errors after which a use of a name of some kind may be missing."""

_RULES: Final = (symbols, states, arrays, steps, interfaces, flow, dispatches, dataflow, unused)
CODES: Final[Mapping[str, Code]] = {
    code.id: code for code in sorted((code for rule in _RULES for code in rule.CODES), key=lambda code: code.id)
}
"""All codes of the verifier, by their ids."""
