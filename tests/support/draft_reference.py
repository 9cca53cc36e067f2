"""A DSpark draft's forward pass in float32 numpy, and random drafts as folders; it shares no code with kern's.

Written from the paper's description (arXiv 2607.05147): features of the context go to every layer as keys and values,
a block of an anchor and masks attends to them and to itself in both directions, and each token drafted adds to the
logits of the next.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from support.hf_folder import save_tensors
from support.reference import F32, Reference

Tensors = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class DraftReference:
    """A draft: the values of its config.json, its published tensors, and the model it drafts for."""

    config: Mapping[str, Any]
    tensors: Tensors
    target: Reference
    contexts: dict[tuple[int, ...], F32] = field(default_factory=dict)

    def features(self, ids: Sequence[int], shift: int = 0) -> F32:
        """f32 [tokens, hidden]: fc of the tapped layers' outputs; `shift`: of layers so much later."""
        if not ids:
            return np.empty((0, self.config["hidden_size"]), np.float32)
        outputs = self.target.outputs(ids)
        tapped = np.concatenate([outputs[tap + shift] for tap in self.config["target_layer_ids"]], axis=1)
        return tapped @ self._of("fc").T

    def context(self, ids: Sequence[int]) -> F32:
        """f32 [tokens, hidden]: what every layer's keys and values of the context are made of; the last is kept."""
        key = tuple(ids)
        if key not in self.contexts:
            self.contexts.clear()
            self.contexts[key] = self._norm(self.features(ids), "hidden_norm")
        return self.contexts[key]

    def keys_and_values(self, layer: int, ids: Sequence[int]) -> tuple[F32, F32]:
        """f32 [tokens, kv_heads, head_dim] of the context that starts at position 0."""
        return self._keys_and_values(f"layers.{layer}.self_attn.", self.context(ids), 0)

    def hidden(self, ids: Sequence[int], anchor: int) -> F32:
        """f32 [block, hidden], normed: the block whose anchor follows `ids`."""
        block = [anchor] + [self.config["mask_token_id"]] * (self.config["block_size"] - 1)
        x, context = self._table("embed_tokens")[block], self.context(ids)
        for layer in range(self.config["num_hidden_layers"]):
            name = f"layers.{layer}."
            x = x + self._attention(self._norm(x, name + "input_layernorm"), context, name + "self_attn.")
            x = x + self._mlp(self._norm(x, name + "post_attention_layernorm"), name + "mlp.")
        return self._norm(x, "norm")

    def logits(self, ids: Sequence[int], anchor: int) -> F32:
        """f32 [block, vocabulary], before what the tokens drafted add."""
        return self.hidden(ids, anchor) @ self._table("lm_head").T

    def bias(self, token: int) -> F32:
        """f32 [vocabulary]: what a token adds to the logits of the next."""
        return self._of("markov_head.markov_w2") @ self._of("markov_head.markov_w1")[token]

    def tokens(self, ids: Sequence[int], anchor: int) -> tuple[list[int], list[float]]:
        """The drafts, and the margin of each over the second best."""
        drafts, margins = [anchor], []
        for row in self.logits(ids, anchor):
            row = row + self.bias(drafts[-1])
            second, first = np.sort(row)[-2:]
            margins.append(float(first - second))
            drafts.append(int(np.argmax(row)))
        return drafts[1:], margins

    def _of(self, name: str) -> F32:
        return self.tensors[f"{name}.weight"].astype(np.float32)

    def _table(self, name: str) -> F32:
        if f"{name}.weight" in self.tensors:
            return self._of(name)
        tied = name == "embed_tokens" or self.target.config.tied_embeddings
        return self.target.tensor("model.embed_tokens.weight" if tied else "lm_head.weight").astype(np.float32)

    def _norm(self, x: F32, name: str) -> F32:
        mean = np.mean(x * x, axis=-1, keepdims=True)
        return (x / np.sqrt(mean + np.float32(self.config["rms_norm_eps"])) * self._of(name)).astype(np.float32)

    def _keys_and_values(self, name: str, x: F32, start: int) -> tuple[F32, F32]:
        dim = self.config["head_dim"]
        heads = self.config["num_key_value_heads"]
        k, v = ((x @ self._of(name + part).T).reshape(len(x), heads, dim) for part in ("k_proj", "v_proj"))
        return self._placed(k, name + "k_norm", start), v

    def _attention(self, y: F32, context: F32, name: str) -> F32:
        dim, start = self.config["head_dim"], len(context)
        q = self._placed((y @ self._of(name + "q_proj").T).reshape(len(y), -1, dim), name + "q_norm", start)
        (k, v), (block_k, block_v) = self._keys_and_values(name, context, 0), self._keys_and_values(name, y, start)
        group = q.shape[1] // block_k.shape[1]
        k, v = (np.repeat(np.concatenate(part), group, axis=1) for part in ((k, block_k), (v, block_v)))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(dim)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return np.einsum("hqk,khd->qhd", weights, v).reshape(len(y), -1) @ self._of(name + "o_proj").T

    def _placed(self, heads: F32, norm: str, start: int) -> F32:
        """Heads normed where the draft norms them, turned to their positions from `start` on."""
        if f"{norm}.weight" in self.tensors:
            heads = self._norm(heads, norm)
        size = heads.shape[-1]
        angles = np.arange(start, start + len(heads))[:, None] * self.config["rope_theta"] ** (
            -np.arange(0, size, 2) / size
        )
        turned = (heads[..., : size // 2] + 1j * heads[..., size // 2 :]) * np.exp(1j * angles)[:, None]
        return np.concatenate([turned.real, turned.imag], axis=-1).astype(np.float32)

    def _mlp(self, y: F32, name: str) -> F32:
        gate, up = y @ self._of(name + "gate_proj").T, y @ self._of(name + "up_proj").T
        return (gate / (1 + np.exp(-gate)) * up) @ self._of(name + "down_proj").T


def draft_config(target: Reference, **changes: Any) -> dict[str, Any]:
    """config.json of a draft of two layers for a target, as its publisher would write it."""
    c = target.config
    return {
        "architectures": ["Qwen3DSparkModel"], "model_type": "qwen3", "num_hidden_layers": 2,
        "hidden_size": c.hidden, "intermediate_size": c.ffn, "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads, "head_dim": c.head_dim, "vocab_size": c.vocabulary,
        "max_position_embeddings": c.max_positions, "rope_theta": c.rope_theta, "rms_norm_eps": 1e-6,
        "attention_bias": False, "tie_word_embeddings": False, "num_target_layers": c.layers, "num_anchors": 512,
        "target_layer_ids": [0, 2, c.layers - 2], "block_size": 7, "mask_token_id": c.vocabulary - 1,
        "markov_rank": 48, "markov_head_type": "vanilla", "enable_confidence_head": False, **changes,
    }  # fmt: skip


def draft_tensors(config: Mapping[str, Any], seed: int, own: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Random tensors in bf16; `own` of `embed_tokens` and `lm_head` are the draft's."""
    hidden, ffn, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    table, rank = config["vocab_size"], config["markov_rank"]
    layer = {
        "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (q, hidden), "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, q),
        "mlp.gate_proj": (ffn, hidden), "mlp.up_proj": (ffn, hidden), "mlp.down_proj": (hidden, ffn),
    }  # fmt: skip
    if config["model_type"] == "qwen3":
        layer |= {"self_attn.q_norm": (dim,), "self_attn.k_norm": (dim,)}
    shapes: dict[str, tuple[int, ...]] = {
        "fc": (hidden, len(config["target_layer_ids"]) * hidden), "hidden_norm": (hidden,), "norm": (hidden,),
        "markov_head.markov_w1": (table, rank), "markov_head.markov_w2": (table, rank),
        **dict.fromkeys(own, (table, hidden)),
    }  # fmt: skip
    for i in range(config["num_hidden_layers"]):
        shapes |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
    rng = np.random.default_rng(seed)

    def drawn(name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        values = rng.normal(1, 0.1, shape) if len(shape) == 1 else rng.normal(0, shape[-1] ** -0.5, shape)
        # The Markov head as strong as the logits, so that forgetting it is seen.
        return (values * (2 if "markov" in name else 1)).astype(ml_dtypes.bfloat16)

    return {f"{name}.weight": drawn(name, shape) for name, shape in shapes.items()}


def save_draft(folder: Path, config: Mapping[str, Any], tensors: Tensors) -> Path:
    """A draft as it is published."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_tensors(folder / "model.safetensors", dict(tensors))
    return folder
