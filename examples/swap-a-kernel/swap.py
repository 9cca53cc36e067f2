"""Put plain_norm.c behind an artifact's kernel `rms_norm`: one file added, one impl block changed.

python swap.py ARTIFACT NEW_FOLDER
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import kern.device.host
from kern.device.host.target import host_target
from kern.manifest.params import Param
from kern.manifest.reading import read
from kern.manifest.types import Arg, Impl, Manifest, Step
from kern.manifest.writing import write

HERE = Path(__file__).parent


def compile_module(output: Path) -> str:
    """Compile the kernel for this machine; the file's SHA-256."""
    target = host_target()
    include = Path(kern.device.host.__file__).parent
    flags = ["-O3", "-march=native", "-shared", "-fPIC", "-fvisibility=hidden", f'-DKERN_TARGET="{target}"']
    subprocess.run(["cc", *flags, f"-I{include}", HERE / "plain_norm.c", "-o", output, "-lm"], check=True)
    return hashlib.sha256(output.read_bytes()).hexdigest()


def swapped(manifest: Manifest, sha256: str) -> Manifest:
    """The manifest with another implementation of `rms_norm`; its interface and its callers are unchanged."""
    step = Step(
        symbol="plain_norm",
        params=tuple(map(Param.parse, ("out buffer<bf16>", "in buffer<f32>", "in buffer<bf16>", "f32", "i32"))),
        block=(1, 1, 1),
        grid=manifest.kernels["rms_norm"].impl.steps[0].grid,
        cubin="plain_norm.so",
        sha256=sha256,
        args=(Arg(arg=0), Arg(arg=1), Arg(arg=2), Arg(arg=4), Arg(arg=3)),
    )
    kernel = manifest.kernels["rms_norm"].model_copy(update={"impl": Impl(steps=(step,))})
    return manifest.model_copy(update={"kernels": {**manifest.kernels, "rms_norm": kernel}})


def main() -> None:
    """Copy the artifact, compile, change the manifest."""
    if len(sys.argv) != 3:
        sys.exit("usage: python swap.py ARTIFACT NEW_FOLDER")
    source, output = Path(sys.argv[1]), Path(sys.argv[2])
    if not (source / "manifest.json").is_file():
        sys.exit(f"swap.py: {source} is not an artifact folder: it has no manifest.json")
    if output.exists():
        sys.exit(f"swap.py: {output} exists: name a new folder, or remove it first")
    shutil.copytree(source, output)
    sha256 = compile_module(output / "kernels" / "plain_norm.so")
    manifest = read((output / "manifest.json").read_bytes()).manifest
    assert manifest is not None
    (output / "manifest.json").write_text(write(swapped(manifest, sha256)))


if __name__ == "__main__":
    main()
