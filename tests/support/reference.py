"""A transformer's forward pass in float32 numpy: what kernels, export and generator are measured against.

It shares no code with them. `pairwise` rotates neighbouring elements of a head, as llama.cpp does with the
tensors of a GGUF file, so that such a file can be used as it is; otherwise halves are rotated, as Hugging Face's
models do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kern.checkpoints.config import TransformerConfig

F32 = NDArray[np.float32]

SMOLLM2_CONFIG = TransformerConfig(
    family="llama",
    layers=30,
    hidden=576,
    ffn=1536,
    heads=9,
    kv_heads=3,
    head_dim=64,
    vocabulary=49152,
    max_positions=8192,
    rope_theta=1e5,
    norm_eps=float(np.float32(1e-5)),
    tied_embeddings=True,
    qk_norm=False,
)
"""SmolLM2-135M, as its publisher describes it."""


@dataclass(frozen=True)
class Reference:
    """A model: its sizes, and its parameters by Hugging Face name."""

    config: TransformerConfig
    tensor: Callable[[str], NDArray[Any]]
    pairwise: bool = False

    def logits(self, ids: Sequence[int]) -> F32:
        """f32 [tokens, vocabulary]: what follows each of `ids`."""
        x = self.outputs(ids)[-1]
        head = "model.embed_tokens" if self.config.tied_embeddings else "lm_head"
        return self._norm(x, "model.norm") @ self._weight(head).T

    def outputs(self, ids: Sequence[int]) -> list[F32]:
        """f32 [tokens, hidden], the residual stream behind each layer."""
        x, outputs = self._weight("model.embed_tokens")[np.asarray(ids, int)], []
        for layer in range(self.config.layers):
            x = x + self._attention(x, f"model.layers.{layer}.")
            x = x + self._mlp(x, f"model.layers.{layer}.")
            outputs.append(x)
        return outputs

    def nll(self, ids: Sequence[int]) -> float:
        """Mean negative log-likelihood of all but the first token, in nats."""
        logits = self.logits(ids[:-1]).astype(np.float64)
        top = logits.max(axis=1, keepdims=True)
        log_sum = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
        return float(np.mean(log_sum - logits[np.arange(len(ids) - 1), list(ids[1:])]))

    def greedy(self, prompt: Sequence[int], count: int) -> tuple[list[int], list[float]]:
        """Ids chosen one after another, and the margin of each over the second best."""
        ids, margins = list(prompt), []
        for _ in range(count):
            last = self.logits(ids)[-1]
            second, first = np.sort(last)[-2:]
            ids.append(int(np.argmax(last)))
            margins.append(float(first - second))
        return ids[len(prompt) :], margins

    def _weight(self, name: str) -> F32:
        return self.tensor(f"{name}.weight").astype(np.float32)

    def _norm(self, x: F32, name: str) -> F32:
        scale = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(self.config.norm_eps))
        return (x * scale * self._weight(name)).astype(np.float32)

    def _mlp(self, x: F32, layer: str) -> F32:
        y = self._norm(x, layer + "post_attention_layernorm")
        gate = y @ self._weight(layer + "mlp.gate_proj").T
        up = y @ self._weight(layer + "mlp.up_proj").T
        return (gate / (1 + np.exp(-gate)) * up) @ self._weight(layer + "mlp.down_proj").T

    def _attention(self, x: F32, layer: str) -> F32:
        c, y, tokens = self.config, self._norm(x, layer + "input_layernorm"), len(x)
        layer += "self_attn."

        def heads(name: str) -> F32:
            return (y @ self._weight(layer + name).T).reshape(tokens, -1, c.head_dim)

        q, k, v = heads("q_proj"), heads("k_proj"), heads("v_proj")
        if c.qk_norm:
            q, k = self._norm(q, layer + "q_norm"), self._norm(k, layer + "k_norm")
        q, k = self._rotate(q), self._rotate(k)
        k, v = (np.repeat(part, c.heads // c.kv_heads, axis=1) for part in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.float32(np.sqrt(c.head_dim))
        scores[:, np.triu(np.ones((tokens, tokens), dtype=bool), 1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", weights, v).reshape(tokens, -1)
        return mixed @ self._weight(layer + "o_proj").T

    def _rotate(self, heads: F32) -> F32:
        tokens, _, size = heads.shape
        angles = np.arange(tokens)[:, None] * self.config.rope_theta ** (-np.arange(0, size, 2) / size)
        turn = np.exp(1j * angles)[:, None, :]
        out = np.empty_like(heads)
        first, second = (np.s_[..., ::2], np.s_[..., 1::2])
        if not self.pairwise:
            first, second = (np.s_[..., : size // 2], np.s_[..., size // 2 :])
        turned = (heads[first] + 1j * heads[second]) * turn
        out[first], out[second] = turned.real, turned.imag
        return out


def gguf_tensors(path: Path) -> Callable[[str], NDArray[Any]]:
    """The tensors of a GGUF file as they are stored, dequantised, by Hugging Face name."""
    from gguf import GGUFReader
    from gguf.quants import dequantize

    stored = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    parts = {
        "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
        "model.layers": "blk", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }  # fmt: skip

    def tensor(name: str) -> NDArray[Any]:
        for theirs, ours in parts.items():
            name = name.replace(theirs, ours)
        return dequantize(stored[name].data, stored[name].tensor_type)  # type: ignore[no-any-return]

    return tensor
