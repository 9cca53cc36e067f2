"""Compiling the host kernels with the C compiler, at build time, for one instruction set."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import kern.device.host
from kern.artifact.errors import UnknownTarget
from kern.toolchain.cc import compile_all, compiler_command, compiles_for

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
_NEEDED: Final = "it needs OpenMP and the target, as gcc 11 or clang 12 and later have; name another compiler in CC"


def compile_host_modules(target: str) -> Mapping[str, bytes]:
    """Compile every kernel source for `target` (`x86-64-v3`, `aarch64`, …): shared objects by file name.

    The same compiler gives the same bytes each time. The compiler is `cc`, or what CC names.
    Raises UnknownTarget, CompilerMissing, CompilationFailed.
    """
    return _compiled(target, sorted(SOURCES.glob("*.c")))


def check_host_compiler(target: str) -> None:
    """Raises what `compile_host_modules` would, from compiling its smallest source."""
    _compiled(target, [min(SOURCES.glob("*.c"), key=lambda source: source.stat().st_size)])


def _compiled(target: str, sources: Sequence[Path]) -> Mapping[str, bytes]:
    check_host_target(target)
    arguments = [(f"{source.name} for {target}", _arguments(target, source)) for source in sources]
    images = compile_all(compiler_command(), arguments, _NEEDED)
    return {f"{source.stem}.so": image for source, image in zip(sources, images, strict=True)}


def check_host_target(target: str) -> None:
    """Raises UnknownTarget for a target without host kernels, and without a compiler for its architecture."""
    if target not in _MARCH:
        raise UnknownTarget(f"no host kernels for `{target}`", f"targets: {', '.join(_MARCH)}")
    architecture, machine = "aarch64" if target == "aarch64" else "x86_64", platform.machine()
    if architecture != machine and not compiles_for(architecture):
        name = f"{architecture}-linux-gnu-gcc"
        raise UnknownTarget(
            f"kernels for {target} need a C compiler for {architecture}; this machine is {machine}",
            f"name one in CC, such as CC={name} (`apt install gcc-{architecture.replace('_', '-')}-linux-gnu`), "
            "or use --target host for this machine",
        )


def _arguments(target: str, source: Path) -> tuple[str, ...]:
    return (
        *("-std=gnu11", "-O3", f"-march={_MARCH[target]}", "-ffp-contract=fast", "-fopenmp"),
        *("-shared", "-fPIC", "-fvisibility=hidden", "-s", "-Wl,--build-id=none"),
        *(f"-ffile-prefix-map={SOURCES}=.", f"-I{ABI_HEADERS}", f'-DKERN_TARGET="{target}"', *_level(target)),
        *(str(source), "-lm"),
    )


def _level(target: str) -> tuple[str, ...]:
    """Tells the sources an x86-64 target's level: options in CC must not add instructions beyond it."""
    return (f"-DKERN_LEVEL={target[-1]}",) if target.startswith("x86-64-") else ()
