"""Writing a file that replaces another one in one step, as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from kern.files.working_folder import working_folder

_PREFIX = ".kern-part-"


@contextmanager
def whole_file(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """A new file next to `path`, open for writing, which is renamed to it if the body succeeds.

    `mode` are its permissions; None leaves those that the process gives to new files. Raises OSError.
    """
    with working_folder(_PREFIX, path.parent) as folder:
        part = folder / "part"
        with part.open("wb") as file:
            yield file
        if mode is not None:
            part.chmod(mode)
        os.replace(part, path)
