"""Rule 10: from a manifest and its folder to the kernels and tensors, or to every error in the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Final

from kern.artifact import abi_check, codes, weight_binding
from kern.artifact.folder import ArtifactFolder
from kern.artifact.lookup import Finder
from kern.artifact.module_cache import ModuleCache
from kern.artifact.targets import parse, runs_on
from kern.artifact.types import ModuleInfo, ModuleKind, ResolvedStep, StepKey, TensorInfo
from kern.manifest.counts import excerpt
from kern.manifest.diagnostics import Diagnostic, Path
from kern.manifest.expressions import Interval, bounds
from kern.manifest.types import Manifest, Step

_PIN: Final = ("symbol", "cubin", "sha256")
"""The fields that identify the kernel of a step."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """The kernels and tensors of a manifest.

    `steps` has every step whose kernel was found, built-in operators excepted: all of them if there is no error.
    `modules` are those that some step needs, sorted by name. `kind` is None if no step needs a module, or if kinds are
    mixed. `weights` is None if there is no usable weights file.
    """

    diagnostics: tuple[Diagnostic, ...]
    steps: Mapping[StepKey, ResolvedStep]
    modules: tuple[ModuleInfo, ...]
    kind: ModuleKind | None
    weights: Mapping[str, TensorInfo] | None


def resolve(
    manifest: Manifest,
    folder: ArtifactFolder,
    *,
    target: str | None = None,
    weights: FilePath | None = None,
    require_weights: bool = True,
    shared_mem: Mapping[StepKey, int] | None = None,
    refused: Iterable[Path] = (),
) -> Resolution:
    """Find each step's kernel and each weight's tensor, and check them against the manifest.

    `target` is the target that the modules must run on (`sm_90`, `x86-64-v3`), None for any. `weights` replaces the
    weights file of the folder; without `require_weights` the folder may have none. `shared_mem` gives the largest
    dynamic shared memory of a step in bytes; for other steps it is computed at the global bounds of the symbols.
    `refused` are the locations of other rules' errors: a field that contains one is not checked here, and neither is a
    step whose kernel such a field identifies.

    Raises UnknownTarget for an unknown target.
    """
    if target is not None:
        parse(target)
    fields = _fields(refused)
    steps, errors = _steps(manifest, ModuleCache(folder), fields, shared_mem or {})
    tensors, weight_errors = weight_binding.bind(manifest, folder, weights, required=require_weights)
    errors += [*_mixed_kinds(steps), *_wrong_target(steps, fields, target), *weight_errors]
    modules = {step.module.name: step.module for step in steps.values()}
    kinds = {module.kind for module in modules.values()}
    return Resolution(
        tuple(_once_per_file(error for error in errors if not _refused(error.path, fields))),
        MappingProxyType(steps),
        tuple(modules[name] for name in sorted(modules)),
        kinds.pop() if len(kinds) == 1 else None,
        tensors,
    )


def _fields(refused: Iterable[Path]) -> frozenset[Path]:
    """The fields of steps and buffers, or whole steps and buffers, that contain a refused location."""
    return frozenset(path[:6] if path[:1] == ("kernels",) else path[:3] for path in refused)


def _refused(path: Path, fields: frozenset[Path]) -> bool:
    return any(path[:length] in fields for length in range(1, len(path) + 1))


def _steps(
    manifest: Manifest,
    cache: ModuleCache,
    refused: frozenset[Path],
    shared_mem: Mapping[StepKey, int],
) -> tuple[dict[StepKey, ResolvedStep], list[Diagnostic]]:
    """The steps whose kernel was found, and the errors in these and the others."""
    steps: dict[StepKey, ResolvedStep] = {}
    errors: list[Diagnostic] = []
    finder, reported = Finder(cache), False
    ranges = {name: (symbol.min, symbol.max) for name, symbol in manifest.symbols.items()}
    for key, step in _own_steps(manifest):
        path = _path(key)
        if any((*path, field) in refused for field in _PIN):
            continue
        if step.cubin is None and not finder.readable:
            if not reported and not _refused((*path, "symbol"), refused):
                errors += finder.unreadable(path)
                reported = True
            continue
        found = finder.find(step, path)
        if isinstance(found, ResolvedStep):
            steps[key] = found
            largest = shared_mem[key] if key in shared_mem else _largest_shared_mem(ranges, step)
            errors += _module_errors(step, found.module, path)
            errors += abi_check.errors(step, found.module, found.kernel, largest, path)
        else:
            errors += found
    return steps, errors


def _own_steps(manifest: Manifest) -> Iterator[tuple[StepKey, Step]]:
    """The steps that need a module, in the order of the manifest: all but built-in operators."""
    for name, kernel in manifest.kernels.items():
        for index, step in enumerate(kernel.impl.steps):
            if step.operator is None:
                yield (name, index), step


def _path(key: StepKey) -> Path:
    return ("kernels", key[0], "impl", "steps", key[1])


def _module_errors(step: Step, module: ModuleInfo, path: Path) -> Iterator[Diagnostic]:
    if module.kind == "host" and (step.cubin is None or step.sha256 is None):
        yield codes.HOST_UNPINNED.at(
            path,
            f"kernel {excerpt(step.symbol)!r} is in host module kernels/{module.name}, and this step does not pin it",
            f'add "cubin": "{module.name}" and "sha256": "{module.sha256}"',
        )
    for attribute in ("cluster", "cooperative"):
        if module.kind == "host" and getattr(step, attribute):
            yield codes.HOST_ATTRIBUTE.at(
                (*path, attribute),
                f"kernels/{module.name} is a host module, and the host device does not support `{attribute}`",
                f"remove `{attribute}` from the step",
                anchor="key",
            )


def _mixed_kinds(steps: Mapping[StepKey, ResolvedStep]) -> Iterator[Diagnostic]:
    resolved = list(steps.items())
    for key, step in resolved:
        first = resolved[0][1]
        if step.module.kind != first.module.kind:
            yield codes.MIXED_KINDS.at(
                (*_path(key), "symbol"),
                f"kernels/{step.module.name} is a {step.module.kind} module, and kernels/{first.module.name}, used "
                f"before it, a {first.module.kind} module",
                "build all kernels for one target",
            )
            return


def _wrong_target(
    steps: Mapping[StepKey, ResolvedStep], fields: frozenset[Path], target: str | None
) -> Iterator[Diagnostic]:
    """The files that do not run on the target, reported together at the first step that uses one."""
    if target is None:
        return
    wrong: dict[str, ModuleInfo] = {}
    locations: list[Path] = []
    for key, step in steps.items():
        location = (*_path(key), "symbol")
        if not runs_on(step.module.target, target) and not _refused(location, fields):
            wrong[step.module.name] = step.module
            locations.append(location)
    if wrong:
        targets = sorted({module.target for module in wrong.values()})
        which = f"kernels/{next(iter(wrong))} is" if len(wrong) == 1 else f"{len(wrong)} kernel files are"
        message = f"{which} built for {', '.join(targets)}, and the target is {target}"
        help = f"build the folder for {target}, or run it on {' or '.join(targets)}"
        yield codes.WRONG_TARGET.at(locations[0], message, help)


def _once_per_file(diagnostics: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """The errors in a file are reported only at the first step that uses it."""
    of_files = {code.id for code in (
        codes.MODULE_MISSING, codes.HASH_DIFFERS, codes.UNSAFE_FILE, codes.BAD_MODULE,
    )}  # fmt: skip
    reported: set[tuple[str, str]] = set()
    for diagnostic in diagnostics:
        error = (diagnostic.code, diagnostic.message)
        if diagnostic.code not in of_files or error not in reported:
            yield diagnostic
        reported.add(error)


def _largest_shared_mem(ranges: Mapping[str, Interval], step: Step) -> int:
    """At the global bounds; 0 for an expression that rule 5 refuses."""
    try:
        return bounds(step.shared_mem, ranges)[1]
    except (KeyError, ZeroDivisionError):
        return 0
