"""The manifests of a target with its draft: valid for every known shape, and refused where they are broken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from kern.building.build import build
from kern.building.options import BuildOptions
from kern.checkpoints.config import UnsupportedModel, preset
from kern.checkpoints.random_checkpoint import RandomCheckpoint
from kern.contracts.text import ROUND, WIDE
from kern.kernels.cuda_library import cuda_kernels
from kern.kernels.cuda_plan import CudaPlan
from kern.kernels.cuda_sizes import Round
from kern.kernels.host_library import host_kernels
from kern.kernels.interfaces import INTERFACES
from kern.manifest.reading import read
from kern.manifest.types import BufferArg, Dispatch, Manifest, StateArg
from kern.manifest.writing import write
from kern.models.buffers import Limits
from kern.models.kernel_set import cuda_sizes
from kern.models.speculation.draft import open_draft
from kern.models.transformer import build_manifest
from kern.verification.verify import verify
from kern.verifier import check
from models.test_transformer import CONFIGS

SPECULATION = (*ROUND, "begin_spec", "prefill")
DTYPES = {"i64": "i32", "i32": "i64", "f32": "bf16", "bf16": "f32"}


@cache
def manifest_of(name: str, target: str, limits: Limits | None = None) -> Manifest:
    config, hashes, limits = CONFIGS[name], defaultdict[str, str](lambda: "0" * 64), limits or Limits()
    draft = open_draft("random", RandomCheckpoint(config, 0), seed=0, taps_before=False)
    if target == "host":
        kernels = host_kernels(hashes, q_heads=config.heads, kv_heads=config.kv_heads)
    else:
        round = Round(draft.config.rows, draft.config.transformer.ffn, draft.config.rank)
        plan = CudaPlan(target, cuda_sizes(config, limits), round=round)
        kernels = cuda_kernels(plan, hashes)
    return build_manifest(config, kernels, model="test", limits=limits, draft=draft)


@pytest.mark.parametrize("sequences", [1, 8])
@pytest.mark.parametrize("target", ["host", "sm_90a"])
@pytest.mark.parametrize("name", CONFIGS)
def test_every_known_shape_gives_a_valid_manifest(name: str, target: str, sequences: int) -> None:
    manifest = manifest_of(name, target, Limits(sequences=sequences))

    assert check(manifest) == ()
    assert read(write(manifest).encode()).manifest == manifest


def test_without_a_draft_nothing_changes() -> None:
    config = CONFIGS["llama tiny"]
    kernels = host_kernels(defaultdict(lambda: "0" * 64), q_heads=config.heads, kv_heads=config.kv_heads)
    plain, speculative = build_manifest(config, kernels, model="test"), manifest_of("llama tiny", "host")

    assert set(plain.programs) == {"prefill", "begin", "decode", "step", "score", "nll"}
    for name in ("begin", "decode", "step", "score", "nll"):
        assert plain.programs[name] == speculative.programs[name]


def test_a_draft_serves_up_to_eight_sequences() -> None:
    with pytest.raises(UnsupportedModel, match="up to 8 sequences at once, not 9"):
        manifest_of("llama tiny", "host", Limits(sequences=9))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_round_of_one_sequence_is_the_same_whatever_the_folder_is_for(name: str) -> None:
    one, eight = (manifest_of(name, "sm_90a", Limits(sequences=sequences)) for sequences in (1, 8))
    alone, many = set(one.programs), set(eight.programs)

    assert many - alone == {program + WIDE for program in ROUND if program != "accept"}
    for program in ROUND:
        assert one.programs[program].dispatches == eight.programs[program].dispatches
    assert {name: one.kernels[name] for name in one.kernels if name.endswith(("_rows", "_full"))} == {
        name: eight.kernels[name] for name in one.kernels if name.endswith(("_rows", "_full"))
    }


@pytest.mark.parametrize("name", CONFIGS)
def test_products_of_many_rows_are_used_where_there_are_any(name: str) -> None:
    config, limits = CONFIGS[name], Limits(sequences=8)
    draft = open_draft("random", RandomCheckpoint(config, 0), seed=0, taps_before=False)
    round = Round(draft.config.rows, draft.config.transformer.ffn, draft.config.rank)
    kernels = cuda_kernels(CudaPlan("sm_90a", cuda_sizes(config, limits), round=round), defaultdict(lambda: "0" * 64))
    wide = {f"{each}{WIDE}": kernels[each] for each in kernels if f"{each}{WIDE}" in INTERFACES and "rows" not in each}
    manifest = build_manifest(config, kernels | wide, model="test", limits=limits, draft=draft)

    assert check(manifest) == ()
    for program in ("draft_wide", "verify_wide"):
        used = {dispatch.kernel for dispatch in manifest.programs[program].dispatches}
        assert wide.keys() <= used
        assert not {"rms_matmul_rows", "residual_matmul_f32", "add_rms_norm"} & used
    assert check(manifest_of(name, "sm_90a", limits)) == ()
    plain = {dispatch.kernel for dispatch in manifest_of(name, "sm_90a", limits).programs["verify_wide"].dispatches}
    assert {"matmul", "add_rms_norm"} <= plain


def test_a_draft_of_four_billion_parameters_has_the_published_size() -> None:
    manifest = manifest_of("qwen3 qwen3-4b", "sm_90a")
    shapes = {name: b.shape for name, b in manifest.buffers.items() if name.startswith("draft.")}
    elements = sum(shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in shapes.values())  # type: ignore[operator]

    assert elements == 615_221_249 - 2_817  # what is published, but for the confidence head
    assert manifest.states["draft_kv"].bytes_per_token == 20_480


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_folder_for_a_gpu_is_valid_with_its_files(tmp_path: Path, family: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")
    build(BuildOptions(family, random=True, config="tiny", target="sm_90a", draft="random"), tmp_path / "out")

    assert verify(tmp_path / "out", "sm_90a").ok


# What the verifier refuses


def carries(manifest: Manifest) -> list[str]:
    return [name for name, buffer in manifest.buffers.items() if buffer.class_ == "carry"]


TINY = manifest_of("llama tiny", "host")


def accesses(manifest: Manifest, dispatch: Dispatch) -> Iterator[tuple[str, bool, bool]]:
    """Buffer or state, whether it is read, whether it is written; for each pointer."""
    for param, arg in zip(manifest.kernels[dispatch.kernel].params, dispatch.args, strict=True):
        if isinstance(arg, BufferArg | StateArg):
            name = arg.buf if isinstance(arg, BufferArg) else arg.state
            yield name, param.direction != "out", param.direction != "in"


def with_dispatches(manifest: Manifest, program: str, dispatches: list[Dispatch]) -> Manifest:
    changed = manifest.programs[program].model_copy(update={"dispatches": tuple(dispatches)})
    return manifest.model_copy(update={"programs": {**manifest.programs, program: changed}})


@pytest.mark.parametrize("carry", carries(TINY))
def test_a_carry_without_any_writer_is_refused(carry: str) -> None:
    kept = {
        name: tuple(d for d in p.dispatches if not any(n == carry and w for n, _, w in accesses(TINY, d)))
        for name, p in TINY.programs.items()
    }
    programs = {n: TINY.programs[n].model_copy(update={"dispatches": left}) for n, left in kept.items() if left}
    found = check(TINY.model_copy(update={"programs": programs}))

    assert [d.code for d in found if d.path == ("buffers", carry)] == ["K0805"]


@pytest.mark.parametrize("carry", carries(TINY))
def test_a_retyped_carry_is_refused(carry: str) -> None:
    buffer = TINY.buffers[carry]
    retyped = buffer.model_copy(update={"dtype": DTYPES[buffer.dtype]})
    found = check(TINY.model_copy(update={"buffers": {**TINY.buffers, carry: retyped}}))

    assert "K0707" in {d.code for d in found}


@pytest.mark.parametrize("carry", carries(TINY))
def test_an_offset_past_a_carrys_end_is_refused_wherever_it_is_used(carry: str) -> None:
    end = (
        {"i64": 8, "i32": 4, "f32": 4, "bf16": 2}[TINY.buffers[carry].dtype] * 512 * 128
    )  # past the largest, `features`
    used = 0
    for name, program in TINY.programs.items():
        for place, dispatch in enumerate(program.dispatches):
            for i, arg in enumerate(dispatch.args):
                if isinstance(arg, BufferArg) and arg.buf == carry:
                    args = (*dispatch.args[:i], BufferArg(buf=carry, offset=end), *dispatch.args[i + 1 :])
                    dispatches = list(program.dispatches)
                    dispatches[place] = dispatch.model_copy(update={"args": args})
                    assert "K0714" in {d.code for d in check(with_dispatches(TINY, name, dispatches))}
                    used += 1
    assert used


def reads_unwritten(manifest: Manifest, dispatches: list[Dispatch]) -> bool:
    """Whether a workspace is read that nothing wrote before, as a run of the program would find."""
    written: set[str] = set()
    for dispatch in dispatches:
        touched = list(accesses(manifest, dispatch))
        for name, reads, _ in touched:
            buffer = manifest.buffers.get(name)
            if reads and buffer is not None and buffer.class_ == "workspace" and name not in written:
                return True
        written |= {name for name, _, writes in touched if writes}
    return False


def reorderings(dispatches: list[Dispatch]) -> Iterator[tuple[int, int, list[Dispatch]]]:
    """Each dispatch put before the one ahead of it, and before all: from where, to where, the new order."""
    for i in range(1, len(dispatches)):
        for to in {i - 1, 0}:
            rest = dispatches[:i] + dispatches[i + 1 :]
            yield i, to, [*rest[:to], dispatches[i], *rest[to:]]


UNSEEN = {
    "carry": "what a carry held before the program counts as written: a round's tokens, its features",
    "state": "a state is opaque: keys and values read before they are written are those of before",
    "workspace": "an earlier layer, or an earlier draft of the chain, wrote the workspace: its old value is read",
}
"""What a reordering may break unseen: the class of what two dispatches that changed places share, and why."""


def test_every_reordering_that_reads_an_unwritten_workspace_is_refused() -> None:
    unseen: set[str] = set()
    refused = 0
    for program in SPECULATION:
        dispatches = list(TINY.programs[program].dispatches)
        for i, to, changed in reorderings(dispatches):
            broken = reads_unwritten(TINY, changed)
            found = {d.code for d in check(with_dispatches(TINY, program, changed))}
            assert found == ({"K0801"} if broken else set()), f"{program}: {dispatches[i].label} put before {to}"
            refused += broken
            if not broken:
                unseen |= {_class(name) for name in _conflicts(dispatches[i], dispatches[to:i])}
    assert refused > 20
    assert unseen == set(UNSEEN)


def _conflicts(moved: Dispatch, passed: list[Dispatch]) -> Iterator[str]:
    """What the moved dispatch and one that it passed share, where at least one writes it."""
    mine = {name: writes for name, _, writes in accesses(TINY, moved)}
    for dispatch in passed:
        for name, _, writes in accesses(TINY, dispatch):
            if name in mine and (writes or mine[name]):
                yield name


def _class(name: str) -> str:
    return TINY.buffers[name].class_ if name in TINY.buffers else "state"


def test_taps_before_the_first_layer_do_not_exist() -> None:
    with pytest.raises(UnsupportedModel, match="taps layer -1"):
        open_draft("random", RandomCheckpoint(replace(preset("llama", "tiny"), layers=2), 0), seed=0, taps_before=True)
