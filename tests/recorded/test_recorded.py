"""A transformer on recorded kernels: what is read from the recording, and its layers run with stand-ins on the host."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kern.artifact.errors import BadModule, UnknownTarget
from kern.building.atomic_folder import OutputError
from kern.building.build import build
from kern.building.options import BuildOptions
from kern.checkpoints.config import PRESETS, TransformerConfig, UnsupportedModel
from kern.checkpoints.random_checkpoint import RandomCheckpoint
from kern.contracts.text import TextSettings
from kern.contracts.text_checks import check_batches, check_generation, check_scoring
from kern.engine import score
from kern.kernels.cuda_library import cuda_kernels
from kern.kernels.cuda_plan import CudaPlan
from kern.kernels.cuda_sizes import Sizes, UnsupportedSizes
from kern.manifest.errors import KernError
from kern.manifest.params import SCALAR_BYTES
from kern.manifest.reading import read
from kern.manifest.types import BufferArg, Manifest, StateArg
from kern.manifest.writing import write
from kern.mining import read_recording
from kern.mining.errors import ModuleMissing, RecordMissing
from kern.models import kernel_set
from kern.models.buffers import Limits
from kern.models.transformer import build_manifest
from kern.recorded.assumptions import Refuted
from kern.recorded.evidence import gather_evidence
from kern.recorded.kernel_set import entries, recorded_kernel_set
from kern.recorded.library import recorded_kernels
from kern.recorded.modules import WrongTarget
from kern.recorded.vllm.engine import VLLM
from kern.runtime.loading import load
from kern.text import Tokenizer
from kern.verification.verify import verify
from kern.verifier import check
from support import host_driven
from support.batch import Batch, Text, assert_as_alone
from support.greedy import assert_greedy, assert_same
from support.nvrtc import cubin
from support.recordings import Recorder
from support.reference import Reference
from support.tiny import SEED, prompt
from support.vllm_host import build_for_host, host_module
from support.vllm_recording import FILES, SILU, Launched, module, record

TINY = PRESETS["qwen3"]["tiny"]


@pytest.fixture(scope="module", autouse=True)
def compiled_once() -> Iterator[None]:
    """Our own kernels are compiled once for all builds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_set, "compile_cuda_modules", cache(kernel_set.compile_cuda_modules))
        yield


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of the tiny model."""
    return record(tmp_path_factory.mktemp("recording") / "dump", TINY)


@pytest.fixture(scope="module")
def built(dump: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifact of that recording."""
    folder = tmp_path_factory.mktemp("recorded") / "qwen3"
    build_tiny(dump, folder)
    return folder


def build_tiny(dump: Path, folder: Path, *, force: bool = False, **options: Any) -> None:
    options = {"random": True, "config": "tiny", "seed": SEED, "capture": dump, **options}
    build(BuildOptions("qwen3", **options), folder, force=force)


def manifest_of(folder: Path) -> Manifest:
    manifest = read((folder / "manifest.json").read_bytes()).manifest
    assert manifest is not None
    return manifest


def steps_of(folder: Path) -> dict[str, Any]:
    """The recorded steps by symbol and entry."""
    kernels = manifest_of(folder).kernels
    return {
        f"{name}/{step.symbol}": step
        for name, kernel in kernels.items()
        for step in kernel.impl.steps
        if step.cubin is not None and step.cubin.startswith("vllm-")
    }


def literals_of(folder: Path, entry: str, step: int = 0) -> list[Any]:
    """What a step is given: a literal's value, or None for what is forwarded or scratch."""
    return [getattr(arg, "value", None) for arg in manifest_of(folder).kernels[entry].impl.steps[step].args]


def test_the_artifact_is_valid_and_keeps_the_text_contract(built: Path) -> None:
    assert verify(built, "sm_90").diagnostics == ()
    settings = TextSettings.model_validate_json((built / "text.json").read_text())
    check_generation(manifest_of(built), settings)
    check_scoring(manifest_of(built), settings)
    assert check_batches(manifest_of(built), settings) == 1
    assert set(manifest_of(built).programs) == {"prefill", "begin", "decode", "step", "score", "nll"}


def test_every_step_is_pinned_to_the_module_that_was_recorded(built: Path, dump: Path) -> None:
    recorded = {path.stem for path in dump.glob("*/modules/*.cubin")}
    steps = steps_of(built).values()

    assert len(steps) == 10
    for step in steps:
        assert step.sha256 in recorded
        assert hashlib.sha256((built / "kernels" / step.cubin).read_bytes()).hexdigest() == step.sha256
    for entry, name in (("prefill", "attention of several"), ("decode", "attention of one")):
        step = steps_of(built)[f"attention_{entry}_unfused/kernel_unified_attention"]
        assert step.sha256 == hashlib.sha256(module(name)).hexdigest()


def test_a_steps_products_are_our_own_and_a_chunks_are_cublaslts(built: Path) -> None:
    manifest = manifest_of(built)
    used = {
        name: {manifest.kernels[d.kernel].impl.steps[0].symbol for d in program.dispatches if "matmul" in d.kernel}
        for name, program in manifest.programs.items()
    }

    assert used["prefill"] == {"extern:cublaslt_bf16_tn"}
    assert used["score"] == {"extern:cublaslt_bf16_tn"}
    assert used["step"] == {"extern:cublaslt_bf16_tn", "extern:cublaslt_bf16_tn_f32"}
    assert used["nll"] == {"extern:cublaslt_bf16_tn_f32"}
    assert used["decode"] == {"hidden_matmul", "output_matmul", "down_matmul", "hidden_matmul_f32"}


def test_strides_that_a_single_token_hides_come_from_a_pass_of_several(built: Path) -> None:
    assert TINY.qkv_size == 512
    assert literals_of(built, "q_norm_unfused")[3] == 512  # from token to token in qkv
    assert literals_of(built, "cache_write_unfused")[7:9] == [128, 512]  # keys have their own rows, values do not


def test_addresses_that_no_instance_follows_are_null(built: Path) -> None:
    given = literals_of(built, "attention_decode_unfused")

    assert [given[at] for at in (0, 7, 8, 28, 29, 36, 37)] == [0] * 7  # the output of the other mode, scales, scratch
    assert given[25:28] == [None] * 3  # the parts


def test_one_pool_holds_all_layers(built: Path) -> None:
    manifest = manifest_of(built)
    writes = [d for d in manifest.programs["decode"].dispatches if d.kernel == "cache_write_unfused"]
    block = 2 * 16 * TINY.kv_size * 2
    places = [tuple(arg.offset for arg in d.args if isinstance(arg, StateArg)) for d in writes]

    assert places == [(layer * block, layer * block + block // 2) for layer in range(TINY.layers)]
    assert {getattr(d.args[5], "value", None) for d in writes} == {TINY.layers * block // 2}
    assert manifest.states["kv"].bytes_per_token * 16 == TINY.layers * block


def test_what_triton_may_have_taken_for_a_multiple_of_16_stays_one(built: Path) -> None:
    manifest = manifest_of(built)
    for name in ("cache_write_unfused", "attention_prefill_unfused", "attention_decode_unfused"):
        for number, step in enumerate(manifest.kernels[name].impl.steps):
            values = [value for value in literals_of(built, name, number) if isinstance(value, int)]
            assert all(value % 16 == 0 for value in values), step.symbol
    for program in manifest.programs.values():
        for dispatch in program.dispatches:
            for arg in dispatch.args:
                if isinstance(arg, BufferArg | StateArg):
                    assert arg.offset % 16 == 0
                elif SCALAR_BYTES.get(getattr(arg, "scalar", "u8")) == 8:
                    assert arg.value % 16 == 0  # page_stride


def heads_outside(launch: Launched) -> None:
    """In a block, heads are outside slots: what vLLM calls HND."""
    strides = {1: TINY.head_dim, 2: 16 * TINY.head_dim}
    if launch.part == "cache":
        launch.values |= {"page_stride": strides[1], "head_stride": strides[2]}
    if launch.part == "attention":
        launch.values |= {f"stride_{which}_cache_{at}": stride for which in "kv" for at, stride in strides.items()}


def test_the_layout_inside_a_block_is_the_recordings(tmp_path: Path) -> None:
    build_tiny(record(tmp_path / "dump", TINY, heads_outside), tmp_path / "out", weights=False)
    given = literals_of(tmp_path / "out", "cache_write_unfused")

    assert (given[10], given[13]) == (16 * TINY.head_dim, TINY.head_dim)
    assert literals_of(tmp_path / "out", "attention_prefill_unfused")[18:20] == [TINY.head_dim, 16 * TINY.head_dim]


@st.composite
def shapes(draw: st.DrawFn) -> TransformerConfig:
    """Sizes of a model that the kernels take."""
    kv_heads, group = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 3, 4, 5, 8, 16]))
    return replace(
        TINY,
        layers=draw(st.integers(1, 3)),
        hidden=32 * draw(st.integers(5, 40)),
        ffn=32 * draw(st.integers(1, 40)),
        heads=kv_heads * group,
        kv_heads=kv_heads,
        head_dim=draw(st.sampled_from([64, 128])),
        tied_embeddings=draw(st.booleans()),
    )


@settings(max_examples=12, deadline=None)
@given(config=shapes(), several=st.lists(st.integers(2, 40), min_size=1, max_size=2))
def test_a_recording_of_any_shape_gives_a_valid_manifest(config: TransformerConfig, several: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (process,) = record(Path(folder, "dump"), config, prompts=several).iterdir()
        evidence = gather_evidence(VLLM, read_recording(process).launches, config)
    sizes = Sizes(config.hidden, config.ffn, config.heads, config.kv_heads, config.head_dim)
    own = cuda_kernels(CudaPlan("sm_90a", sizes), defaultdict(lambda: "0" * 64))
    kernels = entries(own, recorded_kernels(evidence, config))

    assert check(build_manifest(config, kernels, model="any", block=evidence.block)) == ()


def test_our_own_kernel_takes_a_recorded_ones_place_in_one_impl_block(built: Path, dump: Path, tmp_path: Path) -> None:
    build_tiny(dump, tmp_path / "swapped")
    build(BuildOptions("qwen3", random=True, config="tiny", target="sm_90a", weights=False), tmp_path / "own")
    manifest, own = manifest_of(tmp_path / "swapped"), manifest_of(tmp_path / "own")
    assert manifest.kernels["silu_mul"].params == own.kernels["silu_mul"].params
    kernels = {**manifest.kernels, "silu_mul": own.kernels["silu_mul"]}
    (tmp_path / "swapped" / "manifest.json").write_text(write(manifest.model_copy(update={"kernels": kernels})))

    assert verify(tmp_path / "swapped", "sm_90a").ok
    before, after = ((folder / "manifest.json").read_text() for folder in (built, tmp_path / "swapped"))
    assert SILU in before
    assert SILU not in after


def test_the_example_puts_a_kernel_in_a_recorded_ones_place(built: Path, tmp_path: Path) -> None:
    done = run_example(built, tmp_path / "new")
    before, after = ((folder / "manifest.json").read_text().splitlines() for folder in (built, tmp_path / "new"))

    assert done.returncode == 0, done.stderr
    assert "add_rms_norm_bf16" in done.stdout
    assert verify(tmp_path / "new", "sm_90").diagnostics == ()
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 4
    assert verify(built, "sm_90").ok
    refusals: list[tuple[tuple[Path, ...], str]] = [
        ((), "usage"),
        ((built, tmp_path / "new"), "exists"),
        ((tmp_path, tmp_path / "x"), "mani"),
        ((built, built / "inside"), "is inside"),
        (
            (shutil.copytree(built, tmp_path / "less", ignore=shutil.ignore_patterns("vllm-*")), tmp_path / "x"),
            "No such",
        ),
    ]
    for arguments, word in refusals:
        done = run_example(*arguments)
        assert done.returncode == 1
        assert word in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "x").exists()


def run_example(*arguments: Path) -> subprocess.CompletedProcess[str]:
    script = Path(__file__).parents[2] / "examples" / "kernels-from-vllm" / "replace.py"
    return subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=False)


# Layers, on stand-ins for the host device that do what vLLM's sources say


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact built from a recording whose modules run on the host."""
    place = tmp_path_factory.mktemp("stand-in")
    record(place / "dump", TINY, images=lambda name: host_module(name, TINY))
    return build_for_host(place / "dump", place / "qwen3", TINY, SEED)


@cache
def reference() -> Reference:
    return Reference(TINY, cache(RandomCheckpoint(TINY, SEED).tensor))


def generate(folder: Path, ids: list[int], count: int, **options: Any) -> list[int]:
    with load(folder, capacity=256) as executable:
        generator = host_driven.generator(executable, Tokenizer.load(folder), **options)
        return [token.id for token in generator.generate(ids, max_tokens=count)]


@pytest.mark.parametrize("length", [1, 2, 16, 17, 70])
def test_the_reference_would_choose_the_same_tokens(stand_in: Path, length: int) -> None:
    ids = generate(stand_in, prompt(length, seed=length), 40)

    assert_greedy(reference(), prompt(length, seed=length), ids)


@pytest.mark.parametrize("chunk", [1, 7, 44])
def test_the_chunk_of_the_prefill_does_not_matter(stand_in: Path, chunk: int) -> None:
    whole, chunked = generate(stand_in, prompt(45), 24), generate(stand_in, prompt(45), 24, chunk=chunk)

    assert_same(reference(), prompt(45), whole, chunked)


def test_tokens_that_stay_on_the_device_are_those_that_pass_the_host(stand_in: Path) -> None:
    assert generate(stand_in, prompt(45), 40) == generate(stand_in, prompt(45), 40, host=True)


def test_a_step_takes_the_end_of_a_prompt_and_goes_on_from_its_own_token(stand_in: Path) -> None:
    text = Text(prompt(45), 0, [3, 0, 2, 1])
    with load(stand_in, capacity=64) as executable:
        batch = Batch(executable, 4)
        batch.ragged("prefill", [(text, 20)])
        batch.ragged("step", [(text, 25)])
        for _ in range(4):
            batch.ragged("step", [(text, 1)])
            batch.decode([text])

    assert len(text.chosen) == 9
    assert_as_alone(text, reference().logits, within=0.03, label="recorded")


def test_the_score_is_the_references(stand_in: Path) -> None:
    with load(stand_in, capacity=256) as executable:
        found = score(executable, Tokenizer.load(stand_in).settings, prompt(150)).nll

    assert found == pytest.approx(reference().nll(prompt(150)), abs=0.02)


# What cannot be built


def refused(kind: type[KernError], says: str, folder: Path, dump: Path, **options: Any) -> None:
    with pytest.raises(kind, match=says):
        build_tiny(dump, folder, **options)
    assert not folder.exists()


def test_what_a_recording_cannot_serve_is_refused(dump: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    refused(UnsupportedModel, "one", out, dump, sequences=2)
    refused(UnknownTarget, "host", out, dump, target="host")
    refused(UnknownTarget, "host", out, dump, target="x86-64-v3")
    refused(RecordMissing, "nowhere", out, tmp_path / "nowhere")
    with pytest.raises(UnsupportedModel, match="qwen3, not llama"):
        build(BuildOptions("llama", random=True, config="tiny", capture=dump), out)
    out.mkdir()
    (out / "letters.txt").touch()
    with pytest.raises(OutputError, match="not an artifact folder"):
        build_tiny(dump, out, force=True)


def test_modules_that_the_target_does_not_run_are_refused(dump: Path, tmp_path: Path) -> None:
    refused(WrongTarget, r"sm_90a, sm_90, .* sm_100", tmp_path / "out", dump, target="sm_100")
    mixed = record(tmp_path / "dump", TINY, images=lambda name: module(name, "sm_80" if name == "silu" else None))
    refused(WrongTarget, "sm_90a, sm_90, sm_80, .* one machine", tmp_path / "out", mixed)


def test_a_module_that_is_not_the_recorded_one_is_refused(tmp_path: Path) -> None:
    dump = record(tmp_path / "dump", TINY)
    (path,) = dump.glob(f"*/modules/{hashlib.sha256(module('silu')).hexdigest()}.cubin")
    path.write_bytes(path.read_bytes() + b"\0")
    refused(ModuleMissing, "not those that were recorded", tmp_path / "out", dump)
    path.unlink()
    refused(ModuleMissing, path.name, tmp_path / "out", dump)


def test_a_module_without_what_was_launched_from_it_is_refused(tmp_path: Path) -> None:
    def other(name: str) -> bytes:
        return module("reduce" if name == "cache" else name)

    refused(Refuted, "has no reshape_and", tmp_path / "out", record(tmp_path / "other", TINY, images=other))

    for number, image in enumerate((b"", b"no code", Path("/proc/self/exe").read_bytes(), module("silu")[:-100])):
        images = {**{name: module(name) for name in FILES}, "silu": image}
        broken = record(tmp_path / str(number), TINY, images=images.__getitem__)
        refused(BadModule, "the recorded module vllm-.* cannot be used", tmp_path / "out", broken)


def test_parameters_that_the_module_does_not_take_are_refused(tmp_path: Path) -> None:
    symbol, taken = "reduce_segments", cubin('extern "C" __global__ void reduce_segments(int a) {}', "sm_90a")
    dump = record(tmp_path / "dump", TINY, images=lambda name: taken if name == "reduce" else module(name))
    refused(Refuted, f"{symbol} in the recorded module .* takes 0:4; expected: 0:8 8:8", tmp_path / "out", dump)


def test_of_several_processes_the_one_that_launched_the_kernels_is_taken(tmp_path: Path, built: Path) -> None:
    dump = record(tmp_path / "dump", TINY)
    (dump / "pid-7").mkdir()
    (dump / "pid-7" / "recorder.log").write_text("no CUPTI")
    busy = Recorder(dump, pid=8)
    kernel = busy.kernel("busy", None, [8])
    for _ in range(2000):
        busy.launch(kernel, [bytes(8)])
    busy.end()

    build_tiny(dump, tmp_path / "out", weights=False)

    assert manifest_of(tmp_path / "out") == manifest_of(built)


def test_sizes_that_the_kernels_do_not_take_are_refused(dump: Path, tmp_path: Path) -> None:
    for config in (replace(TINY, heads=34), replace(TINY, head_dim=32)):
        with pytest.raises(UnsupportedSizes):
            recorded_kernel_set(dump, "auto", config, Limits())
