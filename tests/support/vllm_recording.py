"""A recording as vLLM leaves one: the launches of its eager forward passes, on kernels of the same names and layouts.

The kernels do nothing; they are compiled so that their files have the symbols and parameters that the recording shows.
A doctor may change each launch before it is written: what a real recording would show if the engine launched otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from kern.checkpoints.config import TransformerConfig
from kern.recorded.signatures import Signature
from kern.recorded.vllm.signatures import SIGNATURES
from support.nvrtc import cubin
from support.recordings import Allocator, Recorder, packed

_BF16 = "_ZN4vllm{}IN3c108BFloat16E"
HIDDEN_NORM = "_ZN4vllm15rms_norm_kernelIN3c108BFloat16ELi8ELi2ELb1EEEvPT_PKS3_lllllS6_fii"
HEAD_NORM = "_ZN4vllm15rms_norm_kernelIN3c108BFloat16ELi8ELi3ELb1EEEvPT_PKS3_lllllS6_fii"
ADD_NORM = (
    "_ZN4vllm25fused_add_rms_norm_kernelIN3c108BFloat16ELi8ELb1EEENSt9enable_ifIXaagtT0_Li0Esr4vllm12_typeConvertIT_EE"
    "6existsEvE4typeEPS4_lS7_PKS4_fii"
)
ROTARY = "_ZN4vllm23rotary_embedding_kernelIN3c108BFloat16ES2_Lb1EEEvPKlPT_S6_PKT0_illliiilb"
SILU = (
    "_ZN4vllm18act_and_mul_kernelIN3c108BFloat16E14__nv_bfloat162XadL_ZNS_11silu_kernelIS2_EET_RKS5_fEEX"
    "adL_ZNS_18packed_silu_kernelIS3_EES5_S7_fEELb1ELb1ELb0ELb0EEEvPS5_PS6_ifff"
)
FILES = {
    "layernorm": (HIDDEN_NORM, HEAD_NORM, ADD_NORM),
    "rotary": (ROTARY,),
    "silu": (SILU,),
    "cache": ("reshape_and_cache_kernel_flash",),
    "attention of several": ("kernel_unified_attention",),
    "attention of one": ("kernel_unified_attention",),
    "reduce": ("reduce_segments",),
}
"""The symbols in each module; those of Triton's are compiled for sm_90a, as Triton does, the others for sm_90."""
PARTS = 16
_TYPES = {None: "void*", "i32": "int", "i64": "long long", "f32": "float", "u8": "unsigned char", "u32": "unsigned"}


def signature_of(symbol: str) -> Signature:
    """The signature of a symbol."""
    return next(signature for signature in SIGNATURES if symbol.startswith(signature.starts))


@cache
def module(name: str, target: str | None = None) -> bytes:
    """A module's file."""
    kernels = []
    for symbol in FILES[name]:
        params = ", ".join(f"{_TYPES[scalar]} p{i}" for i, (_, scalar) in enumerate(signature_of(symbol).params))
        # What is written differs between modules whose kernels are alike.
        kernels.append(f'extern "C" __global__ void {symbol}({params}) {{ if (p0) *(int*)p0 = {len(name)}; }}')
    return cubin("\n".join(kernels), target or ("sm_90" if symbol.startswith("_Z") else "sm_90a"))


@dataclass
class Launched:
    """A launch on its way into the recording, for a doctor to change."""

    part: str
    layer: int
    tokens: int
    number: int
    symbol: str
    module: str
    grid: list[int]
    values: dict[str, Any]
    block: list[int] = field(default_factory=lambda: [128, 1, 1])
    shared: int = 0
    stream: int = 7
    attributes: dict[str, Any] = field(default_factory=dict)
    drop: bool = False
    sizes: Sequence[int] | None = None


Doctor = Callable[[Launched], None]


def record(
    dump: Path,
    config: TransformerConfig,
    doctor: Doctor = lambda launch: None,
    *,
    prompts: Iterable[int] = (1, 7, 34),
    images: Callable[[str], bytes] = module,
) -> Path:
    """Record an engine that is started, warmed up, and given prompts of these lengths, three tokens each; the dump."""
    engine = _Engine(dump, config, doctor, images)
    engine.start()
    for prompt in prompts:
        engine.forward(prompt)
        for _ in range(2):
            engine.forward(1)
    engine.recorder.end()
    return dump


class _Engine:
    def __init__(self, dump: Path, config: TransformerConfig, doctor: Doctor, images: Callable[[str], bytes]) -> None:
        self.recorder, self.memory = Recorder(dump), Allocator()
        self.config, self.doctor = config, doctor
        self.modules = {name: self.recorder.module(images(name)) for name in FILES}
        self.other = self.recorder.module(b"some other module")
        self.number = -1
        c, take = config, self.memory.take
        self.weights = [
            {
                "input_norm": take(2 * c.hidden),
                "qkv": take(2 * c.qkv_size * c.hidden),
                "q_norm": take(2 * c.head_dim),
                "k_norm": take(2 * c.head_dim),
                "o": take(2 * c.q_size * c.hidden),
                "add_norm": take(2 * c.hidden),
                "gate_up": take(4 * c.ffn * c.hidden),
                "down": take(2 * c.ffn * c.hidden),
            }
            for _ in range(c.layers)
        ]
        self.norm, self.table = take(2 * c.hidden), take(2 * c.vocabulary * c.hidden)
        self.cos_sin = take(4096 * c.head_dim * 2)
        self.block = 2 * 16 * c.kv_size
        self.pools = [take(2 * self.block * 64) for _ in range(c.layers)]
        self.ids, self.positions, self.slots = take(8 * 4096), take(8 * 4096), take(8 * 4096)
        self.blocks, self.lengths, self.starts = take(4 * 256), take(4), take(8)
        self.scales = take(4), take(4)
        self.parts = [take(4 * c.heads * PARTS * c.head_dim), take(4 * c.heads * PARTS), take(4 * c.heads * PARTS)]

    def start(self) -> None:
        """Weights are filled with numbers, and a pass of the largest size measures the memory, without attention."""
        fill = self.recorder.kernel("distribution_normal", self.other, (8, 8))
        for layer in self.weights:
            for address in layer.values():
                pointer = self._pointer(0, address)
                self.recorder.launch(fill, [packed(address, 8), packed(64, 8)], [pointer])
        self.forward(64, attention=False)

    def forward(self, tokens: int, *, attention: bool = True) -> None:
        """A forward pass, and the choice of the next token."""
        self.number += 1
        c, take, give = self.config, self.memory.take, self.memory.give
        residual = take(2 * tokens * c.hidden)
        self._other("embedding", self.ids, self.table, residual)
        x = take(2 * tokens * c.hidden)
        self._norm("input_norm", 0, HIDDEN_NORM, x, residual, self.weights[0]["input_norm"], c.hidden, tokens)
        for layer in range(c.layers):
            x = self._layer(layer, tokens, x, residual, attention)
        logits = take(2 * c.vocabulary)
        self._other("nvjet_lm_head", x, self.table, logits)
        self._other("argmax", logits, self.ids)
        for address in (logits, x, residual):
            give(address)
        self.recorder.time += 300_000

    def _layer(self, layer: int, tokens: int, x: int, residual: int, attention: bool) -> int:
        c, take, give, weights = self.config, self.memory.take, self.memory.give, self.weights[layer]
        qkv = take(2 * tokens * c.qkv_size)
        self._product(x, weights["qkv"], qkv)
        give(x)
        q, k = take(2 * tokens * c.q_size), take(2 * tokens * c.kv_size)
        key, value = qkv + 2 * c.q_size, qkv + 2 * (c.q_size + c.kv_size)
        self._head_norm("q_norm", layer, q, qkv, weights["q_norm"], c.heads, tokens)
        self._head_norm("k_norm", layer, k, key, weights["k_norm"], c.kv_heads, tokens)
        self._rotary(layer, q, k, tokens)
        out = take(2 * tokens * c.q_size)
        if attention:
            self._cache(layer, k, value, tokens)
            self._attention(layer, q, out, tokens)
        x = take(2 * tokens * c.hidden)
        self._product(out, weights["o"], x)
        for address in (qkv, q, k, out):
            give(address)
        self._add_norm("add_norm", layer, x, residual, weights["add_norm"], tokens)
        gate_up, gated = take(4 * tokens * c.ffn), take(2 * tokens * c.ffn)
        self._product(x, weights["gate_up"], gate_up)
        give(x)
        values = {"out": gated, "input": gate_up, "d": c.ffn, "limit": 0.0, "alpha": 1.0, "beta": 0.0}
        self._launch("activation", layer, tokens, SILU, "silu", (tokens, 1, 1), values)
        x = take(2 * tokens * c.hidden)
        self._product(gated, weights["down"], x)
        give(gate_up)
        give(gated)
        following = self.weights[layer + 1]["input_norm"] if layer + 1 < c.layers else self.norm
        self._add_norm("after", layer, x, residual, following, tokens)
        return x

    def _norm(
        self, part: str, layer: int, symbol: str, out: int, x: int, weight: int, width: int, rows: int, **strides: int
    ) -> None:
        values: dict[str, Any] = {
            "out": out,
            "input": x,
            "input_stride_d2": width,
            "input_stride_d3": 0,
            "input_stride_d4": 0,
            "input_shape_d2": 0,
            "input_shape_d3": 0,
            "weight": weight,
            "epsilon": self.config.norm_eps,
            "num_tokens": rows,
            "hidden_size": width,
        }
        tokens = strides.pop("tokens", rows)
        self._launch(part, layer, tokens, symbol, "layernorm", (rows, 1, 1), values | strides)

    def _head_norm(self, part: str, layer: int, out: int, x: int, weight: int, heads: int, tokens: int) -> None:
        c = self.config
        row = c.qkv_size if tokens > 1 else heads * c.head_dim
        shape = {"input_stride_d3": row, "input_shape_d2": heads, "tokens": tokens}
        self._norm(part, layer, HEAD_NORM, out, x, weight, c.head_dim, tokens * heads, **shape)

    def _rotary(self, layer: int, q: int, k: int, tokens: int) -> None:
        c = self.config
        values = {
            "positions": self.positions,
            "query": q,
            "key": k,
            "cos_sin_cache": self.cos_sin,
            "rot_dim": c.head_dim,
            "query_stride": c.q_size,
            "key_stride": c.kv_size,
            "head_stride": c.head_dim,
            "num_heads": c.heads,
            "num_kv_heads": c.kv_heads,
            "head_size": c.head_dim,
            "rope_dim_offset": 0,
            "inverse": 0,
        }
        self._launch("rotary", layer, tokens, ROTARY, "rotary", (tokens, 1, 1), values)

    def _cache(self, layer: int, key: int, value: int, tokens: int) -> None:
        c = self.config
        values = {
            "key": key,
            "value": value,
            "key_cache": self.pools[layer],
            "value_cache": self.pools[layer] + self.block,
            "slot_mapping": self.slots,
            "k_scale": self.scales[0],
            "v_scale": self.scales[1],
            "key_stride": c.kv_size,
            "value_stride": c.qkv_size if tokens > 1 else c.kv_size,
            "block_stride": self.block,
            "head_stride": c.head_dim,
            "dim_stride_k": 0,
            "dim_stride_v": 0,
            "page_stride": c.kv_size,
        }
        self._launch("cache", layer, tokens, "reshape_and_cache_kernel_flash", "cache", (tokens, 1, 1), values)

    def _attention(self, layer: int, q: int, out: int, tokens: int) -> None:
        c, several = self.config, tokens > 1
        pool = {"key_cache": self.pools[layer], "value_cache": self.pools[layer] + self.block}
        segments = [out] * 3 if several else self.parts
        values: dict[str, Any] = {
            "output": out,
            "query": q,
            **pool,
            "block_tables": self.blocks,
            "seq_lens": self.lengths,
            "scale": c.head_dim**-0.5,
            "k_scale": self.scales[0],
            "v_scale": self.scales[1],
            "out_scale": 1.0,
            "block_table_stride": 256,
            "query_stride_0": c.q_size,
            "query_stride_1": c.head_dim,
            "output_stride_0": c.q_size,
            "output_stride_1": c.head_dim,
            **{f"stride_{which}_cache_0": self.block for which in "kv"},
            **{f"stride_{which}_cache_1": c.kv_size for which in "kv"},
            **{f"stride_{which}_cache_2": c.head_dim for which in "kv"},
            "query_start_len": self.starts,
            "num_seqs": 1,
            **dict(zip(("segm_output", "segm_max", "segm_expsum"), segments, strict=True)),
            "k_scale_cache": pool["key_cache"],
            "v_scale_cache": pool["value_cache"],
        }
        grid = (tokens // (16 // (c.heads // c.kv_heads)) + 1, c.kv_heads, 1 if several else PARTS)
        which = "attention of several" if several else "attention of one"
        self._launch("attention", layer, tokens, "kernel_unified_attention", which, grid, values)
        if not several:
            names = ("output", "segm_output", "segm_max", "segm_expsum", "seq_lens", "query_start_len")
            names += ("output_stride_0", "output_stride_1", "block_table_stride")
            values = {name: values[name] for name in names} | {"out_scale_inv": 1.0}
            self._launch("reduce", layer, tokens, "reduce_segments", "reduce", (tokens, c.heads, 1), values)

    def _add_norm(self, part: str, layer: int, x: int, residual: int, weight: int, tokens: int) -> None:
        values = {
            "input": x,
            "input_stride": self.config.hidden,
            "residual": residual,
            "weight": weight,
            "epsilon": self.config.norm_eps,
            "num_tokens": tokens,
            "hidden_size": self.config.hidden,
        }
        self._launch(part, layer, tokens, ADD_NORM, "layernorm", (tokens, 1, 1), values)

    def _launch(
        self, part: str, layer: int, tokens: int, symbol: str, file: str, grid: Sequence[int], values: dict[str, Any]
    ) -> None:
        launch = Launched(part, layer, tokens, self.number, symbol, file, list(grid), values)
        self.doctor(launch)
        if launch.drop:
            return
        signature = signature_of(launch.symbol)
        sizes = launch.sizes or signature.layout.sizes
        kernel = self.recorder.kernel(launch.symbol, self.modules.get(launch.module), sizes)
        params, pointers = [], []
        for index, ((name, scalar), size) in enumerate(zip(signature.params, sizes, strict=False)):
            value = launch.values.get(name, 0)
            params.append(packed(float(value) if scalar == "f32" else value, size))
            if scalar is None and value:
                pointers.append(self._pointer(index, value))
        attributes = {"attributes": launch.attributes} if launch.attributes else {}
        where = {"grid": launch.grid, "block": launch.block, "shared": launch.shared, "stream": launch.stream}
        self.recorder.launch(kernel, params, pointers, **where, **attributes)

    def _product(self, *addresses: int) -> None:
        self._other("nvjet_sm90_tst", *addresses)

    def _other(self, symbol: str, *addresses: int) -> None:
        """A kernel of which only the addresses are known."""
        kernel = self.recorder.kernel(symbol, self.other, [8] * len(addresses))
        pointers = [self._pointer(index, address) for index, address in enumerate(addresses)]
        self.recorder.launch(kernel, [packed(address, 8) for address in addresses], pointers)

    def _pointer(self, param: int, address: int) -> dict[str, Any]:
        known = (each for each in self.memory.ranges if each[0] <= address < sum(each))
        return {"param": param, "at": 0, "memory": "device", "range": next(known, (address, 4096))}
