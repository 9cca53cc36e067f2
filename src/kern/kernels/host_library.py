"""The transformer kernels for the host device: each entry's implementation, pinned to the modules it is in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from kern.kernels.interfaces import HOST_SPECULATION_INTERFACES, INTERFACES, params
from kern.manifest.expressions import Expr, Sym
from kern.manifest.params import Param
from kern.manifest.types import I32, Arg, Impl, Kernel, Scratch, ScratchArg, Step, StepArg

Grid: TypeAlias = tuple[Expr, Expr, Expr]

ARGMAX_PARTS: Final = 64
"""Parts into which a row is cut for its greatest element."""

_TOKENS = Sym(sym="tokens")
_SEQS = Sym(sym="seqs")
_ENTRIES: Final = {**INTERFACES, **HOST_SPECULATION_INTERFACES}


def host_kernels(modules: Mapping[str, str], *, q_heads: int, kv_heads: int) -> dict[str, Kernel]:
    """Every entry of INTERFACES and HOST_SPECULATION_INTERFACES, implemented for the host, over `tokens` and `seqs`.

    `modules` gives the SHA-256 of each file that `compile_host_modules` made. Raises KeyError where one is missing.
    """

    def kernel(entry: str, file: str, grid: Grid, symbol: str | None = None) -> Kernel:
        interface = _ENTRIES[entry]
        forward = tuple(Arg(arg=i) for i in range(len(interface)))
        step = _step(file, modules[file], symbol or entry, interface, grid, forward)
        return Kernel(params=interface, impl=Impl(steps=(step,)))

    row: Grid = (_TOKENS, 1, 1)
    once: Grid = (1, 1, 1)
    return {
        "embedding": kernel("embedding", "embedding.so", row),
        "rms_norm": kernel("rms_norm", "norms.so", row),
        "add_rms_norm": kernel("add_rms_norm", "norms.so", row),
        "q_head_norm": kernel("q_head_norm", "norms.so", (_TOKENS, q_heads, 1), "head_norm"),
        "k_head_norm": kernel("k_head_norm", "norms.so", (_TOKENS, kv_heads, 1), "head_norm"),
        "rope": kernel("rope", "rope.so", (_TOKENS, q_heads + kv_heads, 1)),
        "cache_write": kernel("cache_write", "cache.so", (_TOKENS, kv_heads, 1)),
        "attention_prefill": kernel("attention_prefill", "attention.so", (_TOKENS, q_heads, 1)),
        "attention_decode": kernel("attention_decode", "attention.so", (_SEQS, q_heads, 1)),
        "silu_mul": kernel("silu_mul", "activation.so", row),
        "matmul": kernel("matmul", "matmul.so", once),
        "matmul_f32": kernel("matmul_f32", "matmul.so", once),
        "argmax": _argmax("argmax", modules["argmax.so"], _SEQS),
        "token_nll": kernel("token_nll", "loss.so", row),
        "begin": kernel("begin", "feedback.so", once),
        "advance": kernel("advance", "feedback.so", once),
        "attention_full": kernel("attention_full", "attention.so", (_TOKENS, q_heads, 1)),
        "to_bf16": kernel("to_bf16", "embedding.so", row, "round_bf16"),
        "matmul_acc_f32": kernel("matmul_acc_f32", "matmul.so", once),
        "gather_bf16": kernel("gather_bf16", "embedding.so", (_SEQS, 1, 1)),
        "argmax_rows": _argmax("argmax_rows", modules["argmax.so"], _TOKENS),
        "k_rope": kernel("k_rope", "rope.so", (_TOKENS, kv_heads, 1), "rope"),
        "begin_spec": kernel("begin_spec", "speculation.so", once),
        "accept": kernel("accept", "speculation.so", once),
    }


def _argmax(entry: str, sha256: str, rows: Sym) -> Kernel:
    parts = ScratchArg(scratch="best"), ScratchArg(scratch="index")
    find = _step(
        "argmax.so",
        sha256,
        "argmax_partial",
        params("out:f32 out:i32 in:f32 i32"),
        (ARGMAX_PARTS, rows, 1),
        (*parts, Arg(arg=1), Arg(arg=2)),
    )
    choose = _step(
        "argmax.so",
        sha256,
        "argmax_final",
        params("out:i64 in:f32 in:i32 i32"),
        (rows, 1, 1),
        (Arg(arg=0), *parts, I32(i32=ARGMAX_PARTS)),
    )
    scratch = {
        "best": Scratch(dtype="f32", shape=(rows, ARGMAX_PARTS)),
        "index": Scratch(dtype="i32", shape=(rows, ARGMAX_PARTS)),
    }
    return Kernel(params=_ENTRIES[entry], impl=Impl(scratch=scratch, steps=(find, choose)))


def _step(file: str, sha256: str, symbol: str, abi: tuple[Param, ...], grid: Grid, args: tuple[StepArg, ...]) -> Step:
    return Step(symbol=symbol, params=abi, block=(1, 1, 1), grid=grid, cubin=file, sha256=sha256, args=args)
