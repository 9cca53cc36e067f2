"""A plan and the CUDA sources agree, for any sizes, on the shared memory of each launch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kern.artifact.abi_check import errors
from kern.artifact.modules import describe
from kern.kernels.compile_cuda import compile_cuda_source
from kern.kernels.cuda_library import cuda_kernels
from kern.kernels.cuda_plan import CudaPlan
from kern.kernels.cuda_sizes import Round, Sizes, UnsupportedSizes
from kern.manifest.expressions import evaluate

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
TOKEN = r"""
#include "attention_decode.cu"
static_assert(sizeof(DecodeMemory) == TOKEN_BYTES, "what the launch asks for");
static_assert(TOKEN_THREADS == LAUNCHED && COMBINE_THREADS == COMBINED, "as many as the launch has");
"""
PREFILL = r"""
#include "attention_prefill.cu"
static_assert(sizeof(PrefillMemory) == CHUNK_BYTES, "what the launch asks for");
static_assert(PREFILL_THREADS == LAUNCHED && ceil_div(320, BLOCK_TOKENS) + 64 == LAUNCHED_BLOCKS, "what it has");
"""
MARKOV = r"""
#include "markov.cu"
static_assert(SLOTS * PIECES * sizeof(uint4) == RING_BYTES, "what the launch asks for");
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
    for _, differing in plan.variants.values():
        products(plan, "_rows", differing)


@settings(max_examples=12, deadline=None)
@given(plans())
def test_shared_memory_of_attention_over_a_split_context(plan: CudaPlan) -> None:
    kernels = cuda_kernels(plan, defaultdict(lambda: NO_HASH))
    step = kernels["append_attention_rows"].impl.steps[0]
    launched = {"SPLIT_BYTES": step.shared_mem, "LAUNCHED": step.block[0], "LAUNCHED_SPLITS": step.grid[0]}
    compile_cuda_source(ATTENTION, "attention.cu", plan, {"NEW_TOKENS": plan.round_rows, **launched})


@settings(max_examples=12, deadline=None)
@given(plans())
def test_shared_memory_of_attention_of_a_token(plan: CudaPlan) -> None:
    step, combine = cuda_kernels(plan, defaultdict(lambda: NO_HASH))["append_attention"].impl.steps
    launched = {"TOKEN_BYTES": step.shared_mem, "LAUNCHED": step.block[0], "COMBINED": combine.block[0]}
    assert isinstance(step.grid[0], int)
    assert step.grid[0] >= plan.sizes.kv_heads
    compile_cuda_source(TOKEN, "attention.cu", plan, launched)


@pytest.mark.parametrize("group", [1, 3, 4, 16])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_attention_of_a_chunk_as_it_is_launched(head_dim: int, group: int) -> None:
    plan = CudaPlan("sm_90a", Sizes(64, 64, 2 * group, 2, head_dim))
    step = cuda_kernels(plan, defaultdict(lambda: NO_HASH))["attention_prefill"].impl.steps[0]
    key_heads, tokens, _ = (evaluate(each, {"tokens": 320, "seqs": 64}) for each in step.grid)
    launched = {"CHUNK_BYTES": step.shared_mem, "LAUNCHED": step.block[0], "LAUNCHED_BLOCKS": tokens}
    compile_cuda_source(PREFILL, "prefill.cu", plan, launched)
    assert key_heads == 2


@settings(max_examples=5, deadline=None)
@given(plans(st.integers(1, 8).map(lambda chunks: 32 * chunks)))
def test_shared_memory_of_a_markov_heads_ring_and_what_is_beside_it(plan: CudaPlan) -> None:
    ring = shared_mem(plan)["markov_argmax"]
    module = describe("ring.cubin", compile_cuda_source(MARKOV, "ring.cu", plan, {"RING_BYTES": ring}), NO_HASH)
    step = cuda_kernels(plan, defaultdict(lambda: NO_HASH))["markov_argmax"].impl.steps[0]
    assert module.kernels[step.symbol].static_shared_mem > 0
    assert not list(errors(step, module, module.kernels[step.symbol], ring, ()))
