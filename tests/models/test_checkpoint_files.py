"""Which files a checkpoint is read from: each form works, or gets one line that says what is missing."""

from __future__ import annotations

import json
import os
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFEndian
from typer.testing import CliRunner

from kern.cli.app import app
from kern.models import build as building
from kern.models.build import build
from kern.models.checkpoint import CheckpointError
from kern.models.config import UnsupportedModel
from kern.models.gguf_checkpoint import GgufCheckpoint
from kern.models.gguf_file import MAX_HEADER_BYTES, read_gguf
from kern.models.hf_checkpoint import HuggingFaceCheckpoint
from kern.models.tensors import check_checkpoint
from support.gguf_files import gguf_metadata, gguf_tensors, write_gguf
from support.hf_folder import save_model, save_tensors
from support.sharp import SharpCheckpoint

LLAMA = SharpCheckpoint("llama")
WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def saved(folder: Path, shards: int = 1) -> Path:
    return save_model(folder, LLAMA, shards=shards)  # type: ignore[arg-type]


def homes(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / INDEX).read_text())["weight_map"]
    return found


def index(folder: Path, homes: dict[str, str]) -> None:
    (folder / INDEX).write_text(json.dumps({"weight_map": homes}))


def shard(number: int) -> str:
    return f"model-{number:05}-of-00003.safetensors"


def test_a_tensor_in_another_shard_than_the_index_says_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", 3)
    index(folder, homes(folder) | {"model.norm.weight": shard(1)})

    with pytest.raises(
        CheckpointError, match=rf"00003.safetensors has 'model.norm.weight', .* assigns it to {shard(1)}"
    ):
        check_checkpoint(HuggingFaceCheckpoint(folder))


def test_a_tensor_that_the_index_does_not_name_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", 3)
    index(folder, {name: home for name, home in homes(folder).items() if name != "model.norm.weight"})

    with pytest.raises(CheckpointError, match=r"has 'model.norm.weight', and .* does not name it"):
        check_checkpoint(HuggingFaceCheckpoint(folder))


def test_a_tensor_that_is_in_no_shard_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", 3)
    index(folder, homes(folder) | {"more": shard(2)})

    with pytest.raises(CheckpointError, match=rf"{shard(2)} has no 'more', as"):
        check_checkpoint(HuggingFaceCheckpoint(folder))


def test_missing_shards_are_named(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", 3)
    (folder / shard(2)).unlink()
    (folder / shard(3)).unlink()

    with pytest.raises(CheckpointError, match=rf"has no {shard(2)}, {shard(3)}, which {INDEX} names"):
        check_checkpoint(HuggingFaceCheckpoint(folder))


def test_a_stale_index_beside_a_whole_file_is_noted(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    index(folder, dict.fromkeys(LLAMA.all(), shard(1)))
    checkpoint = HuggingFaceCheckpoint(folder)

    check_checkpoint(checkpoint)
    assert checkpoint.notes[0] == f"{WHOLE} is read; {INDEX} names files that are not there"


def test_an_index_of_the_whole_file_is_obeyed(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    index(folder, dict.fromkeys(LLAMA.all(), WHOLE))
    check_checkpoint(HuggingFaceCheckpoint(folder))
    index(folder, {"model.norm.weight": WHOLE})

    with pytest.raises(CheckpointError, match="does not name it"):
        check_checkpoint(HuggingFaceCheckpoint(folder))


def test_a_whole_file_beside_all_shards_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", 3)
    save_tensors(folder / WHOLE, LLAMA.all())

    with pytest.raises(CheckpointError, match=f"has {WHOLE} and the shards of"):
        check_checkpoint(HuggingFaceCheckpoint(folder))


def _only(name: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        (folder / WHOLE).unlink()
        if name:
            (folder / name).touch()

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_only(""), f"has no {WHOLE}; give all files"),
        (_only("pytorch_model.bin"), f"has no {WHOLE}, only pytorch_model.bin; only safetensors are read"),
        (_only("pytorch_model-00001-of-00002.bin"), "only pytorch_model-00001"),
        (_only("consolidated.00.pth"), "only consolidated.00.pth"),
        (_only("q4.gguf"), "give the GGUF file itself: .*q4.gguf"),
        (_only(shard(1)), f"has {shard(1)}, and no {INDEX}; fetch the index"),
        (lambda folder: (folder / "adapter_config.json").touch(), "adapter_config.json, an adapter; merge it"),
        (lambda folder: (folder / "config.json").unlink(), "has no config.json; give a folder"),
        (lambda folder: (folder / "config.json").rename(folder / "m.gguf"), "no config.json; give the GGUF .*m.gguf"),
        (lambda folder: (folder / INDEX).write_text('{"weight_map": {}}'), "has no weight_map"),
    ],
)
def test_a_folder_without_what_is_read_says_what_to_give(
    tmp_path: Path, change: Callable[[Path], object], says: str
) -> None:
    change(saved(tmp_path / "model"))

    with pytest.raises(CheckpointError, match=says):
        check_checkpoint(HuggingFaceCheckpoint(tmp_path / "model"))


def test_a_folder_without_tokenizer_json_is_noted(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")

    assert HuggingFaceCheckpoint(folder).notes == (f"{folder} has no tokenizer.json: prompts are token ids",)
    (folder / "tokenizer.model").touch()
    assert HuggingFaceCheckpoint(folder).notes == (
        f"{folder} has no tokenizer.json, only tokenizer.model: prompts are token ids",
    )
    (folder / "tokenizer.json").touch()
    assert HuggingFaceCheckpoint(folder).notes == ()


def built(*arguments: str) -> tuple[int, list[str]]:
    done = CliRunner().invoke(app, ["build", "llama", "--target", "host", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stderr.splitlines()


def test_unknown_settings_are_one_note_and_an_error_with_strict(tmp_path: Path, compiled_once: None) -> None:
    folder = saved(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"warp": 1} | {f"w{i}\n": i for i in range(30)}))
    (folder / "tokenizer.model").touch()
    code, lines = built("--checkpoint", str(folder), "-o", str(tmp_path / "out"))

    assert (code, len(lines)) == (0, 3)
    assert "note: " in lines[0]
    assert "has no tokenizer.json" in lines[0]
    assert lines[1].startswith("note: unknown settings of the checkpoint: warp, 'w0")
    assert lines[1].endswith(" and 11 more; the build does not regard them")
    with pytest.raises(UnsupportedModel, match="unknown settings of the checkpoint: warp, "):
        built("--strict", "--checkpoint", str(folder), "-o", str(tmp_path / "strict"))
    assert not (tmp_path / "strict").exists()
    assert build("llama", tmp_path / "bare", checkpoint=folder, target="host", weights=False).notes == (lines[1][6:],)


def test_a_checkpoint_that_is_known_builds_with_strict(tmp_path: Path, compiled_once: None) -> None:
    code, lines = built("--strict", "--checkpoint", str(saved(tmp_path / "model")), "-o", str(tmp_path / "out"))

    assert (code, [line[:5] for line in lines[:-1]]) == (0, ["note:"])


def test_unknown_settings_of_a_draft_are_noted(tmp_path: Path, compiled_once: None) -> None:
    from support.draft_reference import draft_config, draft_tensors
    from support.reference import Reference

    target = SharpCheckpoint("qwen3")
    model = save_model(tmp_path / "model", target)  # type: ignore[arg-type]
    config = draft_config(Reference(target.config, target.tensor), target_layer_ids=[0], warp=1, num_target_layers=2)
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "config.json").write_text(json.dumps(config))
    save_tensors(tmp_path / "draft" / WHOLE, {n: t.astype(np.float32) for n, t in draft_tensors(config, 3).items()})
    options: dict[str, Any] = {"checkpoint": model, "draft": tmp_path / "draft", "target": "host", "weights": False}

    assert building.build("qwen3", tmp_path / "out", **options).notes == (
        "unknown settings of the draft: warp; the build does not regard them",
    )
    with pytest.raises(UnsupportedModel, match="unknown settings of the draft: warp"):
        building.build("qwen3", tmp_path / "strict", strict=True, **options)


# GGUF


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

    with pytest.raises(CheckpointError, match=rf"is part 1 of 3, and {second.name}, {third.name} is not beside it"):
        GgufCheckpoint(first)


def test_parts_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    first, second, _ = split(tmp_path / "a")
    with pytest.raises(CheckpointError, match=rf"is part 2 of 3; give the first: .*{first.name}"):
        GgufCheckpoint(second)
    renamed = first.rename(first.with_name("model.gguf"))
    with pytest.raises(CheckpointError, match=r"is part 1 of 3, and is not called NAME-00001-of-00003\.gguf"):
        GgufCheckpoint(renamed)

    first, second, third = split(tmp_path / "b")
    second.write_bytes(third.read_bytes())
    with pytest.raises(CheckpointError, match=f"{second.name} is not part 2 of"):
        GgufCheckpoint(first)

    first, *_ = split(tmp_path / "c", **{"split.tensors.count": 99})
    with pytest.raises(CheckpointError, match=rf"have {len(LLAMA.all())} tensors, and should have 99"):
        GgufCheckpoint(first)

    first, second, _ = split(tmp_path / "d")
    more = {"general.architecture": "llama", "split.no": 1, "split.count": 3}
    write_gguf(second, more, {"token_embd.weight": np.ones(3, np.float32)})
    with pytest.raises(CheckpointError, match=r"has the tensor 'token_embd\.weight', which an earlier part has"):
        GgufCheckpoint(first)

    first, second, _ = split(tmp_path / "e")
    write_gguf(second, more | {"llama.rope.freq_base": 1.0}, {"more": np.ones(3, np.float32)})
    with pytest.raises(CheckpointError, match=r"has 'llama\.rope\.freq_base', which the first part has not"):
        GgufCheckpoint(first)

    for count in (2**30, "2", -1):
        with pytest.raises(CheckpointError, match=r"split\.count in .* is"):
            GgufCheckpoint(written(tmp_path / "x.gguf", split_count=count))


def test_one_part_alone_is_a_whole_file(tmp_path: Path) -> None:
    check_checkpoint(GgufCheckpoint(written(tmp_path / "m.gguf", split_count=1, split_no=0)))


def test_a_gguf_is_known_by_its_first_bytes(tmp_path: Path, compiled_once: None) -> None:
    path = written(tmp_path / "m.gguf").rename(tmp_path / "sha256-0123")
    build("llama", tmp_path / "out", checkpoint=path, target="host")

    assert (tmp_path / "out" / "weights.safetensors").exists()
    (tmp_path / "other.gguf").write_bytes(b"no GGUF at all")
    with pytest.raises(CheckpointError, match="it does not begin with GGUF"):
        build("llama", tmp_path / "more", checkpoint=tmp_path / "other.gguf", target="host")


def test_a_big_endian_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is in big-endian byte order; convert it"):
        GgufCheckpoint(written(tmp_path / "m.gguf", endian=GGUFEndian.BIG))


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
        (header(pair(b"k", 9, NESTED)), "nests lists too deeply"),
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
    script = "import sys; from pathlib import Path; from kern.models.gguf_file import read_gguf; import gguf\n"
    script += "print(len(read_gguf(Path(sys.argv[1])).metadata['k']))"

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))

    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "m.gguf"],
        capture_output=True, text=True, timeout=60, preexec_fn=bounded, env={"OPENBLAS_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout.strip()) == (0, str(count)), done.stderr


def test_a_fifo_is_no_gguf(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        build("llama", tmp_path / "out", checkpoint=tmp_path / "pipe", target="host")
