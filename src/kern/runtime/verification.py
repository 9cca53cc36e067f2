"""From a path to a report: reading and verifying a manifest and, in a folder, the files behind it."""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from kern.artifact.errors import FileUnreadable
from kern.artifact.folder import ArtifactFolder, open_folder
from kern.artifact.resolve import Resolution, resolve
from kern.artifact.types import StepKey
from kern.device.host.target import host_target
from kern.manifest.diagnostics import Diagnostic
from kern.manifest.errors import KernError
from kern.manifest.expressions import bounds
from kern.manifest.reading import MAX_BYTES, Reading, read
from kern.manifest.source import Source
from kern.manifest.types import Manifest
from kern.verifier import InvalidManifest, VerifiedManifest, check, verified

HOST: Final = "host"
"""The target that stands for this machine's own."""


@dataclass(frozen=True, slots=True)
class Located:
    """A diagnostic and its place in the file: line and column, both from 1, in code points."""

    diagnostic: Diagnostic
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Report:
    """What verifying `path` found, in the order of the file. `source` is the text that diagnostics point into."""

    path: Path
    diagnostics: tuple[Located, ...]
    source: Source = field(repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.diagnostics


class InvalidArtifact(KernError):
    """An artifact does not verify; `report` holds every fault."""

    code: ClassVar[str] = "invalid"

    def __init__(self, report: Report) -> None:
        first, *others = report.diagnostics
        rest = f", and {len(others)} more" if others else ""
        fault = first.diagnostic
        super().__init__(
            f"{report.path} does not verify: {fault.code} at line {first.line}, column {first.column}: "
            f"{fault.message}{rest}",
            f"`kern verify {report.path}` shows everything",
        )
        self.report = report


@dataclass(frozen=True, slots=True)
class Examination:
    """A report, and what stands where it is clean: the verified manifest and the files behind it."""

    report: Report
    verified: VerifiedManifest | None
    resolution: Resolution | None


def verify(path: str | Path, target: str | None = None) -> Report:
    """Verify a manifest file (rules 1 to 9) or an artifact folder (rules 1 to 10).

    `target` is what the kernels must run on: `sm_90`, `x86-64-v3`, …, or `host` for this machine; without
    it they need only agree with each other. Raises an ArtifactError for what cannot be read at all.
    """
    path = Path(path)
    target = host_target() if target == HOST else target
    if not path.is_dir():
        reading = read(_file_bytes(path))
        found = reading.diagnostics if reading.manifest is None else check(reading.manifest)
        return _report(path, reading, found)
    with open_folder(path) as folder:
        return examine(folder, target=target).report


def examine(folder: ArtifactFolder, *, target: str | None = None, weights: Path | None = None) -> Examination:
    """Apply rules 1 to 10 to an open folder; `weights` takes the place of the folder's own weights file."""
    reading = read(folder.manifest_bytes())
    if reading.manifest is None:
        return _refused(folder.path, reading, reading.diagnostics)
    checked, faults = _checked(reading.manifest)
    shared_mem = None if checked is None else _shared_mem(checked)
    resolution = resolve(reading.manifest, folder, target=target, weights=weights, shared_mem=shared_mem)
    faults += resolution.diagnostics
    if checked is None or faults:
        return _refused(folder.path, reading, faults)
    return Examination(_report(folder.path, reading, ()), checked, resolution)


def _checked(manifest: Manifest) -> tuple[VerifiedManifest | None, tuple[Diagnostic, ...]]:
    try:
        return verified(manifest), ()
    except InvalidManifest as error:
        return None, error.diagnostics


def _shared_mem(checked: VerifiedManifest) -> dict[StepKey, int]:
    """The most dynamic shared memory that each step asks for in any program that runs it, in bytes."""
    return {
        (name, index): bounds(step.shared_mem, checked.ranges.kernels[name])[1]
        for name, kernel in checked.manifest.kernels.items()
        for index, step in enumerate(kernel.impl.steps)
    }


def _refused(path: Path, reading: Reading, diagnostics: tuple[Diagnostic, ...]) -> Examination:
    return Examination(_report(path, reading, diagnostics), None, None)


def _report(path: Path, reading: Reading, diagnostics: tuple[Diagnostic, ...]) -> Report:
    source = reading.source
    places = [source.locate(diagnostic) for diagnostic in diagnostics]
    located = [Located(d, place.line, place.column) for d, place in zip(diagnostics, places, strict=True)]
    return Report(path, tuple(sorted(located, key=lambda one: (one.line, one.column))), source)


def _file_bytes(path: Path) -> bytes:
    """The file's bytes, at most one more than a manifest may have."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise FileUnreadable(f"{path} is neither a file nor a folder", "give a manifest or an artifact folder")
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileUnreadable(
            f"{path} cannot be read: {error.strerror}", "give a manifest or an artifact folder"
        ) from None
