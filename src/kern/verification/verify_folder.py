"""Verifying an artifact folder: its manifest, and the files behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kern.artifact import ArtifactFolder, Resolution, resolve
from kern.artifact.types import StepKey
from kern.manifest.diagnostics import Diagnostic
from kern.manifest.expressions import bounds
from kern.manifest.reading import Reading, read
from kern.manifest.types import Manifest
from kern.verification.report import Report, locate
from kern.verifier import InvalidManifest, VerifiedManifest, verified


@dataclass(frozen=True, slots=True)
class Examination:
    """A report, and what stands where it is clean: the verified manifest and the files behind it."""

    report: Report
    verified: VerifiedManifest | None
    resolution: Resolution | None


def examine(
    folder: ArtifactFolder,
    *,
    target: str | None = None,
    weights: Path | None = None,
    require_weights: bool = True,
) -> Examination:
    """Apply rules 1 to 10 to an open folder; `weights` takes the place of the folder's own weights file.

    Without `require_weights` it is no fault that the folder has none.
    """
    reading = read(folder.manifest_bytes())
    if reading.manifest is None:
        return _refused(folder.path, reading, reading.diagnostics)
    checked, faults = _checked(reading.manifest)
    shared_mem = None if checked is None else _shared_mem(checked)
    refused = [fault.path for fault in faults]
    resolution = resolve(
        reading.manifest,
        folder,
        target=target,
        weights=weights,
        require_weights=require_weights,
        shared_mem=shared_mem,
        refused=refused,
    )
    faults += resolution.diagnostics
    if checked is None or faults:
        return _refused(folder.path, reading, faults)
    return Examination(locate(folder.path, reading.source, ()), checked, resolution)


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


def _refused(path: Path, reading: Reading, diagnostics: Sequence[Diagnostic]) -> Examination:
    return Examination(locate(path, reading.source, diagnostics), None, None)
