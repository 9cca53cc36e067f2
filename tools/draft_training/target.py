"""The target in torch: a whole sequence with taps, and one token at a time for generation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from draft_training.layers import keys_values, mlp, queries, rms_norm
from kern.checkpoints.checkpoint import Checkpoint
from kern.checkpoints.config import parameter_shapes


@dataclass(frozen=True)
class Traced:
    """A pass over whole sequences: what the output projection reads, and what the draft does.

    `hidden` f32 [batch, tokens, hidden] is normalised; `features` f32 [batch, tokens, taps · hidden] holds the residual
    stream at the output of each tapped layer, in ascending order.
    """

    hidden: Tensor
    features: Tensor


class Target:
    """A llama or qwen3 model whose weights are those that a build stores: rounded to bf16, computed with in float32."""

    def __init__(self, checkpoint: Checkpoint, device: torch.device) -> None:
        """Load every tensor to the device. Raises CheckpointError and ArtifactError."""
        self.config = checkpoint.config
        self.device = device
        self.weights = {
            name: torch.from_numpy(np.array(checkpoint.tensor(name), dtype=np.float32)).to(device).bfloat16().float()
            for name in parameter_shapes(self.config)
        }

    @property
    def embedding(self) -> Tensor:
        """f32 [vocabulary, hidden]."""
        return self.weights["model.embed_tokens.weight"]

    def head(self, hidden: Tensor) -> Tensor:
        """Logits f32 [..., vocabulary] of normalised rows."""
        name = "model.embed_tokens.weight" if self.config.tied_embeddings else "lm_head.weight"
        return hidden @ self.weights[name].T

    @torch.no_grad()
    def trace(self, ids: Tensor, taps: tuple[int, ...]) -> Traced:
        """A causal pass over `ids` i64 [batch, tokens]; there may be padding at the end of a row."""
        config, features = self.config, []
        positions = torch.arange(ids.shape[1], device=self.device)
        x = self.embedding[ids]
        for index in range(config.layers):
            layer = f"model.layers.{index}."
            y = rms_norm(x, self.weights[f"{layer}input_layernorm.weight"], config.norm_eps)
            q = queries(y, layer, self.weights, positions, config).transpose(1, 2)
            k, v = (part.transpose(1, 2) for part in keys_values(y, layer, self.weights, positions, config))
            k, v = (part.repeat_interleave(config.heads // config.kv_heads, dim=1) for part in (k, v))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
            x = x + mixed @ self.weights[f"{layer}self_attn.o_proj.weight"].T
            x = x + mlp(x, layer, self.weights, config)
            if index in taps:
                features.append(x)
        hidden = rms_norm(x, self.weights["model.norm.weight"], config.norm_eps)
        return Traced(hidden, torch.cat(features, dim=-1))

    def stepper(self, batch: int, capacity: int) -> Stepper:
        """A generation of `batch` sequences of at most `capacity` tokens, all at the same position."""
        return Stepper(self, batch, capacity)


class Stepper:
    """Keys and values of sequences that grow together, one token at a time."""

    def __init__(self, target: Target, batch: int, capacity: int) -> None:
        config = target.config
        shape = (config.layers, batch, config.kv_heads, capacity, config.head_dim)
        self._target = target
        self._keys = torch.zeros(shape, device=target.device)
        self._values = torch.zeros(shape, device=target.device)
        self._length = 0

    @torch.no_grad()
    def step(self, ids: Tensor) -> Tensor:
        """Logits f32 [batch, vocabulary] after one more token of each sequence, `ids` i64 [batch]."""
        target, config, end = self._target, self._target.config, self._length + 1
        weights, positions = target.weights, torch.full((1,), self._length, device=target.device)
        x = target.embedding[ids][:, None]
        for index in range(config.layers):
            layer = f"model.layers.{index}."
            y = rms_norm(x, weights[f"{layer}input_layernorm.weight"], config.norm_eps)
            k, v = keys_values(y, layer, weights, positions, config)
            self._keys[index, :, :, self._length] = k[:, 0]
            self._values[index, :, :, self._length] = v[:, 0]
            q = queries(y, layer, weights, positions, config)[:, 0].unflatten(1, (config.kv_heads, -1))
            scores = q @ self._keys[index, :, :, :end].transpose(2, 3) * config.head_dim**-0.5
            mixed = (scores.softmax(dim=-1) @ self._values[index, :, :, :end]).flatten(1)
            x = x + (mixed @ weights[f"{layer}self_attn.o_proj.weight"].T)[:, None]
            x = x + mlp(x, layer, weights, config)
        self._length = end
        return target.head(rms_norm(x[:, 0], weights["model.norm.weight"], config.norm_eps))
