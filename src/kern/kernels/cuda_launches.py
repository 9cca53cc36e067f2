"""What each entry of the CUDA library launches: one kernel, or one for parts of its work and one to combine them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kern.contracts.text import SEQS, TOKENS, WIDE
from kern.kernels.cuda_plan import DRAFT_MODULE, MANY_ROWS_MODULE, MARKOV_MODULE, SPLIT_WARPS, CudaPlan
from kern.kernels.cuda_wide import WIDE_MODULE, WIDE_ROWS, WIDE_SHARED_MEM, WIDE_THREADS
from kern.kernels.implementation import (
    ADD_FIND,
    ARGMAX_CHOOSE,
    ARGMAX_FIND,
    ARGMAX_PARTS,
    Entry,
    Grid,
    argmax_entry,
)
from kern.manifest.expressions import CeilDiv, Expr, Mul, Sym
from kern.manifest.types import OPERATOR_PREFIX, Dim3, Kernel, Scratch, Step

ROW_THREADS: Final = (256, 1, 1)
_PAIRS_PER_BLOCK: Final = 16


@dataclass(frozen=True, slots=True)
class Launches:
    """Builds kernels for a plan; `modules` gives the SHA-256 of each file that was compiled for it."""

    plan: CudaPlan
    modules: Mapping[str, str]

    def single(
        self,
        name: str,
        module: str,
        grid: Grid,
        block: Dim3,
        shared_mem: int = 0,
        *,
        chained: bool = True,
        symbol: str | None = None,
    ) -> Kernel:
        """An entry that is one launch, of the kernel `symbol`, or the one of the same name."""
        entry = Entry(name)
        names = entry.interface
        return entry.kernel(
            self.step(entry, module, symbol or name, names, grid, block, shared_mem=shared_mem, chained=chained)
        )

    def products(self, module: str, rows: int, suffix: str = "") -> dict[str, Kernel]:
        """The products of a layer that are fused with norms and additions, and that of the logits."""
        symbols = "rms_matmul", "rms_matmul_f32", "rms_gate_up", "output_matmul_add", "down_matmul_add"
        return {symbol + suffix: self.matvec(symbol + suffix, symbol, module, rows) for symbol in symbols}

    def matvec(self, entry: str, symbol: str | None = None, module: str = "matvec", rows: int | None = None) -> Kernel:
        """A product that reads the weights once for every `rows` rows."""
        symbol, rows, sizes = symbol or entry, rows or self.plan.rows, self.plan.sizes
        ffn = self.plan.round.ffn if self.plan.round and module == DRAFT_MODULE else sizes.ffn
        width = {"output": sizes.q_size, "down": ffn}.get(symbol.partition("_")[0], sizes.hidden)
        grid: Grid = (self.plan.matvec_blocks, CeilDiv(ceil_div=(TOKENS, rows)), 1)
        block = (self.plan.matvec_threads, 1, 1)
        split = self.plan.split(width) if symbol == "down_matmul_add" else 1
        memory = self.plan.matvec_shared_mem(width // split, rows, pairs=symbol == "rms_gate_up")
        return self.single(entry, module, grid, block, memory, symbol=symbol)

    def wide(self) -> dict[str, Kernel]:
        """The products of a step of more than 8 sequences."""
        rows, block = CeilDiv(ceil_div=(TOKENS, WIDE_ROWS)), (WIDE_THREADS, 1, 1)
        divided = self.plan.wide.items()
        return {
            name: self.single(name, WIDE_MODULE, (of.blocks, rows, 1), block, WIDE_SHARED_MEM) for name, of in divided
        }

    def attention(self, name: str) -> Kernel:
        """Attention of one token per sequence."""
        entry = self.split_entry(name, self.plan.tuning.splits, SEQS, self.plan.sizes.q_heads)
        combine = "attention_combine", ("pages", "q_heads"), SEQS
        return self.over_splits(entry, name, "attention_decode", SEQS, 1, combine)

    def attention_rows(self, name: str, *, wide: bool = False) -> Kernel:
        """Attention of a round's rows, a block for some pairs of a row and a query head of a sequence.

        `wide`: of several sequences.
        """
        splits = self.plan.tuning.wide_splits if wide else self.plan.tuning.splits
        entry = self.split_entry(name + WIDE * wide, splits, SEQS, self.plan.sizes.kv_heads, self.pairs)
        blocks, rows = -(-self.pairs // _PAIRS_PER_BLOCK), self.plan.round_rows
        taken = "tokens", "seqs", "pages", "q_heads", "kv_heads"
        combine = "attention_rows_combine", taken, Mul(mul=(SEQS, rows))
        module = MANY_ROWS_MODULE if wide else "attention_rows"
        return self.over_splits(entry, name, module, Mul(mul=(SEQS, blocks)), rows, combine)

    def split_entry(self, name: str, splits: int, *queries: Expr) -> Entry:
        """An entry with scratch for sums over each split of the context, laid out by `queries`."""
        dim = self.plan.sizes.head_dim
        sums, weights = (Scratch(dtype="f32", shape=(*queries, splits, width)) for width in (dim, 2))
        return Entry(name, {"sums": sums, "weights": weights})

    def over_splits(
        self, entry: Entry, name: str, module: str, blocks: Expr, new: int, combine: tuple[str, tuple[str, ...], Expr]
    ) -> Kernel:
        """Sums over each split of the context, by `blocks` for each key head, then their total.

        `name` is that of the first kernel but for its end, `new` the number of new tokens of a sequence. `combine` is
        the second kernel, the sizes that it takes, and its rows.
        """
        sizes, (symbol, taken, rows) = self.plan.sizes, combine
        out, *inputs = entry.interface
        *_, splits, _ = entry.scratch["sums"].shape
        partial = self.step(
            entry,
            module,
            f"{name}_partial",
            ("out sums", "out weights", *inputs),
            (splits, sizes.kv_heads, blocks),
            (32 * SPLIT_WARPS, 1, 1),
            shared_mem=self.plan.split_shared_mem(new),
        )
        whole = self.step(
            entry,
            module,
            symbol,
            (out, "in sums", "in weights", "seq_lens", *taken),
            (sizes.q_heads, rows, 1),
            (sizes.head_dim, 1, 1),
        )
        return entry.kernel(partial, whole)

    @property
    def pairs(self) -> int:
        """Rows of a round times the query heads of a key head."""
        return self.plan.round_rows * (self.plan.sizes.q_heads // self.plan.sizes.kv_heads)

    def markov(self) -> Kernel:
        """One step of a draft's chain: each block's share of the logits and its maximum, then the maximum of all."""
        blocks, threads = self.plan.matvec_blocks, (self.plan.matvec_threads, 1, 1)
        entry = argmax_entry("markov_argmax", SEQS, blocks)
        _, *inputs = entry.interface
        add = self.step(
            entry,
            MARKOV_MODULE,
            "markov_partial",
            ("out best", "out index", *inputs),
            (blocks, 1, 1),
            threads,
            shared_mem=self.plan.markov_shared_mem,
        )
        return entry.kernel(add, self.choose(entry, SEQS, blocks, "rows"))

    def argmax(self, name: str, rows: Sym) -> Kernel:
        """The index of the maximum of each row."""
        entry = argmax_entry(name, rows, ARGMAX_PARTS)
        find = self.step(entry, "logits", "argmax_partial", ARGMAX_FIND, (ARGMAX_PARTS, rows, 1), ROW_THREADS)
        return entry.kernel(find, self.choose(entry, rows, ARGMAX_PARTS))

    def add_argmax(self) -> Kernel:
        """The same of a sum, in one row of each sequence's."""
        entry = argmax_entry("add_argmax", SEQS, ARGMAX_PARTS)
        find = self.step(entry, "logits", "add_argmax_partial", ADD_FIND, (ARGMAX_PARTS, SEQS, 1), ROW_THREADS)
        return entry.kernel(find, self.choose(entry, SEQS, ARGMAX_PARTS, "rows"))

    def choose(self, entry: Entry, rows: Expr, parts: int, apart: str = "1") -> Step:
        """The maximum of the parts of each row; results are `apart` places apart."""
        takes = *ARGMAX_CHOOSE, str(parts), apart
        return self.step(entry, "logits", "argmax_final", takes, (rows, 1, 1), (32, 1, 1))

    def step(
        self,
        entry: Entry,
        module: str,
        symbol: str,
        names: Iterable[str],
        grid: Grid,
        block: Dim3,
        *,
        shared_mem: int = 0,
        chained: bool = True,
    ) -> Step:
        """One launch, which takes `names` of the entry; a chained one may start before the one ahead has finished."""
        (params, args), file = entry.bind(names), f"{module}.cubin"
        return Step(
            symbol=symbol,
            params=params,
            block=block,
            grid=grid,
            shared_mem=shared_mem,
            cubin=file,
            sha256=self.modules[file],
            pdl=chained and self.plan.dependent_launch,
            args=args,
        )


def operator(name: str, symbol: str) -> Kernel:
    """An entry that is one of the device's built-in operators."""
    entry = Entry(name)
    params, args = entry.bind(entry.interface)
    return entry.kernel(
        Step(symbol=OPERATOR_PREFIX + symbol, params=params, block=(1, 1, 1), grid=(1, 1, 1), args=args)
    )
