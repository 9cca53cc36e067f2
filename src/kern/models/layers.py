"""A decoder's layers as a table of operations, and the walk that writes a table into a program.

The table here has one dispatch for each operation; those of `fused_layers` and `unfused_layers` are for other kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kern.checkpoints.config import TransformerConfig
from kern.kernels.interfaces import INTERFACES
from kern.manifest.builder import BuilderError, ProgramBuilder
from kern.manifest.types import Kernel
from kern.models.buffers import LayerBuffers, Names

Attention = Literal["attention_prefill", "attention_decode", "attention_full"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One dispatch: its label, its kernel, and what the kernel's parameters take.

    A parameter takes a number, or what is known by the given name; where nothing is given, by the parameter's own name.
    """

    label: str
    kernel: str
    given: Mapping[str, str | int]


def op(label: str, kernel: str, **given: str | int) -> Operation:
    """An operation: `op("norm", "rms_norm", y="normed", x="residual", weight="norm")`."""
    return Operation(label, kernel, given)


@dataclass(frozen=True, slots=True)
class LayerTable:
    """The operations of a decoder in their order.

    `to_cache` is a layer up to its keys and values in the cache, `from_cache` the rest of it. Layer 0 begins with
    `first` in place of as many operations of `to_cache`: no output of an earlier layer is left to add. `norm` is what
    follows the last layer; it leaves what the `head` reads in the buffer that is known as `normed`.
    """

    embedding: Operation
    first: tuple[Operation, ...]
    to_cache: tuple[Operation, ...]
    from_cache: tuple[Operation, ...]
    norm: tuple[Operation, ...]
    head: tuple[Operation, ...]
    normed: str = "normed"


Taps: TypeAlias = Mapping[tuple[int, str], tuple[Operation, ...]]
"""Operations to add to single layers, by the layer and the label of the operation that they follow."""


def write(p: ProgramBuilder, names: Names, *operations: Operation, prefix: str = "") -> None:
    """Dispatch operations, their labels behind `prefix`, their arguments found in `names`. Raises BuilderError."""
    for operation in operations:
        label, kernel = prefix + operation.label, operation.kernel
        given = {**{param: param for param in INTERFACES[kernel]}, **operation.given}
        for param, value in given.items():
            if isinstance(value, str) and value not in names:
                raise BuilderError(f"{label}: unknown name `{value}` for the parameter `{param}` of `{kernel}`")
        p.dispatch(kernel, **{p: names[v] if isinstance(v, str) else v for p, v in given.items()}, label=label)


def write_decoder(
    p: ProgramBuilder,
    buffers: LayerBuffers,
    rows: Names,
    table: LayerTable,
    taps: Taps | None = None,
    *,
    states_only: bool = False,
) -> None:
    """A table's operations for the rows of a program, up to the norm before the head.

    `states_only`: no operation that neither keys and values nor taps depend on. Raises BuilderError.
    """
    shared, last = {**buffers.names, **rows}, buffers.config.layers - 1
    for layer in range(last + 1):
        names = shared | buffers.names_of(layer)
        if layer == 0:
            write(p, names, table.embedding)
        first = table.first if layer == 0 else ()
        rest = () if states_only and layer == last else table.from_cache
        for operation in (*first, *table.to_cache[len(first) :], *rest):
            write(p, names, operation, prefix=f"L{layer}.")
            write(p, names, *(taps or {}).get((layer, operation.label), ()))
    if not states_only:
        write(p, shared, *table.norm)


def plain_layers(config: TransformerConfig, kernels: Mapping[str, Kernel], attention: Attention) -> LayerTable:
    """One dispatch for each operation; the output of an MLP is added by the norm that follows it.

    Where the kernels have an entry for head norms, rotation and cache write in one, it replaces the three.
    """
    fused = "norm_rope_cache" if config.qk_norm else "rope_cache"
    head_norms = (
        op("q_norm", "q_head_norm", heads="queries", weight="q_norm"),
        op("k_norm", "k_head_norm", heads="keys", weight="k_norm"),
    )
    cache = (
        *(head_norms if config.qk_norm else ()),
        op("rope", "rope"),
        op("cache_write", "cache_write", k="keys", v="values"),
    )
    return LayerTable(
        embedding=op("embedding", "embedding", x="residual", table="embedding"),
        first=(op("input_norm", "rms_norm", y="normed", x="residual", weight="input_norm"),),
        to_cache=(
            op("input_norm", "add_rms_norm", y="normed", x="residual", weight="input_norm"),
            op("qkv_proj", "matmul", y="qkv", x="normed", w="qkv_proj", n="qkv_size", k="hidden"),
            *((op(fused, fused),) if fused in kernels else cache),
        ),
        from_cache=(
            op("attention", attention, o="attended", q="queries"),
            op("o_proj", "matmul", y="delta", x="attended", w="o_proj", n="hidden", k="q_size"),
            op("post_attention_norm", "add_rms_norm", y="normed", x="residual", weight="post_attention_norm"),
            op("gate_up_proj", "matmul", y="gate_up", x="normed", w="gate_up_proj", n="gate_up_size", k="hidden"),
            op("silu_mul", "silu_mul", y="gated"),
            op("down_proj", "matmul", y="delta", x="gated", w="down_proj", n="hidden", k="ffn"),
        ),
        norm=(op("norm", "add_rms_norm", y="normed", x="residual", weight="norm"),),
        head=(op("lm_head", "matmul_f32", y="logits", x="normed", w="output_matrix", n="vocabulary", k="hidden"),),
    )
