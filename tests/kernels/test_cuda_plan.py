"""A plan and the CUDA sources agree, for any sizes, on the shared memory of each launch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kern.artifact.abi_check import errors
from kern.artifact.modules import describe
from kern.kernels.compile_cuda import compile_cuda_source
from kern.kernels.cuda_library import cuda_kernels
from kern.kernels.cuda_plan import MANY_ROWS_MODULE, CudaPlan
from kern.kernels.cuda_sizes import Round, Sizes, UnsupportedSizes
from kern.kernels.cuda_wide import WIDE_ROWS

pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")

NO_HASH = "0" * 64
TARGETS = ["sm_80", "sm_87", "sm_89", "sm_90a", "sm_100", "sm_120"]
PRODUCTS = r"""
#if MATVEC_BULK
#include "split_depth.cuh"
template <int K, int PARTS, int SPLIT>
using Weights = BulkStream<K, PARTS, SPLIT>;
#else
#include "operand.cuh"
template <int K, int PARTS, int SPLIT>
using Weights = Stream<K, PARTS, SPLIT>;
#endif

template <int K, int PARTS, int SPLIT, int BYTES>
struct AsPlanned {
    using Memory = typename Weights<K, PARTS, SPLIT>::Memory;
    static_assert(sizeof(Memory) + Memory::X_BYTES == BYTES, "what the launch asks for");
    static_assert(sizeof(Weights<K, PARTS, SPLIT>) + sizeof(Operand<Weights<K, PARTS, SPLIT>, bf16>) > 0, "can be had");
};

static_assert(sizeof(AsPlanned<HIDDEN, 1, 1, RMS_MATMUL_BYTES>) > 0);
static_assert(sizeof(AsPlanned<HIDDEN, 2, 1, RMS_GATE_UP_BYTES>) > 0);
static_assert(sizeof(AsPlanned<Q_SIZE, 1, 1, OUTPUT_MATMUL_ADD_BYTES>) > 0);
static_assert(sizeof(AsPlanned<FFN, 1, FFN_SPLIT, DOWN_MATMUL_ADD_BYTES>) > 0);
"""
ATTENTION = r"""
#include "attention_split.cuh"
static_assert(sizeof(SplitMemory<NEW_TOKENS>) == SPLIT_BYTES, "what the launch asks for");
static_assert(SPLIT_THREADS == LAUNCHED && SPLITS == LAUNCHED_SPLITS, "as many as the launch has");
"""
PREFILL = r"""
#include "attention_prefill.cu"
static_assert(sizeof(PrefillMemory) == CHUNK_BYTES, "what the launch asks for");
"""
MARKOV = r"""
#include "markov.cu"
static_assert(SLOTS * PIECES * sizeof(uint4) == RING_BYTES, "what the launch asks for");
"""
WIDE = r"""
#include "wide.cuh"
static_assert(sizeof(WideMemory) == WIDE_BYTES, "what the launch asks for");
static_assert(WIDE_ROWS == LAUNCHED_ROWS && WIDE_THREADS == LAUNCHED, "as many as the launch has");
template <class D>
constexpr bool FITS = sizeof(Wide<D, 16>) + sizeof(Wide<D, 32>) + sizeof(Wide<D, WIDE_ROWS>) > 0;
static_assert(FITS<Division<HIDDEN, WIDE_QKV_SPLIT, WIDE_QKV_ROWS, WIDE_QKV_ATOMS>>);
static_assert(FITS<Division<Q_SIZE, WIDE_OUTPUT_SPLIT, WIDE_OUTPUT_ROWS, WIDE_OUTPUT_ATOMS>>);
static_assert(FITS<Division<FFN, WIDE_DOWN_SPLIT, WIDE_DOWN_ROWS, WIDE_DOWN_ATOMS>>);
static_assert(FITS<Division<HIDDEN, 1, WIDE_GATE_UP_ROWS, WIDE_GATE_UP_ATOMS, true>>);
static_assert(FITS<Division<HIDDEN, 1, WIDE_LOGITS_ROWS, WIDE_LOGITS_ATOMS>>);
"""


RANKS = st.integers(1, 600)


@st.composite
def plans(draw: st.DrawFn, ranks: st.SearchStrategy[int] = RANKS) -> CudaPlan:
    """Any plan with a round: widths up to those of the largest models, and odd ones."""
    width = st.integers(1, 1700).map(lambda chunks: 32 * chunks)
    head_dim, kv_heads, group = draw(st.sampled_from([64, 128])), draw(st.integers(1, 16)), draw(st.integers(1, 16))
    sizes = Sizes(draw(width), draw(width), kv_heads * group, kv_heads, head_dim, draw(st.integers(1, 20)))
    round = Round(draw(st.integers(2, 32)), draw(width), draw(ranks))
    try:
        return CudaPlan(draw(st.sampled_from(TARGETS)), sizes, round=round)
    except UnsupportedSizes:
        assume(False)
        raise


def shared_mem(plan: CudaPlan) -> Mapping[str, int]:
    """Dynamic shared memory of each entry's first launch."""
    kernels = cuda_kernels(plan, defaultdict(lambda: NO_HASH))
    sizes = {name: kernel.impl.steps[0].shared_mem for name, kernel in kernels.items()}
    return {name: size for name, size in sizes.items() if isinstance(size, int)}


def products(plan: CudaPlan, suffix: str, differing: Mapping[str, int]) -> None:
    asked = shared_mem(plan)
    down = "down_matmul_add_draft" if "FFN" in differing else f"down_matmul_add{suffix}"
    names = {"rms_matmul": "", "rms_gate_up": "", "output_matmul_add": "", "down_matmul_add": down}
    macros = {f"{name.upper()}_BYTES": asked[entry or name + suffix] for name, entry in names.items()}
    compile_cuda_source(PRODUCTS, "products.cu", plan, {**differing, **macros})


@settings(max_examples=12, deadline=None)
@given(plans())
def test_shared_memory_of_a_steps_products(plan: CudaPlan) -> None:
    products(plan, "", {})


@settings(max_examples=12, deadline=None)
@given(plans())
def test_shared_memory_of_a_rounds_products(plan: CudaPlan) -> None:
    for source, differing in plan.variants.values():
        if source == "matvec":
            products(plan, "_rows", differing)


@settings(max_examples=12, deadline=None)
@given(plans())
def test_shared_memory_of_attention_over_a_split_context(plan: CudaPlan) -> None:
    kernels = cuda_kernels(plan, defaultdict(lambda: NO_HASH))
    for entry, new in ("append_attention", 1), ("append_attention_rows", plan.round_rows):
        step = kernels[entry].impl.steps[0]
        launched = {"SPLIT_BYTES": step.shared_mem, "LAUNCHED": step.block[0], "LAUNCHED_SPLITS": step.grid[0]}
        compile_cuda_source(ATTENTION, "attention.cu", plan, {"NEW_TOKENS": new, **launched})
    if plan.sizes.sequences > 1:
        step, (_, differing) = kernels["append_attention_rows_wide"].impl.steps[0], plan.variants[MANY_ROWS_MODULE]
        launched = {"SPLIT_BYTES": step.shared_mem, "LAUNCHED": step.block[0], "LAUNCHED_SPLITS": step.grid[0]}
        compile_cuda_source(ATTENTION, "attention.cu", plan, {"NEW_TOKENS": plan.round_rows, **differing, **launched})


@settings(max_examples=12, deadline=None)
@given(plans())
def test_what_a_block_of_many_rows_has_fits(plan: CudaPlan) -> None:
    plan = CudaPlan("sm_90a", replace(plan.sizes, sequences=64))
    assume(plan.wide)
    step = cuda_kernels(plan, defaultdict(lambda: NO_HASH))["down_matmul_add_wide"].impl.steps[0]
    launched = {"WIDE_BYTES": step.shared_mem, "LAUNCHED": step.block[0], "LAUNCHED_ROWS": WIDE_ROWS}
    compile_cuda_source(WIDE, "wide.cu", plan, launched)


@pytest.mark.parametrize("head_dim", [64, 128])
def test_shared_memory_of_attention_of_a_chunk(head_dim: int) -> None:
    plan = CudaPlan("sm_90a", Sizes(64, 64, 1, 1, head_dim))
    compile_cuda_source(PREFILL, "prefill.cu", plan, {"CHUNK_BYTES": shared_mem(plan)["attention_prefill"]})


@settings(max_examples=5, deadline=None)
@given(plans(st.integers(1, 8).map(lambda chunks: 32 * chunks)))
def test_shared_memory_of_a_markov_heads_ring_and_what_is_beside_it(plan: CudaPlan) -> None:
    ring = shared_mem(plan)["markov_argmax"]
    module = describe("ring.cubin", compile_cuda_source(MARKOV, "ring.cu", plan, {"RING_BYTES": ring}), NO_HASH)
    step = cuda_kernels(plan, defaultdict(lambda: NO_HASH))["markov_argmax"].impl.steps[0]
    assert module.kernels[step.symbol].static_shared_mem > 0
    assert not list(errors(step, module, module.kernels[step.symbol], ring, ()))
