"""What a provider's file can do to `kern run` by itself: the process never ends in success, or without a line."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kern.device.host.target import host_target
from kern.kernels.compile_host import ABI_HEADERS
from support.processes import ONE_FAMILY

SOURCE = """
#include <stdlib.h>
#include "kern_host.h"
KERN_KERNEL(silu_mul, "%s") { (void)launch, (void)params; %s; }
"""


def with_a_kernel(tiny: Path, folder: Path, body: str) -> Path:
    """The tiny model with another kernel for one of its steps, pinned as the manifest asks."""
    shutil.copytree(tiny, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    step = manifest["kernels"]["silu_mul"]["impl"]["steps"][0]
    types = ",".join("ptr" if "buffer" in param else param for param in step["params"])
    module = folder / "kernels" / step["cubin"]
    module.with_suffix(".c").write_text(SOURCE % (types, body))
    flags = ["-shared", "-fPIC", "-fvisibility=hidden", f"-I{ABI_HEADERS}", f'-DKERN_TARGET="{host_target()}"']
    subprocess.run(["cc", *flags, module.with_suffix(".c"), "-o", module], check=True)
    module.with_suffix(".c").unlink()
    step["sha256"] = hashlib.sha256(module.read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def ended(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, timeout=60)


@ONE_FAMILY
@pytest.mark.parametrize(("body", "code"), [("exit(0)", 1), ("abort()", -signal.SIGABRT)])
def test_run_names_the_launch_that_ends_it(tiny: Path, tmp_path: Path, body: str, code: int) -> None:
    folder = with_a_kernel(tiny, tmp_path / "model", body)
    assert ended("-m", "kern", "verify", str(folder)).returncode == 0
    done = ended("-m", "kern", "run", str(folder), "--prompt-ids", "1,2,3")
    assert done.returncode == code
    assert "silu_mul" in done.stderr
    assert ("ended the process by exit()" if code == 1 else "Fatal Python error: Aborted") in done.stderr


@ONE_FAMILY
def test_weights_that_are_shortened_while_they_are_used_are_a_named_bus_error(tiny: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny, tmp_path / "model")
    code = (
        "import os, sys, kern\n"
        "from kern.engine.generator import Generator\n"
        "from kern.text.tokenizer import Tokenizer\n"
        "with kern.load(sys.argv[1], capacity=64) as executable:\n"
        "    os.truncate(sys.argv[1] + '/weights.safetensors', 4096)\n"
        "    list(Generator(executable, Tokenizer.load(sys.argv[1])).generate([1, 2, 3], max_tokens=2))\n"
    )
    done = ended("-c", code, str(folder))
    assert done.returncode == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in done.stderr
    assert 'File "<kernel launch>"' in done.stderr
