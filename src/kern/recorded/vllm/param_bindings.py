"""Where each step of an entry comes from: the part of a layer that shows it, and how its parameters are wired.

A parameter that is not wired is a constant of the implementation: a scalar has the recorded value, and an address is
null. Those are the ones that the bf16 instances never follow: scales of quantised keys and values, the other mode's
outputs, memory that Triton itself might want. An instance that did follow one would fault, not read garbage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from kern.recorded.vllm.parse_pass import Call, Forward

Wires: TypeAlias = Mapping[str, str]
"""The kernel's parameter → the entry's that is given to it, or scratch, as `Entry.bind` takes them."""

TOKEN_STRIDES: Final = frozenset({"input_stride_d3", "query_stride", "key_stride", "value_stride"})
"""Strides from token to token that an engine may give any value where there is but one token."""

_NORM: Final[Wires] = {
    "out": "y",
    "input": "x",
    "weight": "weight",
    "num_tokens": "rows",
    "hidden_size": "width",
    "epsilon": "eps",
}
_ADD_NORM: Final[Wires] = {
    "input": "delta",
    "residual": "x",
    "weight": "weight",
    "num_tokens": "tokens",
    "hidden_size": "hidden",
    "epsilon": "eps",
}
_ROTARY: Final[Wires] = {"query": "q", "key": "k", "positions": "positions", "cos_sin_cache": "cos_sin"}
_CACHE: Final[Wires] = {
    "key": "k",
    "value": "v",
    "key_cache": "key_cache",
    "value_cache": "value_cache",
    "slot_mapping": "slots",
    "block_stride": "page_stride",
}
_READ: Final[Wires] = {
    "query": "q",
    "key_cache": "key_cache",
    "value_cache": "value_cache",
    "block_tables": "block_table",
    "seq_lens": "seq_lens",
    "query_start_len": "cu_seqlens",
    "num_seqs": "seqs",
    "stride_k_cache_0": "page_stride",
    "stride_v_cache_0": "page_stride",
    "scale": "scale",
}
_SEGMENTS: Final = ("segm_output", "segm_max", "segm_expsum")
_ATTENTION: Final[Wires] = {"output": "o", **_READ}
_ATTENTION_PARTS: Final[Wires] = {**_READ, **{name: f"out {name}" for name in _SEGMENTS}}
_REDUCE: Final[Wires] = {
    "output": "o",
    **{name: f"in {name}" for name in _SEGMENTS},
    "seq_lens": "seq_lens",
    "query_start_len": "cu_seqlens",
}
_ACTIVATION: Final[Wires] = {"out": "y", "input": "gate_up", "d": "ffn"}


@dataclass(frozen=True, slots=True)
class Source:
    """One step of `entry`, shown by `parts` of every layer (or by the pass's `input_norm`).

    `single`: it is taken from passes of one token (True) or of several (False) alone; None: from both.
    """

    entry: str
    parts: tuple[str, ...]
    wires: Wires
    single: bool | None = None

    def calls(self, forward: Forward) -> list[Call]:
        """The launches of a pass that show it."""
        if self.single is not None and self.single != (forward.tokens == 1):
            return []
        if self.parts == ("input_norm",):
            return [forward.input_norm]
        return [getattr(layer, part) for layer in forward.layers for part in self.parts]

    def literals(self, call: Call) -> list[str]:
        """The scalars that are constants of the implementation, and that the call shows."""
        masked = TOKEN_STRIDES if call.tokens == 1 else frozenset()
        params = call.signature.params
        return [name for name, scalar in params if scalar is not None and name not in self.wires and name not in masked]


SOURCES: Final = (
    Source("rms_norm_bf16", ("input_norm",), _NORM),
    Source("q_norm_unfused", ("q_norm",), _NORM),
    Source("k_norm_unfused", ("k_norm",), _NORM),
    Source("rope_unfused", ("rotary",), _ROTARY),
    Source("cache_write_unfused", ("cache",), _CACHE),
    Source("attention_prefill_unfused", ("attention",), _ATTENTION, single=False),
    Source("attention_decode_unfused", ("attention",), _ATTENTION_PARTS, single=True),
    Source("attention_decode_unfused", ("reduce",), _REDUCE, single=True),
    Source("add_rms_norm_bf16", ("add_norm", "after"), _ADD_NORM),
    Source("silu_mul", ("activation",), _ACTIVATION),
)
"""Every recorded step, those of one entry in the order in which they are launched."""
