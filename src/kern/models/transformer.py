"""The transformer generator: a config becomes a manifest with programs prefill, decode, score and begin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kern.manifest.builder import Argument, ManifestBuilder, ProgramBuilder
from kern.manifest.expressions import Add
from kern.manifest.types import BufferArg, Kernel, Manifest, StateArg
from kern.models.config import TransformerConfig, UnsupportedModel
from kern.models.kernels.interfaces import MAX_HEAD_DIM
from kern.models.weights import ROPE_TABLE, weights_of
from kern.text.contract import PAGE

RING: Final = 64
"""Tokens that the ring holds: how far the device may run ahead of its reader."""
_BF16: Final = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """Greatest sizes of a call: tokens of a prefill and of a scoring chunk, sequences."""

    chunk: int = 512
    score_chunk: int = 64
    sequences: int = 1


@dataclass(frozen=True, slots=True)
class Rows:
    """What a program's rows are: where their ids, positions and slots stand, and how they attend."""

    ids: BufferArg
    positions: BufferArg
    slots: BufferArg
    attend: Callable[[ProgramBuilder, int, str], None]


def build_manifest(
    config: TransformerConfig, kernels: Mapping[str, Kernel], *, model: str, limits: Limits | None = None
) -> Manifest:
    """The manifest of a transformer over the entries of `kernels` (see `kern.models.kernels.interfaces`).

    `model` is its label. Raises UnsupportedModel where the kernels do not take a size.
    """
    if config.head_dim > MAX_HEAD_DIM:
        raise UnsupportedModel(f"head_dim is {config.head_dim}", f"the kernels take up to {MAX_HEAD_DIM}")
    transformer = _Transformer(config, kernels, model, limits or Limits())
    transformer.prefill()
    transformer.decode()
    transformer.score()
    transformer.begin()
    return transformer.builder.build()


class _Transformer:
    """The buffers of one transformer, and its layers as dispatches."""

    def __init__(self, config: TransformerConfig, kernels: Mapping[str, Kernel], model: str, limits: Limits) -> None:
        self.config, self.limits = config, limits
        self.builder = b = ManifestBuilder(model)
        for name, kernel in kernels.items():
            b.kernel(name, kernel)
        self.tokens = tokens = b.symbol("tokens", max=limits.chunk)
        self.seqs = seqs = b.symbol("seqs", max=limits.sequences)
        self.pages = pages = b.symbol("pages", max=-(-config.max_positions // PAGE))
        # A page holds all layers: [layer][keys or values][kv_heads][PAGE][head_dim].
        self.cache = b.state("kv", bytes_per_token=config.layers * 2 * config.kv_size * _BF16, granule=PAGE)
        self.page_stride = config.layers * 2 * config.kv_size * PAGE

        self.token_ids = b.input("token_ids", "i64", [tokens])
        self.positions = b.input("positions", "i64", [tokens])
        self.slot_mapping = b.input("slot_mapping", "i64", [tokens])
        self.block_table = b.input("block_table", "i32", [seqs, pages])
        self.seq_lens = b.input("seq_lens", "i32", [seqs])
        self.cu_seqlens_q = b.input("cu_seqlens_q", "i32", [Add(add=(seqs, 1))])
        self.targets = b.input("targets", "i64", [tokens])
        self.next_token = b.output("next_token", "i64", [seqs])
        self.nll = b.output("nll", "f32", [tokens])

        self.step_token = b.carry("step_token", "i64", [seqs])
        self.step_position = b.carry("step_position", "i64", [seqs])
        self.step_slot = b.carry("step_slot", "i64", [seqs])
        self.step_length = b.carry("step_length", "i32", [seqs])
        self.token_ring = b.carry("token_ring", "i64", [seqs, RING])

        self.residual = b.workspace("residual", "f32", [tokens, config.hidden])
        self.normed = b.workspace("normed", "bf16", [tokens, config.hidden])
        self.qkv = b.workspace("qkv", "bf16", [tokens, config.qkv_size])
        self.attended = b.workspace("attended", "bf16", [tokens, config.q_size])
        self.delta = b.workspace("delta", "bf16", [tokens, config.hidden])
        self.gate_up = b.workspace("gate_up", "bf16", [tokens, 2 * config.ffn])
        self.gated = b.workspace("gated", "bf16", [tokens, config.ffn])
        self.logits = b.workspace("logits", "f32", [tokens, config.vocabulary])
        self.weights = {w.name: b.weight(w.name, w.dtype, w.shape) for w in weights_of(config).values()}

    # Programs

    def prefill(self) -> None:
        """Leave the state of a chunk of tokens, and nothing else: what no state depends on is not computed."""
        p = self.builder.program("prefill")
        rows = self.rows_of_a_chunk()
        self.embed(p, rows)
        last = self.config.layers - 1
        for layer in range(last):
            self.decoder_layer(p, layer, rows)
        self.keys_and_values(p, last, rows)

    def decode(self) -> None:
        """One token a sequence, fed by the step before; chooses the next one greedily."""
        most = self.limits.sequences
        p = self.builder.program("decode", tokens=(1, most))
        rows = Rows(self.step_token, self.step_position, self.step_slot, self.attention_decode)
        self.embed(p, rows)
        for layer in range(self.config.layers):
            self.decoder_layer(p, layer, rows)
        self.head(p)
        p.dispatch("argmax", self.next_token, self.logits, self.config.vocabulary, label="argmax")
        p.dispatch(
            "advance",
            *self.carries(),
            self.next_token,
            self.block_table,
            self.seqs,
            self.pages,
            RING,
            label="advance",
        )

    def score(self) -> None:
        """The negative log-likelihood of each row's target."""
        p = self.builder.program("score", tokens=(1, self.limits.score_chunk))
        rows = self.rows_of_a_chunk()
        self.embed(p, rows)
        for layer in range(self.config.layers):
            self.decoder_layer(p, layer, rows)
        self.head(p)
        p.dispatch("token_nll", self.nll, self.logits, self.targets, self.config.vocabulary, label="nll")

    def begin(self) -> None:
        """Take the inputs as the step that decode runs next."""
        p = self.builder.program("begin", tokens=(1, self.limits.sequences))
        inputs = self.token_ids, self.positions, self.slot_mapping, self.seq_lens
        p.dispatch("begin", *self.carries(), *inputs, self.seqs, RING, label="begin")

    def rows_of_a_chunk(self) -> Rows:
        return Rows(self.token_ids, self.positions, self.slot_mapping, self.attention_prefill)

    def carries(self) -> tuple[BufferArg, ...]:
        return self.step_token, self.step_position, self.step_slot, self.step_length, self.token_ring

    # Parts

    def embed(self, p: ProgramBuilder, rows: Rows) -> None:
        table = self.weights["embedding"]
        p.dispatch("embedding", self.residual, rows.ids, table, self.config.hidden, label="embedding")

    def decoder_layer(self, p: ProgramBuilder, layer: int, rows: Rows) -> None:
        c, weight = self.config, self.layer_weights(layer)
        self.keys_and_values(p, layer, rows)
        rows.attend(p, layer, f"L{layer}.attention")
        self.matmul(p, self.delta, self.attended, weight("o_proj"), c.hidden, c.q_size, f"L{layer}.o_proj")

        self.add_norm(p, weight("post_attention_norm"), f"L{layer}.post_attention_norm")
        gate_up, down = weight("gate_up_proj"), weight("down_proj")
        self.matmul(p, self.gate_up, self.normed, gate_up, 2 * c.ffn, c.hidden, f"L{layer}.gate_up_proj")
        p.dispatch("silu_mul", self.gated, self.gate_up, c.ffn, label=f"L{layer}.silu_mul")
        self.matmul(p, self.delta, self.gated, down, c.hidden, c.ffn, f"L{layer}.down_proj")

    def keys_and_values(self, p: ProgramBuilder, layer: int, rows: Rows) -> None:
        """A layer up to its cache: the residual of the layer before, queries, keys and values."""
        c, weight, label = self.config, self.layer_weights(layer), f"L{layer}."
        if layer == 0:
            norm = weight("input_norm")
            p.dispatch("rms_norm", self.normed, self.residual, norm, c.hidden, c.norm_eps, label=f"{label}input_norm")
        else:
            self.add_norm(p, weight("input_norm"), f"{label}input_norm")
        self.matmul(p, self.qkv, self.normed, weight("qkv_proj"), c.qkv_size, c.hidden, f"{label}qkv_proj")
        if c.qk_norm:
            norms = ("q_head_norm", self.queries(), "q_norm"), ("k_head_norm", self.keys(), "k_norm")
            for kernel, heads, name in norms:
                p.dispatch(kernel, heads, weight(name), c.head_dim, c.qkv_size, c.norm_eps, label=f"{label}{name}")
        table = self.weights[ROPE_TABLE]
        p.dispatch("rope", self.qkv, rows.positions, table, c.head_dim, c.qkv_size, label=f"{label}rope")
        p.dispatch(
            "cache_write",
            self.keys(),
            self.values(),
            self.layer_cache(layer),
            rows.slots,
            c.kv_heads,
            c.head_dim,
            c.qkv_size,
            self.page_stride,
            label=f"{label}cache_write",
        )

    def attention_prefill(self, p: ProgramBuilder, layer: int, label: str) -> None:
        lengths = self.block_table, self.seq_lens, self.cu_seqlens_q
        self.attention(p, "attention_prefill", layer, lengths, label)

    def attention_decode(self, p: ProgramBuilder, layer: int, label: str) -> None:
        self.attention(p, "attention_decode", layer, (self.block_table, self.step_length), label)

    def attention(self, p: ProgramBuilder, kernel: str, layer: int, lengths: tuple[Argument, ...], label: str) -> None:
        c = self.config
        heads = c.heads, c.kv_heads, c.head_dim
        p.dispatch(
            kernel,
            self.attended,
            self.queries(),
            self.layer_cache(layer),
            *lengths,
            self.seqs,
            self.pages,
            *heads,
            c.qkv_size,
            self.page_stride,
            c.head_dim**-0.5,
            label=label,
        )

    def head(self, p: ProgramBuilder) -> None:
        """Logits of every row; with tied embeddings the embedding table is the output matrix."""
        c = self.config
        matrix = self.weights["embedding" if c.tied_embeddings else "lm_head"]
        self.add_norm(p, self.weights["norm"], "norm")
        p.dispatch("matmul_f32", self.logits, self.normed, matrix, self.tokens, c.vocabulary, c.hidden, label="lm_head")

    def add_norm(self, p: ProgramBuilder, weight: BufferArg, label: str) -> None:
        c = self.config
        p.dispatch("add_rms_norm", self.normed, self.residual, self.delta, weight, c.hidden, c.norm_eps, label=label)

    def matmul(
        self, p: ProgramBuilder, out: BufferArg, x: BufferArg, weight: BufferArg, n: int, k: int, label: str
    ) -> None:
        p.dispatch("matmul", out, x, weight, self.tokens, n, k, label=label)

    # Views

    def layer_weights(self, layer: int) -> Callable[[str], BufferArg]:
        return lambda name: self.weights[f"layers.{layer}.{name}"]

    def queries(self) -> BufferArg:
        return self.qkv

    def keys(self) -> BufferArg:
        return BufferArg(buf=self.qkv.buf, offset=self.config.q_size * _BF16)

    def values(self) -> BufferArg:
        return BufferArg(buf=self.qkv.buf, offset=(self.config.q_size + self.config.kv_size) * _BF16)

    def layer_cache(self, layer: int) -> StateArg:
        return StateArg(state=self.cache.state, offset=layer * 2 * self.config.kv_size * PAGE * _BF16)
