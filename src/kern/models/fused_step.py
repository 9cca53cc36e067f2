"""A decoder layer of a step of one token a sequence in five dispatches, for kernels that fuse what is around a product.

A product takes its norm in front, and the addition to the residual stream before that. Every block of such a kernel
norms for itself, and one writes the new residual; so the stream alternates between two buffers.
"""

from __future__ import annotations

from collections.abc import Mapping

from kern.manifest.builder import ManifestBuilder, ProgramBuilder
from kern.manifest.types import Kernel
from kern.models.buffers import Buffers
from kern.models.weights import ROPE_TABLE


def fuses_steps(kernels: Mapping[str, Kernel]) -> bool:
    """Whether the kernels have the entries that this needs."""
    return "norm_matmul" in kernels


class FusedStep:
    """Writes the layers of a step."""

    def __init__(self, builder: ManifestBuilder, p: ProgramBuilder, b: Buffers) -> None:
        self.p, self.b, self.c = p, b, b.config
        self.residual_after = builder.workspace("residual_after", "f32", [b.tokens, b.config.hidden])

    def layer(self, layer: int) -> None:
        """Attention and MLP of one layer."""
        b, c, label = self.b, self.c, f"L{layer}."
        self.queries_keys_values(layer)
        self.attend(layer)
        o_proj, down = b.weight(layer, "o_proj"), b.weight(layer, "down_proj")
        self.p.dispatch(
            "output_matmul", b.delta, b.attended, o_proj, b.tokens, c.hidden, c.q_size, label=f"{label}o_proj"
        )
        norm, gate_up = b.weight(layer, "post_attention_norm"), b.weight(layer, "gate_up_proj")
        self.p.dispatch(
            "norm_gate_up",
            b.gated,
            self.residual_after,
            b.residual,
            b.delta,
            norm,
            gate_up,
            *(b.tokens, c.ffn, c.hidden, c.norm_eps),
            label=f"{label}gate_up_proj",
        )
        self.p.dispatch("down_matmul", b.delta, b.gated, down, b.tokens, c.hidden, c.ffn, label=f"{label}down_proj")

    def queries_keys_values(self, layer: int) -> None:
        """The product of the normed residual; the first layer's residual is the embedding itself."""
        b, c = self.b, self.c
        norm, matrix = b.weight(layer, "input_norm"), b.weight(layer, "qkv_proj")
        sizes = b.tokens, c.qkv_size, c.hidden, c.norm_eps
        label = f"L{layer}.qkv_proj"
        if layer == 0:
            table = b.weights["embedding"]
            self.p.dispatch(
                "embed_norm_matmul", b.qkv, b.residual, b.step_token, table, norm, matrix, *sizes, label=label
            )
        else:
            self.p.dispatch(
                "norm_matmul", b.qkv, b.residual, self.residual_after, b.delta, norm, matrix, *sizes, label=label
            )

    def attend(self, layer: int) -> None:
        """Head norms, rotation, cache write and attention."""
        b, c, rows = self.b, self.c, self.b.step_rows
        norms = [b.weight(layer, "q_norm"), b.weight(layer, "k_norm")] if c.qk_norm else []
        eps = [c.norm_eps] if c.qk_norm else []
        self.p.dispatch(
            "norm_append_attention" if c.qk_norm else "append_attention",
            b.attended,
            b.qkv,
            *norms,
            *(rows.positions, b.weights[ROPE_TABLE], b.layer_cache(layer), rows.slots, b.block_table, rows.lengths),
            *(b.pages, c.heads, c.kv_heads, c.head_dim, c.qkv_size, b.page_stride),
            *eps,
            c.head_dim**-0.5,
            label=f"L{layer}.attention",
        )

    def head(self) -> None:
        """Logits of every row."""
        b, c = self.b, self.c
        self.p.dispatch(
            "norm_matmul_f32",
            b.logits,
            self.residual_after,
            b.delta,
            b.weights["norm"],
            b.output_matrix,
            *(b.tokens, c.vocabulary, c.hidden, c.norm_eps),
            label="lm_head",
        )
