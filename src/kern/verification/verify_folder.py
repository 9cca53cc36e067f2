"""Verifies an artifact folder: its manifest, and the files behind it."""

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
class VerifiedFolder:
    """A report and, where it has no errors, the verified manifest and the files behind it."""

    report: Report
    verified: VerifiedManifest | None
    resolution: Resolution | None


def verify_folder(
    folder: ArtifactFolder,
    *,
    target: str | None = None,
    weights: Path | None = None,
    require_weights: bool = True,
) -> VerifiedFolder:
    """Apply rules 1 to 10 to an open folder; `weights` replaces the folder's weights file.

    Without `require_weights`, a folder without weights is accepted.
    """
    reading = read(folder.manifest_bytes())
    if reading.manifest is None:
        return _refused(folder.path, reading, reading.diagnostics)
    checked, errors = _checked(reading.manifest)
    shared_mem = None if checked is None else _shared_mem(checked)
    refused = [error.path for error in errors]
    resolution = resolve(
        reading.manifest,
        folder,
        target=target,
        weights=weights,
        require_weights=require_weights,
        shared_mem=shared_mem,
        refused=refused,
    )
    errors += resolution.diagnostics
    if checked is None or errors:
        return _refused(folder.path, reading, errors)
    return VerifiedFolder(locate(folder.path, reading.source, ()), checked, resolution)


def _checked(manifest: Manifest) -> tuple[VerifiedManifest | None, tuple[Diagnostic, ...]]:
    try:
        return verified(manifest), ()
    except InvalidManifest as error:
        return None, error.diagnostics


def _shared_mem(checked: VerifiedManifest) -> dict[StepKey, int]:
    """The most dynamic shared memory that each step needs in any program that runs it, in bytes."""
    return {
        (name, index): bounds(step.shared_mem, checked.ranges.kernels[name])[1]
        for name, kernel in checked.manifest.kernels.items()
        for index, step in enumerate(kernel.impl.steps)
    }


def _refused(path: Path, reading: Reading, diagnostics: Sequence[Diagnostic]) -> VerifiedFolder:
    return VerifiedFolder(locate(path, reading.source, diagnostics), None, None)
