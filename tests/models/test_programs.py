"""The programs of a manifest for a GPU: which sizes each takes, and which kernels it is made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import pytest

from kern.checkpoints.config import Family, preset
from kern.kernels.cuda_library import cuda_kernels
from kern.kernels.cuda_plan import CudaPlan
from kern.manifest.references import symbol_range
from kern.manifest.types import BufferArg, Kernel, Manifest
from kern.models.buffers import Limits
from kern.models.kernel_set import cuda_sizes
from kern.models.transformer import build_manifest
from kern.runtime.memory.planner import plan
from kern.verifier import check, verified

PRODUCTS = ("rms_matmul", "rms_matmul_f32", "rms_gate_up", "output_matmul_add", "down_matmul_add")


def entries(family: Family, sequences: int, wide: bool) -> dict[str, Kernel]:
    """The entries for sm_90a; `wide`: products for many rows among them, implemented by whatever."""
    config = preset(family, "tiny")
    sizes = cuda_sizes(config, Limits(sequences=sequences))
    kernels = cuda_kernels(CudaPlan("sm_90a", sizes), defaultdict(lambda: "0" * 64))
    few = {name: kernel for name, kernel in kernels.items() if not name.endswith("_wide")}
    return few | ({f"{name}_wide": few[name] for name in PRODUCTS} if wide else {})


def manifest_of(family: Family, sequences: int, *, wide: bool = False) -> Manifest:
    kernels: Mapping[str, Kernel] = entries(family, sequences, wide)
    return build_manifest(preset(family, "tiny"), kernels, model="test", limits=Limits(sequences=sequences))


def rows(manifest: Manifest, program: str) -> tuple[int, int]:
    """The most tokens and sequences of a call."""
    return symbol_range(manifest, program, "tokens")[1], symbol_range(manifest, program, "seqs")[1]


def kernels_of(manifest: Manifest, program: str) -> list[str]:
    return [dispatch.kernel for dispatch in manifest.programs[program].dispatches]


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("sequences", [1, 8, 9, 64, 200])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_every_number_of_sequences_gives_a_valid_manifest(family: Family, sequences: int, wide: bool) -> None:
    assert check(manifest_of(family, sequences, wide=wide)) == ()


def test_sizes_of_the_programs() -> None:
    manifest = manifest_of("qwen3", 24)

    assert {name: rows(manifest, name) for name in manifest.programs} == {
        "prefill": (512, 24),
        "begin": (24, 24),
        "decode": (24, 24),
        "step": (512, 24),
        "score": (512, 24),
        "nll": (512, 64),
    }


def test_products_of_many_rows_have_a_program_of_their_own() -> None:
    manifest = manifest_of("qwen3", 24, wide=True)

    assert (rows(manifest, "decode"), rows(manifest, "decode_wide")) == ((8, 8), (24, 24))
    few, many = kernels_of(manifest, "decode"), kernels_of(manifest, "decode_wide")
    assert many == [f"{name}_wide" if name in PRODUCTS else name for name in few]
    assert {name.removesuffix("_wide") for name in many if name.endswith("_wide")} == set(PRODUCTS)


@pytest.mark.parametrize(("sequences", "wide"), [(1, True), (8, True), (64, False)])
def test_a_program_is_enough_where_there_are_few_rows_or_no_other_products(sequences: int, wide: bool) -> None:
    manifest = manifest_of("qwen3", sequences, wide=wide)

    assert "decode_wide" not in manifest.programs
    assert rows(manifest, "decode") == (sequences, sequences)


def test_a_step_of_one_row_lays_it_out_before_everything_else() -> None:
    layer = ["rms_matmul", "norm_append_attention", "output_matmul_add", "rms_gate_up", "down_matmul_add"]

    assert kernels_of(manifest_of("qwen3", 1), "decode") == [
        *("lay_rows", "embedding_weighted"),
        *layer * preset("qwen3", "tiny").layers,
        *("rms_matmul_f32", "argmax", "advance"),
    ]


def test_what_lasts_is_keyed_by_slot_and_the_rest_by_row() -> None:
    manifest = manifest_of("llama", 24)
    shapes = {name: buffer.shape for name, buffer in manifest.buffers.items() if buffer.class_ == "carry"}

    assert shapes == {
        "slot_token": (24,),
        "slot_position": (24,),
        "token_ring": (24, 64),
        "logits": (manifest.buffers["row_slots"].shape[0], 512),
        "scored": (manifest.buffers["token_ids"].shape[0], 128),
    }
    writers = {
        arg.buf: program
        for program in ("prefill", "score", "nll")
        for dispatch in manifest.programs[program].dispatches
        for param, arg in zip(manifest.kernels[dispatch.kernel].params, dispatch.args, strict=True)
        if isinstance(arg, BufferArg) and param.direction in ("out", "inout")
    }
    assert not writers.keys() & {"slot_token", "slot_position", "token_ring", "logits", "next_token"}


def test_logits_take_the_memory_of_as_many_rows_as_there_are_sequences() -> None:
    reserved = {n: plan(verified(manifest_of("llama", n))).sizes.buffers["logits"] for n in (1, 24)}

    assert reserved == {1: 512 * 4, 24: 24 * 512 * 4}
