"""The parts of a llama layer in torch, in float32, that the target and its draft share."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from kern.checkpoints.config import TransformerConfig

Weights = Mapping[str, Tensor]
"""Tensors by Hugging Face name; matrices are [outputs, inputs]."""


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x²) + eps) · weight over the last axis (Zhang and Sennrich, 2019)."""
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps) * weight


def rotate(heads: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotary positions, halves paired: `heads` [..., tokens, heads, size], `positions` i64 [..., tokens]."""
    size = heads.shape[-1]
    rates = theta ** (-torch.arange(0, size, 2, device=heads.device, dtype=torch.float64) / size)
    angles = positions.to(torch.float64)[..., None, None] * rates
    cos, sin = angles.cos().to(heads.dtype), angles.sin().to(heads.dtype)
    first, second = heads.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def queries(y: Tensor, layer: str, weights: Weights, positions: Tensor, config: TransformerConfig) -> Tensor:
    """[..., tokens, heads, head_dim], rotated."""
    q = (y @ weights[f"{layer}self_attn.q_proj.weight"].T).unflatten(-1, (config.heads, config.head_dim))
    if config.qk_norm:
        q = rms_norm(q, weights[f"{layer}self_attn.q_norm.weight"], config.norm_eps)
    return rotate(q, positions, config.rope_theta)


def keys_values(
    y: Tensor, layer: str, weights: Weights, positions: Tensor, config: TransformerConfig
) -> tuple[Tensor, Tensor]:
    """Two of [..., tokens, kv_heads, head_dim]; keys are rotated."""
    shape = (config.kv_heads, config.head_dim)
    k = (y @ weights[f"{layer}self_attn.k_proj.weight"].T).unflatten(-1, shape)
    v = (y @ weights[f"{layer}self_attn.v_proj.weight"].T).unflatten(-1, shape)
    if config.qk_norm:
        k = rms_norm(k, weights[f"{layer}self_attn.k_norm.weight"], config.norm_eps)
    return rotate(k, positions, config.rope_theta), v


def mlp(x: Tensor, layer: str, weights: Weights, config: TransformerConfig) -> Tensor:
    """The second half of a layer, without its residual."""
    y = rms_norm(x, weights[f"{layer}post_attention_layernorm.weight"], config.norm_eps)
    gate = F.silu(y @ weights[f"{layer}mlp.gate_proj.weight"].T)
    return (gate * (y @ weights[f"{layer}mlp.up_proj.weight"].T)) @ weights[f"{layer}mlp.down_proj.weight"].T
