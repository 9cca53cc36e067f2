"""Where kern keeps what it fetches, compiles or measures once for a user."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar, Final

from kern.manifest.errors import KernError

NAME_ANOTHER: Final = "name a folder that can be written, by its absolute path, in XDG_CACHE_HOME"
"""What to do about a cache that cannot be used."""


class NoCacheFolder(KernError):
    """There is no folder to keep anything in."""

    code: ClassVar[str] = "no-cache-folder"
    exit_code: ClassVar[int] = 2


def user_cache() -> Path:
    """`$XDG_CACHE_HOME/kern`, or `~/.cache/kern` where the variable holds no absolute path.

    So the XDG Base Directory Specification has it: a relative path is to be ignored. Raises NoCacheFolder where there
    is no home folder either.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(named) if os.path.isabs(named) else Path.home() / ".cache") / "kern"
    except RuntimeError as error:
        raise NoCacheFolder("there is no home folder to keep a cache in", NAME_ANOTHER) from error
