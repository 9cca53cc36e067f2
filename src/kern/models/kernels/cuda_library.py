"""The transformer kernels for a GPU: each entry's implementation, pinned to the modules it is in.

A chunk of tokens goes through products by cublasLt and kernels of our own beside them. A step of one token a sequence
has entries of its own: `embedding_weighted`, then of each layer `rms_matmul`, `norm_append_attention` (without norms of
queries and keys: `append_attention`), `output_matmul_add`, `rms_gate_up`, `down_matmul_add`; then `rms_matmul_f32`,
`argmax`, `advance`. The rows of a round of speculation have the same, with names that end in `_rows`.
For a step on recorded kernels, whose norms stand apart, there are `embedding_bf16` and each product alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from kern.manifest.expressions import Add, CeilDiv, Expr, Sym
from kern.manifest.params import Param
from kern.manifest.types import EXTERN_PREFIX, I32, Arg, Dim3, Impl, Kernel, Scratch, ScratchArg, Step, StepArg
from kern.models.kernels.cuda_plan import DRAFT_MODULE, MARKOV_MODULE, ROWS_MODULE, CudaPlan
from kern.models.kernels.interfaces import (
    CUDA_SPECULATION_INTERFACES,
    FUSED_INTERFACES,
    INTERFACES,
    RECORDED_INTERFACES,
    ROUND_INTERFACES,
    params,
)

Grid: TypeAlias = tuple[Expr, Expr, Expr]

ARGMAX_PARTS: Final = 64
"""Parts into which a row is cut for its greatest element."""

_TOKENS = Sym(sym="tokens")
_SEQS = Sym(sym="seqs")
_ROW_THREADS: Final = (256, 1, 1)
_HEADS_A_BLOCK: Final = 8
_ELEMENTS_A_BLOCK: Final = 2048
_QUERIES_A_BLOCK: Final = 64
_PAIRS_A_BLOCK: Final = 16
_NORMED = ("norm_rope_cache", "norm_append_attention")
_PLAIN = ("rope_cache", "append_attention")


def cuda_kernels(plan: CudaPlan, modules: Mapping[str, str], *, qk_norm: bool) -> dict[str, Kernel]:
    """The entries for `plan`, over the symbols `tokens` and `seqs`.

    `modules` gives the SHA-256 of each file that `compile_cuda_modules` made. `qk_norm`: queries and keys are normed
    before they are rotated. Raises KeyError where a module is missing.
    """
    return _Library(plan, modules).kernels(qk_norm)


@dataclass(frozen=True, slots=True)
class _Library:
    plan: CudaPlan
    modules: Mapping[str, str]

    def kernels(self, qk_norm: bool) -> dict[str, Kernel]:
        rounds = {} if self.plan.round is None else self.of_rounds(qk_norm)
        markov = {"markov_argmax": self.markov()} if self.plan.markov_slots else {}
        return self.of_tokens(qk_norm) | rounds | markov

    def of_rounds(self, qk_norm: bool) -> dict[str, Kernel]:
        """What the rows of a round of speculation have to themselves: ROUND_MODULES."""
        rows, own = self.plan.rows_of_round, DRAFT_MODULE if DRAFT_MODULE in self.plan.variants else ROWS_MODULE
        alike = "residual_matmul_f32", "residual_matmul_acc_f32"
        entry = "norm_append_attention_rows" if qk_norm else "append_attention_rows"
        return {
            **{name: self.attention_rows(name) for name in (entry, f"{entry}_full")},
            **self.products(ROWS_MODULE, rows, "_rows"),
            **{symbol: self.matvec(symbol, symbol, ROWS_MODULE, rows) for symbol in alike},
            "hidden_matmul_rows": self.matvec("hidden_matmul_rows", "hidden_matmul", ROWS_MODULE, rows),
            "down_matmul_add_draft": self.matvec("down_matmul_add_draft", "down_matmul_add", own, rows),
        }

    def of_tokens(self, qk_norm: bool) -> dict[str, Kernel]:
        sizes, once = self.plan.sizes, (1, 1, 1)
        heads = -(-(sizes.q_heads + 2 * sizes.kv_heads) // _HEADS_A_BLOCK)
        columns = -(-sizes.ffn // _ELEMENTS_A_BLOCK)
        queries: Grid = (Add(add=(CeilDiv(ceil_div=(_TOKENS, _QUERIES_A_BLOCK)), _SEQS)), sizes.q_heads, 1)
        rope_cache, attention = _NORMED if qk_norm else _PLAIN
        row: Grid = (_TOKENS, 1, 1)
        return {
            "embedding": self.single("embedding", "rows", row, _ROW_THREADS, chained=True),
            "embedding_bf16": self.single("embedding_bf16", "rows", row, _ROW_THREADS, chained=True),
            "rms_norm": self.single("rms_norm", "rows", row, _ROW_THREADS, chained=True),
            "add_rms_norm": self.single("add_rms_norm", "rows", row, _ROW_THREADS, chained=True),
            rope_cache: self.single(rope_cache, "heads", (_TOKENS, heads, 1), _ROW_THREADS, chained=True),
            "attention_prefill": self.single(
                "attention_prefill", "attention_prefill", queries, (128, 1, 1), self.plan.prefill_shared_mem
            ),
            "silu_mul": self.single("silu_mul", "rows", (_TOKENS, columns, 1), _ROW_THREADS, chained=True),
            "matmul": _extern("matmul", "cublaslt_bf16_tn"),
            "matmul_f32": _extern("matmul_f32", "cublaslt_bf16_tn_f32"),
            "token_nll": self.single("token_nll", "logits", row, _ROW_THREADS),
            "begin": self.single("begin", "feedback", once, (32, 1, 1)),
            "embedding_weighted": self.single("embedding_weighted", "rows", row, _ROW_THREADS, chained=True),
            **self.products("matvec", self.plan.rows),
            attention: self.attention(attention),
            "qkv_matmul": self.matvec("qkv_matmul", "hidden_matmul"),
            "output_matmul": self.matvec("output_matmul"),
            "gate_up_matmul": self.matvec("gate_up_matmul", "hidden_matmul"),
            "down_matmul": self.matvec("down_matmul"),
            "logits_matmul": self.matvec("logits_matmul", "hidden_matmul_f32"),
            "argmax": self.argmax("argmax", _SEQS),
            "advance": self.single("advance", "feedback", once, (32, 1, 1), chained=True),
            "to_bf16": self.single("to_bf16", "rows", row, _ROW_THREADS, chained=True),
            "gather_bf16": self.single("gather_bf16", "rows", (_SEQS, 1, 1), _ROW_THREADS, chained=True),
            "matmul_acc_f32": _extern("matmul_acc_f32", "cublaslt_bf16_tn_f32_acc"),
            "argmax_rows": self.argmax("argmax_rows", _TOKENS),
            "begin_spec": self.single("begin_spec", "speculation", once, (32, 1, 1)),
            "accept": self.single("accept", "speculation", once, (32, 1, 1), chained=True),
        }

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
        grid: Grid = (self.plan.matvec_blocks, CeilDiv(ceil_div=(_TOKENS, rows)), 1)
        block = (self.plan.matvec_threads, 1, 1)
        split = self.plan.split(width) if symbol == "down_matmul_add" else 1
        memory = self.plan.matvec_shared_mem(width // split, rows, pairs=symbol == "rms_gate_up")
        return self.single(entry, module, grid, block, memory, chained=True, symbol=symbol)

    def attention(self, entry: str) -> Kernel:
        """Partial sums of each split of the context, then one of them all."""
        sizes, splits, interface = self.plan.sizes, self.plan.tuning.splits, _interface(entry)
        parts = ScratchArg(scratch="sums"), ScratchArg(scratch="weights")
        names = [str(param) for param in interface]
        lengths, pages, heads = names.index("i32") - 1, names.index("i32"), names.index("i32") + 1
        partial = self.step(
            "attention_decode",
            f"{entry}_partial",
            (*params("out:f32 out:f32"), *interface[1:]),
            (splits, sizes.kv_heads, _SEQS),
            (128, 1, 1),
            (*parts, *(Arg(arg=i) for i in range(1, len(interface)))),
            shared_mem=self.plan.decode_shared_mem,
            chained=True,
        )
        combine = self.step(
            "attention_decode",
            "attention_combine",
            params("out:bf16 in:f32 in:f32 in:i32 i32 i32"),
            (sizes.q_heads, _SEQS, 1),
            (sizes.head_dim, 1, 1),
            (Arg(arg=0), *parts, Arg(arg=lengths), Arg(arg=pages), Arg(arg=heads)),
            chained=True,
        )
        scratch = {
            "sums": Scratch(dtype="f32", shape=(_SEQS, sizes.q_heads, splits, sizes.head_dim)),
            "weights": Scratch(dtype="f32", shape=(_SEQS, sizes.q_heads, splits, 2)),
        }
        return Kernel(params=interface, impl=Impl(scratch=scratch, steps=(partial, combine)))

    def attention_rows(self, entry: str) -> Kernel:
        """Partial sums of each split of the context, for pairs of a row and a query head; then one of them all."""
        sizes, splits, interface = self.plan.sizes, self.plan.tuning.splits, _interface(entry)
        parts = ScratchArg(scratch="sums"), ScratchArg(scratch="weights")
        lengths = [str(param) for param in interface].index("i32") - 1
        partial = self.step(
            "attention_rows",
            f"{entry}_partial",
            (*params("out:f32 out:f32"), *interface[1:]),
            (splits, sizes.kv_heads, -(-self.pairs // _PAIRS_A_BLOCK)),
            (128, 1, 1),
            (*parts, *(Arg(arg=i) for i in range(1, len(interface)))),
            shared_mem=self.plan.rows_shared_mem,
            chained=True,
        )
        combine = self.step(
            "attention_rows",
            "attention_rows_combine",
            params("out:bf16 in:f32 in:f32 in:i32 i32 i32 i32 i32"),
            (sizes.q_heads, self.plan.round_rows, 1),
            (sizes.head_dim, 1, 1),
            (Arg(arg=0), *parts, *(Arg(arg=lengths + i) for i in range(5))),
            chained=True,
        )
        scratch = {
            "sums": Scratch(dtype="f32", shape=(sizes.kv_heads, self.pairs, splits, sizes.head_dim)),
            "weights": Scratch(dtype="f32", shape=(sizes.kv_heads, self.pairs, splits, 2)),
        }
        return Kernel(params=interface, impl=Impl(scratch=scratch, steps=(partial, combine)))

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
            _ROW_THREADS,
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


def _interface(entry: str) -> tuple[Param, ...]:
    every = INTERFACES, FUSED_INTERFACES, RECORDED_INTERFACES, CUDA_SPECULATION_INTERFACES, ROUND_INTERFACES
    return next(known[entry] for known in every if entry in known)


def _extern(entry: str, operator: str) -> Kernel:
    interface = _interface(entry)
    forward = tuple(Arg(arg=i) for i in range(len(interface)))
    step = Step(symbol=EXTERN_PREFIX + operator, params=interface, block=(1, 1, 1), grid=(1, 1, 1), args=forward)
    return Kernel(params=interface, impl=Impl(steps=(step,)))
