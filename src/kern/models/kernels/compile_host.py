"""Compiling the host kernels with the system's C compiler, at build time, for one instruction set."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import kern.device.host
from kern.manifest.errors import KernError
from kern.working_folder import working_folder

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
_SHOWN_LINES: Final = 12
_INSTALL: Final = "install one (`apt install gcc`, `dnf install gcc`), or name yours in CC"


class CompilerMissing(KernError):
    """There is no C compiler, or it is no program that runs."""

    code = "compiler-missing"
    exit_code = 2


class CompilationFailed(KernError):
    """The C compiler refused a kernel's source, or there is no room for what it writes."""

    code = "compilation-failed"


class UnknownHostTarget(KernError):
    """The host kernels are not written for this target, or cannot be compiled for it on this machine."""

    code = "unknown-host-target"
    exit_code = 2


def compile_host_modules(target: str) -> Mapping[str, bytes]:
    """Compile every kernel source for `target` (`x86-64-v3`, `aarch64`, …): shared objects by file name.

    The same compiler gives the same bytes each time. The compiler is `cc`, or what CC names.
    Raises UnknownHostTarget, CompilerMissing, CompilationFailed.
    """
    return _compiled(target, sorted(SOURCES.glob("*.c")))


def check_compiler(target: str) -> None:
    """Raises what `compile_host_modules` would, from compiling its smallest source."""
    _compiled(target, [min(SOURCES.glob("*.c"), key=lambda source: source.stat().st_size)])


def _compiled(target: str, sources: Sequence[Path]) -> Mapping[str, bytes]:
    check_host_target(target)
    compiler = compiler_command()
    try:
        with working_folder("kern-host-") as folder, ThreadPoolExecutor(_JOBS) as pool:
            jobs = {source: pool.submit(_compile, compiler, target, source, folder) for source in sources}
            return {f"{source.stem}.so": job.result() for source, job in jobs.items()}
    except OSError as error:
        raise CompilationFailed(
            f"there is no place for compiled kernels: {error.strerror}", "set TMPDIR to a folder with room"
        ) from error


def check_host_target(target: str) -> None:
    """Raises UnknownHostTarget for a target without host kernels, and for one of another architecture than this one."""
    if target not in _MARCH:
        raise UnknownHostTarget(f"no host kernels for `{target}`", f"targets: {', '.join(_MARCH)}")
    architecture, machine = "aarch64" if target == "aarch64" else "x86_64", platform.machine()
    if architecture != machine:
        raise UnknownHostTarget(
            f"kernels for {target} are built on {architecture} machines only; this machine is {machine}",
            "build on such a machine, or use --target host for this one",
        )


def compiler_command() -> list[str]:
    """The C compiler and the options that are always given to it, `cc` or what CC says. Raises CompilerMissing."""
    try:
        command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    except ValueError as error:
        raise CompilerMissing(f"no C compiler: CC is {os.environ['CC']!r}: {error}", _INSTALL) from None
    if shutil.which(command[0]) is None:
        raise CompilerMissing(f"no C compiler: `{command[0]}` is no program on the PATH", _INSTALL)
    return command


def _level(target: str) -> tuple[str, ...]:
    """Tells the sources an x86-64 target's level: options in CC must not add instructions beyond it."""
    return (f"-DKERN_LEVEL={target[-1]}",) if target.startswith("x86-64-") else ()


def _compile(compiler: list[str], target: str, source: Path, folder: Path) -> bytes:
    output = folder / f"{source.stem}.so"
    command = [
        *compiler,
        *("-std=gnu11", "-O3", f"-march={_MARCH[target]}", "-ffp-contract=fast", "-fopenmp"),
        *("-shared", "-fPIC", "-fvisibility=hidden", "-s", "-Wl,--build-id=none"),
        *(f"-ffile-prefix-map={SOURCES}=.", f"-I{ABI_HEADERS}", f'-DKERN_TARGET="{target}"', *_level(target)),
        *(str(source), "-o", str(output), "-lm"),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise CompilerMissing(f"no C compiler: `{compiler[0]}` does not run: {error.strerror}", _INSTALL) from error
    if done.returncode != 0 or not output.is_file():
        said = "\n".join(done.stderr.splitlines()[:_SHOWN_LINES]) or f"it ended with {done.returncode}, no file written"
        raise CompilationFailed(
            f"`{compiler[0]}` could not compile {source.name} for {target}:\n{said}",
            "it needs OpenMP and the target, as gcc 11 or clang 12 and later have; name another compiler in CC",
        )
    return output.read_bytes()
