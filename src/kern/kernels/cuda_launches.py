"""What each entry of the CUDA library launches: one kernel, or one for parts and one that puts them together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from kern.kernels.cuda_plan import DRAFT_MODULE, MARKOV_MODULE, SPLIT_WARPS, CudaPlan
from kern.kernels.interfaces import (
    CUDA_SPECULATION_INTERFACES,
    FUSED_INTERFACES,
    INTERFACES,
    RECORDED_INTERFACES,
    ROUND_INTERFACES,
    params,
)
from kern.manifest.expressions import CeilDiv, Expr, Sym
from kern.manifest.params import Param
from kern.manifest.types import EXTERN_PREFIX, I32, Arg, Dim3, Impl, Kernel, Scratch, ScratchArg, Step, StepArg

Grid: TypeAlias = tuple[Expr, Expr, Expr]

ARGMAX_PARTS: Final = 64
"""Parts into which a row is cut for its greatest element."""
TOKENS: Final = Sym(sym="tokens")
SEQS: Final = Sym(sym="seqs")
ROW_THREADS: Final = (256, 1, 1)
_PAIRS_A_BLOCK: Final = 16


@dataclass(frozen=True, slots=True)
class Launches:
    """Builds kernels for a plan; `modules` gives the SHA-256 of each file that was compiled for it."""

    plan: CudaPlan
    modules: Mapping[str, str]

    def single(
        self,
        entry: str,
        module: str,
        grid: Grid,
        block: Dim3,
        shared_mem: int = 0,
        *,
        chained: bool = False,
        symbol: str | None = None,
    ) -> Kernel:
        """An entry that is one launch, of the kernel of its name if not of `symbol`."""
        interface = _interface(entry)
        forward = tuple(Arg(arg=i) for i in range(len(interface)))
        step = self.step(
            module, symbol or entry, interface, grid, block, forward, shared_mem=shared_mem, chained=chained
        )
        return Kernel(params=interface, impl=Impl(steps=(step,)))

    def products(self, module: str, rows: int, suffix: str = "") -> dict[str, Kernel]:
        """The products of a layer whose norms and additions are in them, and that of the logits."""
        symbols = "rms_matmul", "rms_matmul_f32", "rms_gate_up", "output_matmul_add", "down_matmul_add"
        return {symbol + suffix: self.matvec(symbol + suffix, symbol, module, rows) for symbol in symbols}

    def matvec(self, entry: str, symbol: str | None = None, module: str = "matvec", rows: int | None = None) -> Kernel:
        """A product of which `rows` rows share a reading of the weights."""
        symbol, rows, sizes = symbol or entry, rows or self.plan.rows, self.plan.sizes
        ffn = self.plan.round.ffn if self.plan.round and module == DRAFT_MODULE else sizes.ffn
        width = {"output": sizes.q_size, "down": ffn}.get(symbol.partition("_")[0], sizes.hidden)
        grid: Grid = (self.plan.matvec_blocks, CeilDiv(ceil_div=(TOKENS, rows)), 1)
        block = (self.plan.matvec_threads, 1, 1)
        split = self.plan.split(width) if symbol == "down_matmul_add" else 1
        memory = self.plan.matvec_shared_mem(width // split, rows, pairs=symbol == "rms_gate_up")
        return self.single(entry, module, grid, block, memory, chained=True, symbol=symbol)

    def attention(self, entry: str) -> Kernel:
        """Attention of one token a sequence."""
        of = SEQS, self.plan.sizes.q_heads
        combine = "attention_combine", "in:i32 i32 i32", SEQS
        return self.over_splits(entry, "attention_decode", SEQS, 1, of, combine)

    def attention_rows(self, entry: str) -> Kernel:
        """Attention of a round's rows, a block for some pairs of a row and a query head."""
        of, blocks = (self.plan.sizes.kv_heads, self.pairs), -(-self.pairs // _PAIRS_A_BLOCK)
        combine = "attention_rows_combine", "in:i32 i32 i32 i32 i32", self.plan.round_rows
        return self.over_splits(entry, "attention_rows", blocks, self.plan.round_rows, of, combine)

    def over_splits(
        self,
        entry: str,
        module: str,
        blocks: Expr,
        new: int,
        queries: tuple[Expr, Expr],
        combine: tuple[str, str, Expr],
    ) -> Kernel:
        """Sums of each split of the context, by `blocks` for each key head, then one of them all.

        `new` are the tokens of a sequence; `queries` says how the sums are laid out. `combine` are the second kernel,
        what it takes of the entry's arguments, from the lengths on, and its rows.
        """
        sizes, splits, interface = self.plan.sizes, self.plan.tuning.splits, _interface(entry)
        parts = ScratchArg(scratch="sums"), ScratchArg(scratch="weights")
        partial = self.step(
            module,
            f"{entry}_partial",
            (*params("out:f32 out:f32"), *interface[1:]),
            (splits, sizes.kv_heads, blocks),
            (32 * SPLIT_WARPS, 1, 1),
            (*parts, *(Arg(arg=i) for i in range(1, len(interface)))),
            shared_mem=self.plan.split_shared_mem(new),
            chained=True,
        )
        symbol, taken, rows = combine
        lengths = [str(param) for param in interface].index("i32") - 1
        whole = self.step(
            module,
            symbol,
            params(f"out:bf16 in:f32 in:f32 {taken}"),
            (sizes.q_heads, rows, 1),
            (sizes.head_dim, 1, 1),
            (Arg(arg=0), *parts, *(Arg(arg=lengths + i) for i in range(len(taken.split())))),
            chained=True,
        )
        scratch = {
            "sums": Scratch(dtype="f32", shape=(*queries, splits, sizes.head_dim)),
            "weights": Scratch(dtype="f32", shape=(*queries, splits, 2)),
        }
        return Kernel(params=interface, impl=Impl(scratch=scratch, steps=(partial, whole)))

    @property
    def pairs(self) -> int:
        """Rows of a round times the query heads of a key head."""
        return self.plan.round_rows * (self.plan.sizes.q_heads // self.plan.sizes.kv_heads)

    def markov(self) -> Kernel:
        """One step of a draft's chain: each block's share of the logits and its greatest, then the greatest of all."""
        interface, blocks = _interface("markov_argmax"), self.plan.matvec_blocks
        parts = ScratchArg(scratch="best"), ScratchArg(scratch="index")
        add = self.step(
            MARKOV_MODULE,
            "markov_partial",
            (*params("out:f32 out:i32"), *interface[1:]),
            (blocks, 1, 1),
            (self.plan.matvec_threads, 1, 1),
            (*parts, *(Arg(arg=i) for i in range(1, len(interface)))),
            shared_mem=self.plan.markov_shared_mem,
            chained=True,
        )
        choose = self.choose(1, blocks)
        scratch = {"best": Scratch(dtype="f32", shape=(blocks,)), "index": Scratch(dtype="i32", shape=(blocks,))}
        return Kernel(params=interface, impl=Impl(scratch=scratch, steps=(add, choose)))

    def argmax(self, entry: str, rows: Sym) -> Kernel:
        parts = ScratchArg(scratch="best"), ScratchArg(scratch="index")
        find = self.step(
            "logits",
            "argmax_partial",
            params("out:f32 out:i32 in:f32 i32"),
            (ARGMAX_PARTS, rows, 1),
            ROW_THREADS,
            (*parts, Arg(arg=1), Arg(arg=2)),
            chained=True,
        )
        choose = self.choose(rows, ARGMAX_PARTS)
        scratch = {
            "best": Scratch(dtype="f32", shape=(rows, ARGMAX_PARTS)),
            "index": Scratch(dtype="i32", shape=(rows, ARGMAX_PARTS)),
        }
        return Kernel(params=_interface(entry), impl=Impl(scratch=scratch, steps=(find, choose)))

    def choose(self, rows: Expr, count: int) -> Step:
        """The greatest of the `count` parts of each row."""
        return self.step(
            "logits",
            "argmax_final",
            params("out:i64 in:f32 in:i32 i32"),
            (rows, 1, 1),
            (32, 1, 1),
            (Arg(arg=0), ScratchArg(scratch="best"), ScratchArg(scratch="index"), I32(i32=count)),
            chained=True,
        )

    def step(
        self,
        module: str,
        symbol: str,
        abi: tuple[Param, ...],
        grid: Grid,
        block: Dim3,
        args: tuple[StepArg, ...],
        *,
        shared_mem: int = 0,
        chained: bool,
    ) -> Step:
        """One launch; a chained one may start before the launch ahead of it has finished."""
        file = f"{module}.cubin"
        return Step(
            symbol=symbol,
            params=abi,
            block=block,
            grid=grid,
            shared_mem=shared_mem,
            cubin=file,
            sha256=self.modules[file],
            pdl=chained and self.plan.dependent_launch,
            args=args,
        )


def extern(entry: str, operator: str) -> Kernel:
    """An entry that is one of the device's built-in operators."""
    interface = _interface(entry)
    forward = tuple(Arg(arg=i) for i in range(len(interface)))
    step = Step(symbol=EXTERN_PREFIX + operator, params=interface, block=(1, 1, 1), grid=(1, 1, 1), args=forward)
    return Kernel(params=interface, impl=Impl(steps=(step,)))


def _interface(entry: str) -> tuple[Param, ...]:
    every = INTERFACES, FUSED_INTERFACES, RECORDED_INTERFACES, CUDA_SPECULATION_INTERFACES, ROUND_INTERFACES
    return next(known[entry] for known in every if entry in known)
