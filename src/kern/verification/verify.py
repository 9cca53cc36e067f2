"""From a path to a report: a manifest, or a folder with the files behind it."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

from kern.files.regular_file import NotRegular, open_regular
from kern.manifest.errors import KernError, variant
from kern.manifest.reading import MAX_BYTES, read
from kern.verification.report import Report, locate
from kern.verifier import check

HOST: Final = "host"
"""The target that means this machine's own."""


_GIVE: Final = "give a manifest or an artifact folder"


Unreadable = variant(KernError, "not-an-artifact", "The path is not a readable manifest or folder.", exit_code=2)


def verify(path: str | Path, target: str | None = None, *, weights: str | Path | None = None) -> Report:
    """Verify a manifest file (rules 1 to 9) or an artifact folder (rules 1 to 10).

    `target` is what the kernels must run on: `sm_90`, `x86-64-v3`, …, or `host` for this machine; without
    it they need only agree with each other. `weights` replaces the folder's weights file. Both are ignored for a
    manifest without a folder, which has neither kernels nor weights.
    Raises Unreadable or an ArtifactError for what cannot be read at all.
    """
    path = Path(path)
    if stat.S_ISDIR(_mode(path)):
        return _verify_folder(path, target, None if weights is None else Path(weights))
    reading = read(_file_bytes(path))
    return locate(path, reading.source, reading.diagnostics if reading.manifest is None else check(reading.manifest))


def _verify_folder(path: Path, target: str | None, weights: Path | None) -> Report:
    # Imported here: a manifest without a folder needs no code that reads kernel files, nor its start-up time.
    from kern.artifact import open_folder
    from kern.device.host.target import host_target
    from kern.verification.verify_folder import verify_folder

    with open_folder(path) as folder:
        return verify_folder(folder, target=host_target() if target == HOST else target, weights=weights).report


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}", _GIVE) from None
    except ValueError:  # a zero byte, or half a character
        raise Unreadable(f"{str(path)!r} is not a path", _GIVE) from None


def _file_bytes(path: Path) -> bytes:
    """The file's bytes, at most one byte more than a manifest may have."""
    try:
        with open(open_regular(path), "rb") as file:
            return file.read(MAX_BYTES + 1)
    except NotRegular:
        raise Unreadable(f"{path} is neither a file nor a folder", _GIVE) from None
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}", _GIVE) from None
