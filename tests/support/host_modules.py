"""Shared objects for tests: C text compiled with any flags, for what a well-behaved build never makes."""

from __future__ import annotations

import platform
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import kern.device.host

INCLUDE = Path(kern.device.host.__file__).parent
BASELINE = {"x86_64": "x86-64-v2", "aarch64": "aarch64"}[platform.machine()]
"""A target that this machine's compiler can make without flags."""
FLAGS = ("-shared", "-fPIC", "-fvisibility=hidden")


@cache
def shared_object(source: str, *options: str, target: str = BASELINE, flags: tuple[str, ...] = FLAGS) -> bytes:
    """The file that `cc` makes of C text, kern_host.h being on its path."""
    with tempfile.TemporaryDirectory() as directory:
        text, module = Path(directory, "test.c"), Path(directory, "test.so")
        text.write_text(source)
        defines = (f"-I{INCLUDE}", f'-DKERN_TARGET="{target}"')
        subprocess.run(["cc", "-O1", *flags, *defines, "-o", module, text, *options], check=True)
        return module.read_bytes()
