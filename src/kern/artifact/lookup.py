"""The kernel file of a step, and the kernel in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from kern.artifact import abi_check, codes
from kern.artifact.errors import ArtifactError, BadModule, FileMissing
from kern.artifact.module_cache import ModuleCache
from kern.artifact.types import ModuleInfo, ResolvedStep
from kern.manifest.counts import excerpt, listed
from kern.manifest.diagnostics import Diagnostic, Path
from kern.manifest.types import Step

MAX_SEARCHED: Final = 2**24
"""Most letters of kernel names that are searched in one folder to suggest names."""
_SHOWN: Final = 6


@dataclass(slots=True)
class _Namesakes:
    """The modules that have a kernel of one name, by its parameters there."""

    modules: list[ModuleInfo] = field(default_factory=list)
    by_params: dict[abi_check.Signature, list[ModuleInfo]] = field(default_factory=dict)
    counts: set[int] = field(default_factory=set)

    def add(self, module: ModuleInfo, symbol: str) -> None:
        """Add a module that has the kernel."""
        kernel = module.kernels[symbol]
        self.modules.append(module)
        self.by_params.setdefault(abi_check.signature_of(kernel), []).append(module)
        self.counts.add(len(kernel.layout.sizes))

    def matching(self, step: Step) -> list[ModuleInfo]:
        """The modules whose kernel has the parameters that the step declares, sorted by name."""
        found = [module for key in abi_check.signatures_for(step) for module in self.by_params.get(key, ())]
        return sorted(found, key=lambda module: module.name)


class Finder:
    """Finds the kernels of steps in the files of a folder. All files are read at the first step that pins none."""

    def __init__(self, cache: ModuleCache) -> None:
        self._cache = cache
        self._letters_left = MAX_SEARCHED

    @cached_property
    def _all(self) -> tuple[list[ModuleInfo], list[ArtifactError]]:
        """The modules of the folder, and the errors of the others."""
        modules: list[ModuleInfo] = []
        errors: list[ArtifactError] = []
        try:
            names = self._cache.names()
        except ArtifactError as error:
            return [], [error]
        for name in names:
            try:
                modules.append(self._cache.module(name))
            except ArtifactError as error:
                errors.append(error)
        return modules, errors

    @cached_property
    def _namesakes(self) -> dict[str, _Namesakes]:
        by_symbol: dict[str, _Namesakes] = {}
        for module in self._all[0]:
            for symbol in module.kernels:
                by_symbol.setdefault(symbol, _Namesakes()).add(module, symbol)
        return by_symbol

    @property
    def readable(self) -> bool:
        """Whether every file of the folder is usable: a step that pins none may use any of them."""
        return not self._all[1]

    def unreadable(self, path: Path) -> list[Diagnostic]:
        """The unusable files, reported at a step that pins none."""
        return [_file_error(error, (*path, "symbol")) for error in self._all[1]]

    def find(self, step: Step, path: Path) -> ResolvedStep | list[Diagnostic]:
        """The kernel of `step`, which is at `path` of the manifest, or the errors."""
        if step.cubin is not None:
            return self._pinned(step, step.cubin, path)
        namesakes = self._namesakes.get(step.symbol)
        if namesakes is None:
            return [self._symbol_missing(self._all[0], "any file of kernels/", step, path)]
        chosen = namesakes.modules if len(namesakes.modules) == 1 else namesakes.matching(step)
        if len(chosen) == 1:
            return ResolvedStep(chosen[0], chosen[0].kernels[step.symbol])
        return [_ambiguous(chosen, step, path) if chosen else _none_matches(namesakes, step, path)]

    def _pinned(self, step: Step, name: str, path: Path) -> ResolvedStep | list[Diagnostic]:
        try:
            actual = self._cache.sha256(name)
            if step.sha256 is not None and step.sha256.lower() != actual:
                return [
                    codes.HASH_DIFFERS.at(
                        (*path, "sha256"),
                        f"kernels/{name} has sha256 {actual}; the step pins {step.sha256!r}",
                        "build the folder again; pin the new hash only if the change was intended",
                    )
                ]
            module = self._cache.module(name)
        except FileMissing:
            return [
                codes.MODULE_MISSING.at(
                    (*path, "cubin"), f"file kernels/{name} does not exist", "put it there, or correct the name"
                )
            ]
        except ArtifactError as error:
            return [_file_error(error, (*path, "cubin"))]
        if step.symbol not in module.kernels:
            return [self._symbol_missing([module], f"kernels/{name}", step, path)]
        return ResolvedStep(module, module.kernels[step.symbol])

    def _symbol_missing(self, modules: list[ModuleInfo], where: str, step: Step, path: Path) -> Diagnostic:
        return codes.SYMBOL_MISSING.at(
            (*path, "symbol"), f"no kernel {excerpt(step.symbol)!r} in {where}", self._near(modules, step)
        )

    def _near(self, modules: list[ModuleInfo], step: Step) -> str:
        """Kernels whose name contains the step's, or any; none once the limit of the search is reached."""
        self._letters_left -= sum(len(symbol) for module in modules for symbol in module.kernels) + len(step.symbol)
        if self._letters_left < 0:
            return "`cuobjdump -symbols` lists the kernels of a cubin, `nm -D` those of a host module"
        names = {symbol for module in modules for symbol in module.kernels}
        known = sorted({name for name in names if step.symbol in name} or names)
        shown = ", ".join(map(excerpt, known[:_SHOWN])) + (", …" if len(known) > _SHOWN else "")
        return f"kernels there: {shown}" if known else "there are no kernels there"


def _ambiguous(chosen: list[ModuleInfo], step: Step, path: Path) -> Diagnostic:
    return codes.AMBIGUOUS.at(
        (*path, "symbol"),
        f"kernel {excerpt(step.symbol)!r} is in {_names(chosen)}, with the parameters declared here in each",
        'pin the intended one: "cubin" with its name and "sha256" with its hash, or remove the others',
    )


def _file_error(error: ArtifactError, path: Path) -> Diagnostic:
    code = codes.BAD_MODULE if isinstance(error, BadModule) else codes.UNSAFE_FILE
    return code.at(path, error.message, error.help)


def _none_matches(namesakes: _Namesakes, step: Step, path: Path) -> Diagnostic:
    """Several modules have the symbol, and none has it with the declared parameters."""
    code = codes.PARAM_LAYOUT if len(step.params) in namesakes.counts else codes.PARAM_COUNT
    first = namesakes.modules[:_SHOWN]
    layouts = "; ".join(f"{module.name} {abi_check.show(module.kernels[step.symbol].layout)}" for module in first)
    return code.at(
        (*path, "params"),
        f"kernel {excerpt(step.symbol)!r} is in {_names(namesakes.modules)}, in none of them with the parameters "
        "declared here",
        f"declare the parameters of one of them (offset:bytes): {layouts}",
    )


def _names(modules: list[ModuleInfo]) -> str:
    return listed([f"kernels/{module.name}" for module in modules], _SHOWN)
