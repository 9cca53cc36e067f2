"""From a path to a report: a manifest, or a folder with the files behind it."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import ClassVar, Final

from kern.manifest.errors import KernError
from kern.manifest.reading import MAX_BYTES, read
from kern.runtime.reports import Report, locate
from kern.verifier import check

HOST: Final = "host"
"""The target that stands for this machine's own."""


class Unreadable(KernError):
    """A path that is neither a manifest nor a folder."""

    code: ClassVar[str] = "unreadable"
    exit_code: ClassVar[int] = 2


def verify(path: str | Path, target: str | None = None) -> Report:
    """Verify a manifest file (rules 1 to 9) or an artifact folder (rules 1 to 10).

    `target` is what the kernels must run on: `sm_90`, `x86-64-v3`, …, or `host` for this machine; without
    it they need only agree with each other. A bare manifest has no kernels, so it is not used for one.
    Raises Unreadable or an ArtifactError for what cannot be read at all.
    """
    path = Path(path)
    if path.is_dir():
        return _verify_folder(path, target)
    reading = read(_file_bytes(path))
    return locate(path, reading.source, reading.diagnostics if reading.manifest is None else check(reading.manifest))


def _verify_folder(path: Path, target: str | None) -> Report:
    # Imported here since a bare manifest needs nothing that reads kernel files, and no start-up time for it.
    from kern.artifact import open_folder
    from kern.device.host.target import host_target
    from kern.runtime.examination import examine

    with open_folder(path) as folder:
        return examine(folder, target=host_target() if target == HOST else target).report


def _file_bytes(path: Path) -> bytes:
    """The file's bytes, at most one more than a manifest may have."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise Unreadable(f"{path} is neither a file nor a folder", "give a manifest or an artifact folder")
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}", "give a manifest or an artifact folder") from None
