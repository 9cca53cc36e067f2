"""Building a folder: whole or not at all, never in the place of something else."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from kern.artifact.errors import UnknownTarget
from kern.building.atomic_folder import OutputError
from kern.building.build import Progress, build
from kern.building.options import BuildError, BuildOptions
from kern.checkpoints.checkpoint import CheckpointError
from kern.checkpoints.config import UnsupportedModel, preset
from kern.checkpoints.random_checkpoint import RandomCheckpoint
from kern.contracts.text import call_limits
from kern.kernels.compile_cuda import SOURCES
from kern.manifest.errors import KernError
from kern.verification.verify import verify
from support.hf_folder import save_model

pytestmark = pytest.mark.usefixtures("compiled_once")


def build_tiny(output: Path, *, force: bool = False, progress: Progress | None = None, **options: Any) -> None:
    options = {"random": True, "config": "tiny", **options}
    build(BuildOptions("qwen3", **options), output, force=force, progress=progress)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_is_valid_and_pins_its_kernels(tiny: Path) -> None:
    assert verify(tiny).ok
    manifest = json.loads((tiny / "manifest.json").read_text())
    steps = [step for kernel in manifest["kernels"].values() for step in kernel["impl"]["steps"]]
    pinned = {step["cubin"]: step["sha256"] for step in steps}

    assert pinned == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (tiny / "kernels").iterdir()}


def test_the_same_build_gives_the_same_bytes(tmp_path: Path) -> None:
    build_tiny(tmp_path / "a", seed=3)
    build_tiny(tmp_path / "b", seed=3)
    build_tiny(tmp_path / "c", seed=4)
    first, same, other = (contents(tmp_path / name) for name in "abc")

    assert first == same
    assert {name for name in first if first[name] != other[name]} == {"weights.safetensors"}


def test_weights_can_be_left_out(tmp_path: Path) -> None:
    build_tiny(tmp_path / "out", weights=False)

    assert set(contents(tmp_path / "out")) > {"manifest.json", "text.json"}
    assert not (tmp_path / "out" / "weights.safetensors").exists()


def test_text_json_counts_what_a_step_reads(tiny: Path) -> None:
    settings = json.loads((tiny / "text.json").read_text())
    c = preset("llama" if tiny.name == "llama" else "qwen3", "tiny")
    layer = c.qkv_size * c.hidden + c.q_size * c.hidden + 3 * c.ffn * c.hidden + 2 * c.hidden
    parameters = c.layers * (layer + 2 * c.head_dim * c.qk_norm) + c.hidden + c.vocabulary * c.hidden
    row = 0 if c.tied_embeddings else c.hidden

    assert settings["decode_bytes"] == {
        "fixed": 2 * (parameters + row) + 4 * c.head_dim,
        "per_context_token": 2 * 2 * c.layers * c.kv_heads * c.head_dim,
    }
    assert (settings["vocabulary"], settings["tokenizer_sha256"]) == (512, None)


def test_an_output_that_exists_asks_for_force(tmp_path: Path) -> None:
    build_tiny(tmp_path / "out")
    before = contents(tmp_path / "out")

    with pytest.raises(OutputError, match="exists") as caught:
        build_tiny(tmp_path / "out", seed=9)

    assert "--force" in caught.value.help
    assert contents(tmp_path / "out") == before
    build_tiny(tmp_path / "out", seed=9, force=True)
    assert contents(tmp_path / "out") != before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_force_replaces_artifact_folders_only(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letters.txt").write_text("dear")
    (tmp_path / "file").write_text("dear")
    (tmp_path / "link").symlink_to(tmp_path / "home")
    (tmp_path / "empty").mkdir()

    for name in ("home", "file", "link"):
        with pytest.raises(OutputError, match="not an artifact folder"):
            build_tiny(tmp_path / name, force=True)
    assert (tmp_path / "home" / "letters.txt").read_text() == "dear"
    build_tiny(tmp_path / "empty", force=True)
    assert verify(tmp_path / "empty").ok


def test_a_failing_build_leaves_the_old_folder_whole(tmp_path: Path) -> None:
    build_tiny(tmp_path / "out")
    before = contents(tmp_path / "out")
    model = save_model(tmp_path / "model", RandomCheckpoint(preset("qwen3", "tiny"), 1))
    (model / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes()[:-1])

    with pytest.raises(KernError, match=r"model\.safetensors"):
        build(BuildOptions("qwen3", checkpoint=model), tmp_path / "out", force=True)

    assert contents(tmp_path / "out") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out"]


def test_a_full_disk_leaves_the_old_folder_whole(tmp_path: Path) -> None:
    build_tiny(tmp_path / "out")
    before = contents(tmp_path / "out")
    # No file may grow beyond what the kernels need: writing fails in the midst of the weights.
    limit = max(len(content) for name, content in before.items() if name != "weights.safetensors") + 200_000
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, unlimited[1]))
    try:
        with pytest.raises(OutputError, match="cannot write") as caught:
            build_tiny(tmp_path / "out", seed=2, force=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)

    assert "bytes are free" in caught.value.help
    assert contents(tmp_path / "out") == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_location_that_cannot_hold_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(OutputError, match="cannot write"):
        build_tiny(tmp_path / "file" / "out")


@pytest.mark.parametrize(
    ("name", "options", "kind", "says"),
    [
        ("gpt5", {}, BuildError, "unknown model 'gpt5'; give one of: llama, qwen3, smollm2"),
        ("qwen3", {}, BuildError, "needs weights"),
        ("qwen3", {"random": True}, BuildError, "need sizes"),
        ("qwen3", {"random": True, "config": "huge"}, UnsupportedModel, "'huge'"),
        ("qwen3", {"random": True, "config": "tiny", "target": "tpu"}, UnknownTarget, "'tpu'"),
        ("qwen3", {"random": True, "config": "tiny", "target": "sm_75"}, UnknownTarget, "`sm_75`"),
        ("qwen3", {"random": True, "config": "tiny", "checkpoint": "x"}, BuildError, "both given"),
        ("qwen3", {"config": "tiny", "checkpoint": "x"}, BuildError, "its own config"),
        ("qwen3", {"checkpoint": "/no/such/folder"}, CheckpointError, "does not exist"),
        ("smollm2", {"random": True}, BuildError, "its own weights"),
        ("smollm2", {"checkpoint": "/no/such/folder"}, CheckpointError, "does not exist"),
        ("smollm2", {"seed": 0}, BuildError, "for random weights only"),
        ("qwen3", {"checkpoint": "x", "seed": 3}, BuildError, "for random weights only"),
        ("qwen3", {"random": True, "config": "tiny", "seed": -1}, BuildError, "seed -1 is below 0"),
        ("qwen3", {"random": True, "config": "tiny", "sequences": 0}, BuildError, "--sequences is 0"),
        ("qwen3", {"checkpoint": "x" * 300}, CheckpointError, "does not exist"),
        ("qwen3", {"checkpoint": __file__}, CheckpointError, "is not a checkpoint"),
    ],
)
def test_invalid_options_are_refused(
    tmp_path: Path, name: str, options: dict[str, Any], kind: type[KernError], says: str
) -> None:
    with pytest.raises(kind, match=says):
        build(BuildOptions(name, **options), tmp_path / "out")

    assert not any(tmp_path.iterdir())


def test_a_checkpoint_of_the_other_family_is_refused(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", RandomCheckpoint(preset("qwen3", "tiny"), 1))

    with pytest.raises(UnsupportedModel, match="family qwen3, not llama; build it as qwen3"):
        build(BuildOptions("llama", checkpoint=model), tmp_path / "out")


def test_smollm2_is_taken_from_a_hugging_face_folder_too(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", RandomCheckpoint(preset("llama", "tiny"), 1))
    build(BuildOptions("smollm2", checkpoint=model), tmp_path / "out")

    assert verify(tmp_path / "out").ok
    other = save_model(tmp_path / "other", RandomCheckpoint(preset("qwen3", "tiny"), 1))
    with pytest.raises(UnsupportedModel, match="family qwen3, not llama; build it as qwen3"):
        build(BuildOptions("smollm2", checkpoint=other), tmp_path / "more")


def test_ids_that_the_model_does_not_have_are_refused(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", RandomCheckpoint(preset("llama", "tiny"), 1))
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 512]}))

    with pytest.raises(CheckpointError, match="stop_ids has the id 512"):
        build(BuildOptions("llama", checkpoint=model), tmp_path / "out")


def test_an_unreadable_checkpoint_is_not_reported_as_an_error_of_the_output(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", RandomCheckpoint(preset("llama", "tiny"), 1))

    def lose_the_weights(stage: str, done: int, total: int) -> None:
        (model / "model.safetensors").unlink(missing_ok=True)

    with pytest.raises(CheckpointError, match=r"cannot read .*model\.safetensors"):
        build(BuildOptions("llama", checkpoint=model), tmp_path / "out", progress=lose_the_weights)


@pytest.mark.parametrize("atomic", [True, False])
def test_an_interrupt_at_any_rename_leaves_a_whole_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, atomic: bool
) -> None:
    build_tiny(tmp_path / "out", weights=False)
    before = contents(tmp_path / "out")
    rename, calls = os.rename, [0]

    def interrupted(source: Any, target: Any) -> None:
        calls[0] += 1
        if calls[0] == 2:
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "rename", interrupted)
    if atomic:
        build_tiny(tmp_path / "out", force=True)
        assert calls == [0]
    else:
        monkeypatch.setattr(ctypes, "CDLL", lambda name: object())  # a C library without renameat2
        with pytest.raises(KeyboardInterrupt):
            build_tiny(tmp_path / "out", force=True, target="host")
        assert contents(tmp_path / "out") == before
    assert verify(tmp_path / "out").ok == atomic
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("force", [False, True])
def test_a_build_into_the_same_folder_meanwhile_stays_whole(tmp_path: Path, force: bool) -> None:
    inner: list[dict[str, bytes]] = []

    def build_another(stage: str, done: int, total: int) -> None:
        if not inner:
            inner.append({})
            build_tiny(tmp_path / "out", seed=5)
            inner[0].update(contents(tmp_path / "out"))

    if force:
        build_tiny(tmp_path / "out", seed=6, force=True, progress=build_another)
        assert contents(tmp_path / "out") != inner[0]
    else:
        with pytest.raises(OutputError, match="exists"):
            build_tiny(tmp_path / "out", seed=6, progress=build_another)
        assert contents(tmp_path / "out") == inner[0]
    assert verify(tmp_path / "out").ok
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_appears_at_the_last_moment_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, rename = ctypes.CDLL, os.rename

    def appear() -> None:
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "manifest.json").write_text("another's")

    def rename_late(source: Any, target: Any) -> None:
        appear()
        rename(source, target)

    def exchange_late(*names: Any, **options: Any) -> Any:
        appear()
        return library(*names, **options)

    monkeypatch.setattr(os, "rename", rename_late)
    monkeypatch.setattr(ctypes, "CDLL", exchange_late)
    with pytest.raises(OutputError, match="cannot write"):
        build_tiny(tmp_path / "out", target="host")

    assert contents(tmp_path / "out") == {"manifest.json": b"another's"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_output_that_cannot_be_looked_at_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write"):
        build_tiny(tmp_path / ("x" * 300))
    with pytest.raises(OutputError, match="cannot write"):
        build_tiny(tmp_path / ("x" * 300) / "out", force=True)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("chunk", "8", "chunk is '8', of type str; give a value of type int"),
        ("chunk", True, "chunk is True, of type bool"),
        ("sequences", 2.0, r"sequences is 2\.0, of type float"),
        ("seed", "1", r"seed is '1', of type str; give a value of type int \| None"),
        ("target", None, "target is None, of type NoneType"),
        ("strict", "no", "strict is 'no', of type str; give a value of type bool"),
        ("checkpoint", 3, "checkpoint is 3, of type int"),
    ],
)
def test_an_option_of_another_type_is_refused(tmp_path: Path, name: str, value: Any, says: str) -> None:
    options: dict[str, Any] = {"random": True, "config": "tiny", "target": "host", name: value}
    with pytest.raises(BuildError, match=f"^{says}"):
        build(BuildOptions("llama", **options), tmp_path / "out")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "on_gpu", "on_host"),
    [
        ({}, 64, 8),
        ({"chunk": 16}, 16, 8),
        ({"chunk": 1}, 1, 1),
        ({"sequences": 3}, 3, 3),
        ({"capture": "dump"}, 1, 1),
    ],
)
def test_sequences_of_a_call_where_no_number_is_given(options: dict[str, Any], on_gpu: int, on_host: int) -> None:
    built = BuildOptions("qwen3", random=True, config="tiny", **options)

    assert built.limits(host=False).sequences == on_gpu
    assert built.limits(host=True).sequences == on_host


@pytest.mark.parametrize(("chunk", "sequences"), [(512, 8), (64, 8), (63, 7), (8, 1)])
def test_sequences_of_a_call_with_a_draft_are_those_of_a_round(chunk: int, sequences: int) -> None:
    built = BuildOptions("qwen3", random=True, config="tiny", draft="random", chunk=chunk)

    for host in (False, True):
        assert built.limits(host=host, round_rows=8).sequences == sequences


@pytest.mark.parametrize(("target", "sequences"), [("host", 8), ("x86-64-v3", 8), ("sm_90a", 64)])
def test_the_target_decides_how_many_sequences_a_folder_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, sequences: int
) -> None:
    if target.startswith("sm_"):
        pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")
    empty = {f"{source.stem}.cubin": b"" for source in SOURCES.glob("*.cu")}
    monkeypatch.setattr("kern.models.kernel_set.compile_cuda_modules", lambda plan: empty)
    built = build(BuildOptions("llama", random=True, config="tiny", target=target, weights=False), tmp_path / "out")

    assert call_limits(built.manifest)["sequences"] == sequences
