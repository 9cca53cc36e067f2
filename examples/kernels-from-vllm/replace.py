"""Put add_norm.cu behind `add_rms_norm_bf16` of an artifact on vLLM's kernels: a file added, one impl block changed.

python replace.py ARTIFACT NEW_FOLDER
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

from kern.artifact.modules import describe
from kern.building.atomic_folder import replacing
from kern.manifest.errors import KernError
from kern.manifest.reading import read
from kern.manifest.types import Arg, Impl, Manifest, Step
from kern.manifest.writing import write
from kern.toolchain.nvrtc import compile_cubin

ENTRY = "add_rms_norm_bf16"
SOURCE = Path(__file__).parent / "add_norm.cu"
WARP, MOST_WIDTH = 32, 8192


def linked(source: str, target: str) -> None:
    """A hard link to a file, or a copy where that fails: weights are large, and unchanged."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def replaced(manifest: Manifest, file: str, sha256: str) -> Manifest:
    """The manifest with another implementation of the entry; its interface and its callers are unchanged."""
    kernel = manifest.kernels[ENTRY]
    calls = [call for program in manifest.programs.values() for call in program.dispatches if call.kernel == ENTRY]
    (width,) = {getattr(call.args[4], "value", 0) for call in calls}
    if width % 8 or width > MOST_WIDTH:
        sys.exit(f"replace.py: rows have {width} elements; add_norm.cu takes multiples of 8 up to {MOST_WIDTH}")
    step = Step(
        symbol="add_norm",
        params=kernel.params,
        block=(-(-width // 8 // WARP) * WARP, 1, 1),
        grid=kernel.impl.steps[0].grid,
        cubin=file,
        sha256=sha256,
        pdl=True,
        args=tuple(Arg(arg=index) for index in range(len(kernel.params))),
    )
    changed = kernel.model_copy(update={"impl": Impl(steps=(step,))})
    return manifest.model_copy(update={"kernels": {**manifest.kernels, ENTRY: changed}})


def replace(source: Path, output: Path) -> None:
    """Write the new folder: all files under their names, one more kernel, and the manifest with one entry changed."""
    manifest = read((source / "manifest.json").read_bytes()).manifest
    if manifest is None or ENTRY not in manifest.kernels:
        sys.exit(f"replace.py: {source} is not built on vLLM's kernels: it has no {ENTRY}")
    (before,) = manifest.kernels[ENTRY].impl.steps
    assert before.cubin is not None
    target = describe(before.cubin, (source / "kernels" / before.cubin).read_bytes(), "").target
    image = compile_cubin(SOURCE.read_text(), SOURCE.name, target)
    file, sha256 = f"{SOURCE.stem}.cubin", hashlib.sha256(image).hexdigest()
    text = write(replaced(manifest, file, sha256))
    with replacing(output, force=False) as folder:
        shutil.copytree(source, folder, copy_function=linked, dirs_exist_ok=True)
        (folder / "manifest.json").unlink()  # it shares its bytes with the old one
        (folder / "manifest.json").write_text(text)
        (folder / "kernels" / file).write_bytes(image)
    print(f"{ENTRY}: {before.symbol[:40]}… of {before.cubin}\n{' ' * len(ENTRY)}  is now add_norm of {file}")


def main() -> None:
    """Read the arguments; errors are one line."""
    if len(sys.argv) != 3:
        sys.exit("usage: python replace.py ARTIFACT NEW_FOLDER")
    source, output = Path(sys.argv[1]), Path(sys.argv[2])
    if not (source / "manifest.json").is_file():
        sys.exit(f"replace.py: {source} is not an artifact folder: it has no manifest.json")
    if os.path.lexists(output):
        sys.exit(f"replace.py: {output} exists: name a new folder, or remove it first")
    if output.resolve().is_relative_to(source.resolve()):
        sys.exit(f"replace.py: {output} is inside {source}, which must not change: name a folder outside it")
    try:
        replace(source, output)
    except (KernError, OSError) as error:
        sys.exit(f"replace.py: {error}")


if __name__ == "__main__":
    main()
