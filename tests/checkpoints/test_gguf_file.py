"""GGUF files: whole, split, damaged, long; each is read or refused in a line, within bounds of memory."""

from __future__ import annotations

import os
import resource
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gguf import GGUFEndian

from kern.building.build import build
from kern.building.options import BuildOptions
from kern.checkpoints.checkpoint import CheckpointError
from kern.checkpoints.gguf_checkpoint import GgufCheckpoint
from kern.checkpoints.gguf_file import MAX_HEADER_BYTES, read_gguf
from kern.checkpoints.tensors import check_checkpoint
from support.gguf_files import gguf_metadata, gguf_tensors, write_gguf
from support.sharp import SharpCheckpoint

LLAMA = SharpCheckpoint("llama")


def written(path: Path, *, endian: GGUFEndian = GGUFEndian.LITTLE, **keys: Any) -> Path:
    metadata = gguf_metadata(LLAMA.config) | {key.replace("_", ".", 1): value for key, value in keys.items()}
    return write_gguf(path, metadata, gguf_tensors(LLAMA.config, LLAMA.all()), endian)


def split(folder: Path, name: str = "m", count: int = 3, **changes: Any) -> list[Path]:
    """The model split into parts as llama.cpp's gguf-split does."""
    folder.mkdir(exist_ok=True)
    tensors = gguf_tensors(LLAMA.config, LLAMA.all())
    paths = []
    for number in range(count):
        more = {"split.no": number, "split.count": count, "split.tensors.count": len(tensors)} | changes
        first = gguf_metadata(LLAMA.config) if number == 0 else {"general.architecture": "llama"}
        part = dict(list(tensors.items())[number::count])
        paths.append(write_gguf(folder / f"{name}-{number + 1:05}-of-{count:05}.gguf", first | more, part))
    return paths


def test_all_parts_of_a_split_file_are_read(tmp_path: Path) -> None:
    first, *_ = split(tmp_path)
    checkpoint, whole = GgufCheckpoint(first), GgufCheckpoint(written(tmp_path / "whole.gguf"))

    check_checkpoint(checkpoint)
    assert checkpoint.config == whole.config
    for name in LLAMA.all():
        assert np.array_equal(checkpoint.tensor(name), whole.tensor(name))


def test_missing_parts_are_named(tmp_path: Path) -> None:
    first, second, third = split(tmp_path)
    second.unlink()
    third.unlink()

    with pytest.raises(CheckpointError, match=rf"is part 1 of 3, but its folder has no {second.name}, {third.name}"):
        GgufCheckpoint(first)


def test_parts_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    first, second, _ = split(tmp_path / "a")
    with pytest.raises(CheckpointError, match=rf"is part 2 of 3; give the first: .*{first.name}"):
        GgufCheckpoint(second)
    renamed = first.rename(first.with_name("model.gguf"))
    with pytest.raises(CheckpointError, match=r"is part 1 of 3 but is not named NAME-00001-of-00003\.gguf"):
        GgufCheckpoint(renamed)

    first, second, third = split(tmp_path / "b")
    second.write_bytes(third.read_bytes())
    with pytest.raises(CheckpointError, match=f"{second.name} is not part 2 of"):
        GgufCheckpoint(first)

    first, *_ = split(tmp_path / "c", **{"split.tensors.count": 99})
    with pytest.raises(CheckpointError, match=rf"have {len(LLAMA.all())} tensors; split.tensors.count is 99"):
        GgufCheckpoint(first)

    first, second, _ = split(tmp_path / "d")
    more = {"general.architecture": "llama", "split.no": 1, "split.count": 3}
    write_gguf(second, more, {"token_embd.weight": np.ones(3, np.float32)})
    with pytest.raises(CheckpointError, match=r"has the tensor 'token_embd\.weight', which an earlier part has"):
        GgufCheckpoint(first)

    first, second, _ = split(tmp_path / "e")
    write_gguf(second, more | {"llama.rope.freq_base": 1.0}, {"more": np.ones(3, np.float32)})
    with pytest.raises(CheckpointError, match=r"has 'llama\.rope\.freq_base', which the first part does not have"):
        GgufCheckpoint(first)

    for count in (2**30, "2", -1):
        with pytest.raises(CheckpointError, match=r"split\.count in .* is"):
            GgufCheckpoint(written(tmp_path / "x.gguf", split_count=count))


def test_one_part_alone_is_a_whole_file(tmp_path: Path) -> None:
    check_checkpoint(GgufCheckpoint(written(tmp_path / "m.gguf", split_count=1, split_no=0)))


def test_a_gguf_is_known_by_its_first_bytes(tmp_path: Path, compiled_once: None) -> None:
    path = written(tmp_path / "m.gguf").rename(tmp_path / "sha256-0123")
    build(BuildOptions("llama", checkpoint=path, target="host"), tmp_path / "out")

    assert (tmp_path / "out" / "weights.safetensors").exists()
    (tmp_path / "other.gguf").write_bytes(b"no GGUF at all")
    with pytest.raises(CheckpointError, match="it does not begin with GGUF"):
        build(BuildOptions("llama", checkpoint=tmp_path / "other.gguf", target="host"), tmp_path / "more")


def test_a_big_endian_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is in big-endian byte order; convert it"):
        GgufCheckpoint(written(tmp_path / "m.gguf", endian=GGUFEndian.BIG))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_tensors_of_half_precision_are_expanded(tmp_path: Path, dtype: Any) -> None:
    rows = (np.arange(512 * 128) % 251 / 8).astype(dtype).reshape(512, 128)
    path = write_gguf(tmp_path / "m.gguf", gguf_metadata(LLAMA.config), {"token_embd.weight": rows})

    assert np.array_equal(GgufCheckpoint(path).tensor("model.embed_tokens.weight"), rows.astype(np.float32))


def text(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


def header(*pairs: bytes, tensors: bytes = b"", count: int = 0, version: int = 3, claimed: int | None = None) -> bytes:
    counts = struct.pack("<QQ", count, len(pairs) if claimed is None else claimed)
    return b"GGUF" + struct.pack("<I", version) + counts + b"".join(pairs) + tensors


def pair(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def entry(name: bytes, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def array(kind: int, count: int, content: bytes) -> bytes:
    return struct.pack("<IQ", kind, count) + content


NESTED = array(9, 1, array(9, 1, array(9, 1, array(9, 1, array(9, 1, array(4, 0, b""))))))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "ends within its header"),
        (b"GGUF", "ends within its header"),
        (b"GGML" + bytes(100), "does not begin with GGUF"),
        (header(version=1), "is GGUF of version 1; versions 2 and 3"),
        (header(claimed=2**63), "ends within a key"),
        (header(count=2**63), "ends within a tensor's name"),
        (header(struct.pack("<Q", 2**64 - 1)), "ends within a key"),
        (header(pair(b"\xff", 4, bytes(4))), "a key is not UTF-8"),
        (header(pair(b"k", 8, text(b"\xff"))), "'k' is not UTF-8"),
        (header(pair(b"k", 13, bytes(8))), "'k' has a value of the unknown type 13"),
        (header(pair(b"k", 9, array(13, 1, bytes(8)))), "'k' has a value of the unknown type 13"),
        (header(pair(b"k", 4, bytes(4)), pair(b"k", 4, bytes(4))), "has 'k' twice"),
        (header(pair(b"k", 9, array(0, 2**40, b""))), "ends within 'k'"),
        (header(pair(b"k", 9, array(8, 2**64 - 1, b""))), "ends within 'k'"),
        (header(pair(b"k", 9, NESTED)), "has lists nested too deeply"),
        (header(pair(b"k", 9, array(0, 2**22 + 1, bytes(2**22 + 1)))), "more than 4,194,304 entries"),
        (header(pair(b"general.alignment", 4, bytes(4))), "general.alignment is 0"),
        (header(pair(b"general.alignment", 4, struct.pack("<I", 48))), "general.alignment is 48"),
        (header(pair(b"general.alignment", 8, text(b"32"))), "general.alignment is '32'"),
        (
            header(tensors=entry(b"t", (2,)) + entry(b"u", (2,)) + bytes(64), count=2),
            "begins at byte 0 of .* not at 32",
        ),
        (header(tensors=entry(b"t", (2,)) + entry(b"t", (2,), 0, 32) + bytes(99), count=2), "the tensor 't' twice"),
        (header(tensors=entry(b"t", (2,), 0, 32) + bytes(64), count=1), "begins at byte 32 of .* not at 0"),
        (header(tensors=entry(b"t", (2**40, 2**40)) + bytes(64), count=1), "ends within tensor 't'"),
        (header(tensors=entry(b"t", ()) + bytes(64), count=1), "has 0 dimensions"),
        (header(tensors=entry(b"t", (1, 1, 1, 1, 1)) + bytes(64), count=1), "has 5 dimensions"),
        (header(tensors=entry(b"t", (2, 0)) + bytes(64), count=1), r"has the shape \[0, 2\], which F32 cannot hold"),
        (header(tensors=entry(b"t", (33,), 2) + bytes(64), count=1), r"has the shape \[33\], which Q4_0 cannot hold"),
        (header(tensors=entry(b"t", (2,), 999) + bytes(64), count=1), "has the unknown type 999"),
    ],
)
def test_a_damaged_header_is_refused_in_a_line(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "m.gguf").write_bytes(content)

    with pytest.raises(CheckpointError, match=rf"m\.gguf .*{says}") as caught:
        read_gguf(tmp_path / "m.gguf")
    assert "\n" not in str(caught.value)


def test_a_header_beyond_its_bound_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(header(text(b"k") + struct.pack("<IQ", 8, MAX_HEADER_BYTES)))
    with path.open("ab") as file:
        file.truncate(2 * MAX_HEADER_BYTES)

    with pytest.raises(CheckpointError, match="its header has more than 67,108,864 bytes"):
        read_gguf(path)


@pytest.mark.parametrize(
    ("kind", "content"),
    [(0, bytes(4_000_000)), (1, b"\x9c" * 4_000_000), (8, text(b"abc") * 2_000_000)],
    ids=["4,000,000 u8", "4,000,000 i8", "2,000,000 strings"],
)
def test_long_lists_take_little_memory(tmp_path: Path, kind: int, content: bytes) -> None:
    count = 2_000_000 if kind == 8 else len(content)
    (tmp_path / "m.gguf").write_bytes(header(pair(b"k", 9, array(kind, count, content))))
    script = "import sys; from pathlib import Path; from kern.checkpoints.gguf_file import read_gguf; import gguf\n"
    script += "print(len(read_gguf(Path(sys.argv[1])).metadata['k']))"

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))

    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "m.gguf"],
        capture_output=True, text=True, timeout=60, preexec_fn=bounded, env={"OPENBLAS_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout.strip()) == (0, str(count)), done.stderr


def test_without_the_package_gguf_a_line_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "m.gguf")
    monkeypatch.setitem(sys.modules, "gguf", None)

    with pytest.raises(CheckpointError, match=r"needs the package gguf, which is not installed; .*\[gguf\]"):
        read_gguf(path)


def test_a_fifo_is_not_a_gguf_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        build(BuildOptions("llama", checkpoint=tmp_path / "pipe", target="host"), tmp_path / "out")
