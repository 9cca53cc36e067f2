"""The system's C compiler: which it is, several runs of it at the same time, and its errors."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Final

from kern.files.working_folder import working_folder
from kern.manifest.errors import KernError, variant
from kern.manifest.limits import check_limit

_JOBS: Final = 2
_WAIT_S: Final = 0.1
_SHOWN_LINES: Final = 12
_INSTALL: Final = "install one (`apt install gcc`, `dnf install gcc`), or name yours in CC"


CompilerMissing = variant(KernError, "compiler-missing", "There is no C compiler, or it does not run.", exit_code=2)
CompilationFailed = variant(KernError, "compilation-failed", "The C compiler refused a source, or could not write.")


def compiler_command() -> list[str]:
    """The C compiler and the options that are always given to it, `cc` or what CC says. Raises CompilerMissing."""
    try:
        command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    except ValueError as error:
        raise CompilerMissing(f"no C compiler: CC is {os.environ['CC']!r}: {error}", _INSTALL) from None
    if shutil.which(command[0]) is None:
        raise CompilerMissing(f"no C compiler: `{command[0]}` is not a program on the PATH", _INSTALL)
    return command


def compiles_for(architecture: str) -> bool:
    """Whether the compiler produces code for that architecture, as gcc and clang report it. Raises CompilerMissing."""
    command = [*compiler_command(), "-dumpmachine"]
    try:
        reported = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).stdout
    except OSError as error:
        raise _does_not_run(command[0], error) from error
    return reported.startswith(f"{architecture}-".encode())


def compile_all(compiler: Sequence[str], sources: Sequence[tuple[str, Sequence[str]]], help: str) -> list[bytes]:
    """The files that the compiler writes, one for each of `sources`: what it is called in a message, and the arguments.

    `help` says what a compiler that fails needs. Raises CompilerMissing, CompilationFailed.
    """
    try:
        with working_folder("kern-compile-") as folder, _Compilers(folder) as compilers:
            jobs = [
                compilers.pool.submit(_compile, compilers, [*compiler, *arguments], name, folder / str(number), help)
                for number, (name, arguments) in enumerate(sources)
            ]
            compilers.wait(jobs)
            return [job.result() for job in jobs]
    except OSError as error:
        check_limit(error, "compiling")
        raise CompilationFailed(
            f"compiled code cannot be written: {error.strerror}", "set TMPDIR to a folder with room"
        ) from error


class _Compilers:
    """Compilers that run at the same time, and end where the body ends early. Their temporary files are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pool = ThreadPoolExecutor(_JOBS)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended = False
        self._lock = Lock()

    def __enter__(self) -> _Compilers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            with self._lock:
                self._ended = True
                for process in self._running:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
        self.pool.shutdown(cancel_futures=True)

    def wait(self, jobs: Iterable[Future[bytes]]) -> None:
        """Until all are done, or one has failed.

        A signal that comes just before a wait begins does not end it, so no wait is long.
        """
        left = set(jobs)
        while left:
            done, left = wait(left, timeout=_WAIT_S, return_when=FIRST_EXCEPTION)
            for job in done:
                job.result()

    def run(self, command: list[str]) -> tuple[int, str]:
        """The exit status of a command and what it writes to stderr. Raises OSError."""
        environment = {**os.environ, "TMPDIR": str(self.folder)}
        with self._lock:
            if self._ended:
                return 1, ""
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=environment,
                process_group=0,  # a compiler's own processes end with it
            )
            self._running.add(process)
        reported = process.communicate()[1]
        with self._lock:
            self._running.remove(process)
        return process.returncode, reported.decode(errors="replace")


def _compile(compilers: _Compilers, command: list[str], name: str, output: Path, help: str) -> bytes:
    try:
        status, stderr = compilers.run([*command, "-o", str(output)])
    except OSError as error:
        raise _does_not_run(command[0], error) from error
    if status != 0 or not output.is_file():
        reported = "\n".join(stderr.splitlines()[:_SHOWN_LINES]) or f"it ended with {status}, no file written"
        raise CompilationFailed(f"`{command[0]}` could not compile {name}:\n{reported}", help)
    return output.read_bytes()


def _does_not_run(program: str, error: OSError) -> KernError:
    """The error for a compiler that cannot be started. Raises LimitReached where that is why."""
    check_limit(error, f"starting `{program}`")
    return CompilerMissing(f"no C compiler: `{program}` does not run: {error.strerror}", _INSTALL)
