"""Writing a folder that replaces another one in one step, as a whole or not at all."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from kern.artifact.folder import MANIFEST
from kern.artifact.folder_lock import locked_alone
from kern.files.working_folder import working_folder
from kern.manifest.errors import KernError, variant

_PREFIX: Final = ".kern-build-"
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


OutputError = variant(KernError, "output-unwritable", "The output folder cannot be written.", exit_code=2)


def check_output(output: Path, force: bool) -> None:
    """Raises OutputError for what must not be replaced: anything, or with `force` what is not an artifact folder."""
    if not os.path.lexists(output):
        return
    if not force:
        raise OutputError(f"{output} exists", "give --force to replace it, or another folder")
    if not _is_replaceable(output):
        raise OutputError(f"{output} is not an artifact folder, so it is not replaced", "give another folder")


@contextmanager
def replacing(output: Path, force: bool) -> Iterator[Path]:
    """A new folder next to `output` that replaces it if the body succeeds, and is removed if it fails.

    Readers of the old folder can go on reading it: it is removed when they have finished.
    Raises OutputError, also for an OSError of the body, which must do nothing but write.
    """
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held, working_folder(_PREFIX, output.parent) as work:
            folder, old = work / "new", work / "old"
            folder.mkdir()
            yield folder
            check_output(output, force)
            if force:
                _swap(folder, output, old)
                _await_readers(folder if os.path.exists(folder) else old, held)
            else:
                os.rename(folder, output)
    except OSError as error:
        raise OutputError(f"cannot write {output}: {error.strerror or error}", _remedy(error, output)) from error


def _await_readers(replaced: Path, held: ExitStack) -> None:
    """Wait for the readers of what was replaced, if anything was. Its manifest is removed first: they look for it."""
    if os.path.exists(replaced):
        held.callback(os.close, locked_alone(replaced))
        (replaced / MANIFEST).unlink(missing_ok=True)


def _is_replaceable(output: Path) -> bool:
    if os.path.islink(output) or not os.path.isdir(output):
        return False
    try:
        return os.path.isfile(output / MANIFEST) or not os.listdir(output)
    except OSError:
        return False


def _swap(new: Path, output: Path, old: Path) -> None:
    """Rename `new` to `output`.

    What was there is renamed to `new` by the same call. A system that cannot do that renames it to `old` first, and
    back if anything fails between the two.
    """
    if _exchange(new, output):
        return
    try:
        if os.path.lexists(output):
            os.rename(output, old)
        os.rename(new, output)
    except BaseException:
        if os.path.lexists(old) and not os.path.lexists(output):
            os.rename(old, output)
        raise


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two paths by renameat2(2). False where the system cannot, or one of them does not exist."""
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    if renameat2 is None:
        return False
    return bool(renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0)


def _remedy(error: OSError, output: Path) -> str:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "give another folder"
    existing = next(parent for parent in output.absolute().parents if os.path.exists(parent))
    return f"free some disk space: {shutil.disk_usage(existing).free:,} bytes are free"
