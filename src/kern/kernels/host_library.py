"""The transformer kernels for the host device: each entry's implementation, pinned to the modules it is in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kern.contracts.text import SEQS, TOKENS
from kern.kernels.implementation import (
    ADD_FIND,
    ARGMAX_CHOOSE,
    ARGMAX_FIND,
    ARGMAX_PARTS,
    FEEDBACK,
    Entry,
    Grid,
    argmax_entry,
)
from kern.manifest.expressions import Sym
from kern.manifest.types import Kernel, Step


def host_kernels(modules: Mapping[str, str], *, q_heads: int, kv_heads: int) -> dict[str, Kernel]:
    """The entries that are implemented for the host, over the symbols `tokens` and `seqs`.

    `modules` gives the SHA-256 of each file that `compile_host_modules` made. Raises KeyError where one is missing.
    """

    def step(entry: Entry, module: str, grid: Grid, symbol: str, names: Iterable[str]) -> Step:
        (params, args), file = entry.bind(names), f"{module}.so"
        return Step(
            symbol=symbol, params=params, block=(1, 1, 1), grid=grid, cubin=file, sha256=modules[file], args=args
        )

    def kernel(name: str, module: str, grid: Grid, symbol: str | None = None) -> Kernel:
        entry = Entry(name)
        return entry.kernel(step(entry, module, grid, symbol or name, entry.interface))

    def argmax(
        name: str, rows: Sym, find: str = "argmax_partial", takes: tuple[str, ...] = ARGMAX_FIND, apart: str = "1"
    ) -> Kernel:
        entry, parts = argmax_entry(name, rows, ARGMAX_PARTS), str(ARGMAX_PARTS)
        partial = step(entry, "argmax", (ARGMAX_PARTS, rows, 1), find, takes)
        choose = step(entry, "argmax", (rows, 1, 1), "argmax_final", (*ARGMAX_CHOOSE, parts, apart))
        return entry.kernel(partial, choose)

    row: Grid = (TOKENS, 1, 1)
    once: Grid = (1, 1, 1)
    return {
        "embedding": kernel("embedding", "embedding", row),
        "rms_norm": kernel("rms_norm", "norms", row),
        "add_rms_norm": kernel("add_rms_norm", "norms", row),
        "q_head_norm": kernel("q_head_norm", "norms", (TOKENS, q_heads, 1), "head_norm"),
        "k_head_norm": kernel("k_head_norm", "norms", (TOKENS, kv_heads, 1), "head_norm"),
        "rope": kernel("rope", "rope", (TOKENS, q_heads + kv_heads, 1)),
        "cache_write": kernel("cache_write", "cache", (TOKENS, kv_heads, 1)),
        "attention_prefill": kernel("attention_prefill", "attention", (TOKENS, q_heads, 1)),
        "attention_decode": kernel("attention_decode", "attention", (SEQS, q_heads, 1)),
        "silu_mul": kernel("silu_mul", "activation", row),
        "matmul": kernel("matmul", "matmul", once),
        "matmul_f32": kernel("matmul_f32", "matmul", once),
        "argmax": argmax("argmax", SEQS),
        "token_nll": kernel("token_nll", "loss", (SEQS, 1, 1)),
        "gather_rows": kernel("gather_rows", "embedding", (SEQS, 1, 1)),
        **{name: kernel(name, "feedback", once) for name in FEEDBACK},
        "attention_full": kernel("attention_full", "attention", (TOKENS, q_heads, 1)),
        "to_bf16": kernel("to_bf16", "embedding", row, "round_bf16"),
        "matmul_acc_f32": kernel("matmul_acc_f32", "matmul", once),
        "gather_bf16": kernel("gather_bf16", "embedding", (SEQS, 1, 1)),
        "argmax_rows": argmax("argmax_rows", TOKENS),
        "add_argmax": argmax("add_argmax", SEQS, "add_argmax_partial", ADD_FIND, "rows"),
        "k_rope": kernel("k_rope", "rope", (TOKENS, kv_heads, 1), "rope"),
        "begin_spec": kernel("begin_spec", "speculation", once),
        "lay_round": kernel("lay_round", "speculation", once),
        "accept": kernel("accept", "speculation", once),
    }
