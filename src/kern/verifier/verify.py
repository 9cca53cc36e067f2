"""All rules over one manifest, and the proof that none was broken."""

from __future__ import annotations

from dataclasses import dataclass, field

from kern.manifest.diagnostics import Diagnostic
from kern.manifest.errors import KernError
from kern.manifest.types import Manifest
from kern.verifier import arrays, dataflow, dispatches, interfaces, states, steps, symbols, unused
from kern.verifier.ranges import Ranges
from kern.verifier.scope import Scope
from kern.verifier.suppression import NOTHING_UNRESOLVED, Unresolved


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
    """A manifest that breaks no rule, with the symbol ranges that it was verified over. Made by `verified`."""

    manifest: Manifest
    ranges: Ranges
    _seal: object = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        if self._seal is not _SEAL:
            raise TypeError("a VerifiedManifest is made by kern.verifier.verified")


def check(manifest: Manifest) -> tuple[Diagnostic, ...]:
    """Every fault of `manifest` by rules 2 to 9, in their order; none where it is valid."""
    return _faults(Scope.of(manifest))


def verified(manifest: Manifest) -> VerifiedManifest:
    """`manifest`, proven. Raises InvalidManifest with every fault."""
    scope = Scope.of(manifest)
    if diagnostics := _faults(scope):
        raise InvalidManifest(diagnostics)
    return VerifiedManifest(manifest, scope.ranges, _SEAL)


def _faults(scope: Scope) -> tuple[Diagnostic, ...]:
    found = [
        *symbols.check(scope),
        *states.check(scope),
        *arrays.check(scope),
        *steps.check(scope),
        *interfaces.check(scope),
        *dispatches.check(scope),
    ]
    # A reference that does not resolve is among what was found, so there is none to look for otherwise.
    programs = scope.manifest.programs.values()
    idle = not programs or not all(program.dispatches for program in programs)
    unresolved = Unresolved.of(scope) if found or idle else NOTHING_UNRESOLVED
    found += [
        *dataflow.check(scope, unresolved),
        *unused.check(scope, unresolved),
    ]
    return tuple(dict.fromkeys(found))
