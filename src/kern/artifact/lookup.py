"""Which kernel file, and which kernel in it, a step means."""

from __future__ import annotations

from kern.artifact import codes, fitting
from kern.artifact.catalog import Catalog
from kern.artifact.errors import ArtifactError, BadModule, FileMissing
from kern.artifact.types import ModuleInfo, ResolvedStep
from kern.manifest.diagnostics import Diagnostic, Path
from kern.manifest.types import Step


def find(catalog: Catalog, step: Step, path: Path) -> ResolvedStep | list[Diagnostic]:
    """The kernel of `step`, which stands at `path` of the manifest, or why there is none."""
    modules, faults = _modules(catalog, step, path)
    if faults:
        return faults
    having = [module for module in modules if step.symbol in module.kernels]
    fitting_ones = [module for module in having if fitting.fits(step, module.kernels[step.symbol])]
    chosen = having if len(having) == 1 else fitting_ones
    if len(chosen) == 1:
        return ResolvedStep(chosen[0], chosen[0].kernels[step.symbol])
    if not having:
        return [_symbol_missing(modules, step, path)]
    if not fitting_ones:
        return [_none_fits(having, step, path)]
    return [
        codes.AMBIGUOUS.at(
            (*path, "symbol"),
            f"kernel {step.symbol!r} is in {_names(chosen)}, with the parameters declared here in each",
            'pin the one that is meant: "cubin" with its name and "sha256" with its hash, or take the others away',
        )
    ]


def _modules(catalog: Catalog, step: Step, path: Path) -> tuple[list[ModuleInfo], list[Diagnostic]]:
    """The modules that a step may use: the one it pins, or all. Any that cannot be used is a fault."""
    if step.cubin is not None:
        return _pinned(catalog, step, step.cubin, path)
    place, modules, faults = (*path, "symbol"), [], []
    try:
        names = catalog.names()
    except ArtifactError as error:
        return [], [_file_fault(error, place)]
    for name in names:
        try:
            modules.append(catalog.module(name))
        except ArtifactError as error:
            faults.append(_file_fault(error, place))
    return modules, faults


def _pinned(catalog: Catalog, step: Step, name: str, path: Path) -> tuple[list[ModuleInfo], list[Diagnostic]]:
    try:
        actual = catalog.sha256(name)
        if step.sha256 is not None and step.sha256.lower() != actual:
            return [], [
                codes.HASH_DIFFERS.at(
                    (*path, "sha256"),
                    f"kernels/{name} has sha256 {actual}, and {step.sha256!r} is pinned",
                    "build the folder again; pin the new hash only if the file was meant to change",
                )
            ]
        return [catalog.module(name)], []
    except FileMissing:
        return [], [
            codes.MODULE_MISSING.at(
                (*path, "cubin"), f"there is no file kernels/{name}", "put it there, or correct the name"
            )
        ]
    except ArtifactError as error:
        return [], [_file_fault(error, (*path, "cubin"))]


def _file_fault(error: ArtifactError, place: Path) -> Diagnostic:
    code = codes.BAD_MODULE if isinstance(error, BadModule) else codes.UNSAFE_FILE
    return code.at(place, error.message, error.help)


def _symbol_missing(modules: list[ModuleInfo], step: Step, path: Path) -> Diagnostic:
    where = f"kernels/{step.cubin}" if step.cubin is not None else "any file of kernels/"
    near = sorted({symbol for module in modules for symbol in module.kernels if step.symbol in symbol})
    known = near or sorted({symbol for module in modules for symbol in module.kernels})
    shown = ", ".join(known[:6]) + (", …" if len(known) > 6 else "")
    return codes.SYMBOL_MISSING.at(
        (*path, "symbol"),
        f"there is no kernel {step.symbol!r} in {where}",
        f"kernels there: {shown}" if known else "there are no kernels there at all",
    )


def _none_fits(having: list[ModuleInfo], step: Step, path: Path) -> Diagnostic:
    """Several modules have the symbol, none the declared parameters."""
    kernels = [module.kernels[step.symbol] for module in having]
    counts = {len(kernel.layout.sizes) for kernel in kernels}
    code = codes.PARAM_LAYOUT if len(step.params) in counts else codes.PARAM_COUNT
    layouts = "; ".join(f"{module.name} {kernel.layout}" for module, kernel in zip(having[:6], kernels, strict=False))
    return code.at(
        (*path, "params"),
        f"kernel {step.symbol!r} is in {_names(having)}, in none of them with the parameters declared here",
        f"declare the parameters of one of them (offset:bytes): {layouts}",
    )


def _names(modules: list[ModuleInfo]) -> str:
    return ", ".join(f"kernels/{module.name}" for module in modules)
