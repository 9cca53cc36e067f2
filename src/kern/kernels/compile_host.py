"""Compiling the host kernels with the system's C compiler, at build time, for one instruction set."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Final

import kern.device.host
from kern.artifact.errors import UnknownTarget
from kern.files.working_folder import working_folder
from kern.manifest.errors import KernError, variant
from kern.manifest.limits import check_limit

SOURCES: Final = Path(__file__).parent / "host"
ABI_HEADERS: Final = Path(kern.device.host.__file__).parent

_MARCH: Final = {
    "x86-64-v1": "x86-64",
    "x86-64-v2": "x86-64-v2",
    "x86-64-v3": "x86-64-v3",
    "x86-64-v4": "x86-64-v4",
    "aarch64": "armv8.2-a",
}
HOST_TARGETS: Final = tuple(_MARCH)
"""The instruction sets that the host kernels can be compiled for."""
_JOBS: Final = 2
_WAIT_S: Final = 0.1
_SHOWN_LINES: Final = 12
_INSTALL: Final = "install one (`apt install gcc`, `dnf install gcc`), or name yours in CC"


CompilerMissing = variant(KernError, "compiler-missing", "There is no C compiler, or it does not run.", exit_code=2)
CompilationFailed = variant(KernError, "compilation-failed", "The C compiler refused a source, or could not write.")


def compile_host_modules(target: str) -> Mapping[str, bytes]:
    """Compile every kernel source for `target` (`x86-64-v3`, `aarch64`, …): shared objects by file name.

    The same compiler gives the same bytes each time. The compiler is `cc`, or what CC names.
    Raises UnknownTarget, CompilerMissing, CompilationFailed.
    """
    return _compiled(target, sorted(SOURCES.glob("*.c")))


def check_compiler(target: str) -> None:
    """Raises what `compile_host_modules` would, from compiling its smallest source."""
    _compiled(target, [min(SOURCES.glob("*.c"), key=lambda source: source.stat().st_size)])


def _compiled(target: str, sources: Sequence[Path]) -> Mapping[str, bytes]:
    check_host_target(target)
    compiler = compiler_command()
    try:
        with working_folder("kern-compile-") as folder, _Compilers(folder) as compilers:
            jobs = {source: compilers.pool.submit(_compile, compilers, compiler, target, source) for source in sources}
            compilers.wait(jobs.values())
            return {f"{source.stem}.so": job.result() for source, job in jobs.items()}
    except OSError as error:
        check_limit(error, "compiling kernels")
        raise CompilationFailed(
            f"there is no place for compiled kernels: {error.strerror}", "set TMPDIR to a folder with room"
        ) from error


def check_host_target(target: str) -> None:
    """Raises UnknownTarget for a target without host kernels, and without a compiler for its architecture."""
    if target not in _MARCH:
        raise UnknownTarget(f"no host kernels for `{target}`", f"targets: {', '.join(_MARCH)}")
    architecture, machine = "aarch64" if target == "aarch64" else "x86_64", platform.machine()
    if architecture != machine and not _compiles_for(architecture):
        name = f"{architecture}-linux-gnu-gcc"
        raise UnknownTarget(
            f"kernels for {target} need a C compiler for {architecture}; this machine is {machine}",
            f"name one in CC, such as CC={name} (`apt install gcc-{architecture.replace('_', '-')}-linux-gnu`), "
            "or use --target host for this machine",
        )


def _compiles_for(architecture: str) -> bool:
    """Whether that is the architecture that the compiler produces code for, as gcc and clang report it."""
    command = [*compiler_command(), "-dumpmachine"]
    try:
        reported = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).stdout
    except OSError as error:
        raise _does_not_run(command[0], error) from error
    return reported.startswith(f"{architecture}-".encode())


def compiler_command() -> list[str]:
    """The C compiler and the options that are always given to it, `cc` or what CC says. Raises CompilerMissing."""
    try:
        command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    except ValueError as error:
        raise CompilerMissing(f"no C compiler: CC is {os.environ['CC']!r}: {error}", _INSTALL) from None
    if shutil.which(command[0]) is None:
        raise CompilerMissing(f"no C compiler: `{command[0]}` is not a program on the PATH", _INSTALL)
    return command


def _does_not_run(program: str, error: OSError) -> KernError:
    """The error for a compiler that cannot be started. Raises LimitReached where that is why."""
    check_limit(error, f"starting `{program}`")
    return CompilerMissing(f"no C compiler: `{program}` does not run: {error.strerror}", _INSTALL)


def _level(target: str) -> tuple[str, ...]:
    """Tells the sources an x86-64 target's level: options in CC must not add instructions beyond it."""
    return (f"-DKERN_LEVEL={target[-1]}",) if target.startswith("x86-64-") else ()


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
        """The exit status of a command and what it says on stderr. Raises OSError."""
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
        said = process.communicate()[1]
        with self._lock:
            self._running.remove(process)
        return process.returncode, said.decode(errors="replace")


def _compile(compilers: _Compilers, compiler: list[str], target: str, source: Path) -> bytes:
    output = compilers.folder / f"{source.stem}.so"
    command = [
        *compiler,
        *("-std=gnu11", "-O3", f"-march={_MARCH[target]}", "-ffp-contract=fast", "-fopenmp"),
        *("-shared", "-fPIC", "-fvisibility=hidden", "-s", "-Wl,--build-id=none"),
        *(f"-ffile-prefix-map={SOURCES}=.", f"-I{ABI_HEADERS}", f'-DKERN_TARGET="{target}"', *_level(target)),
        *(str(source), "-o", str(output), "-lm"),
    ]
    try:
        status, stderr = compilers.run(command)
    except OSError as error:
        raise _does_not_run(compiler[0], error) from error
    if status != 0 or not output.is_file():
        said = "\n".join(stderr.splitlines()[:_SHOWN_LINES]) or f"it ended with {status}, no file written"
        raise CompilationFailed(
            f"`{compiler[0]}` could not compile {source.name} for {target}:\n{said}",
            "it needs OpenMP and the target, as gcc 11 or clang 12 and later have; name another compiler in CC",
        )
    return output.read_bytes()
