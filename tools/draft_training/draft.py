"""A DSpark draft in torch: features of the target in, logits of a whole block of tokens out (arXiv 2607.05147)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from draft_training.layers import keys_values, mlp, queries, rms_norm
from kern.checkpoints.config import TransformerConfig
from kern.manifest.errors import KernError

DEVIATION: Final = 0.02
"""Of every matrix and table before training."""
Context = list[tuple[Tensor, Tensor]]
"""Keys and values of every layer, each f32 [batch, tokens, kv_heads, head_dim], keys rotated."""


class DraftError(KernError):
    """A draft's shape that does not fit its target."""

    code = "draft"
    exit_code = 2


@dataclass(frozen=True)
class DraftConfig:
    """A draft's shape: its transformer has the target's width, heads and vocabulary.

    `taps` are target layers whose output is read; `block` tokens are drafted at once; `rank` is that of the Markov
    tables; `mask` is the id for a token that is not yet known.
    """

    transformer: TransformerConfig
    target_layers: int
    taps: tuple[int, ...]
    block: int
    rank: int
    mask: int

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every trained tensor under its published name. The embedding and the output projection are the target's."""
        c = self.transformer
        shapes: dict[str, tuple[int, ...]] = {
            "fc.weight": (c.hidden, c.hidden * len(self.taps)), "hidden_norm.weight": (c.hidden,),
        }  # fmt: skip
        for index in range(c.layers):
            layer = f"layers.{index}."
            shapes |= {
                f"{layer}input_layernorm.weight": (c.hidden,),
                f"{layer}self_attn.q_proj.weight": (c.q_size, c.hidden),
                f"{layer}self_attn.k_proj.weight": (c.kv_size, c.hidden),
                f"{layer}self_attn.v_proj.weight": (c.kv_size, c.hidden),
                f"{layer}self_attn.o_proj.weight": (c.hidden, c.q_size),
                f"{layer}post_attention_layernorm.weight": (c.hidden,),
                f"{layer}mlp.gate_proj.weight": (c.ffn, c.hidden),
                f"{layer}mlp.up_proj.weight": (c.ffn, c.hidden),
                f"{layer}mlp.down_proj.weight": (c.hidden, c.ffn),
            }
            if c.qk_norm:
                shapes |= {f"{layer}self_attn.{part}_norm.weight": (c.head_dim,) for part in "qk"}
        table = (c.vocabulary, self.rank)
        return shapes | {
            "norm.weight": (c.hidden,), "markov_head.markov_w1.weight": table, "markov_head.markov_w2.weight": table,
        }  # fmt: skip


def draft_config(
    target: TransformerConfig, *, layers: int, ffn: int, taps: tuple[int, ...], block: int, rank: int, mask: int
) -> DraftConfig:
    """A draft's shape for a target. Raises DraftError for what cannot be trained."""
    if not taps or list(taps) != sorted(set(taps)) or taps[0] < 0 or taps[-1] >= target.layers - 1:
        raise DraftError(
            f"the taps {list(taps)} are not ascending layers before the last of {target.layers}",
            f"as in 1,{target.layers // 2},{target.layers - 3}",
        )
    if target.rope_scaling is not None:
        raise DraftError("the target's rotary positions are scaled", "give a target with plain ones")
    if min(layers, ffn, block, rank) < 1 or not 0 <= mask < target.vocabulary:
        raise DraftError(
            f"layers {layers}, ffn {ffn}, block {block} and rank {rank} must be above 0, "
            f"and the mask id {mask} one of {target.vocabulary}"
        )
    transformer = replace(target, layers=layers, ffn=ffn, tied_embeddings=False)
    return DraftConfig(transformer, target.layers, taps, block, rank, mask)


class Draft:
    """A draft's tensors and its forward pass, all in float32."""

    def __init__(self, config: DraftConfig, tensors: dict[str, Tensor]) -> None:
        """`tensors` has the names and shapes of `config.shapes()`."""
        self.config = config
        self.tensors = tensors

    @classmethod
    def random(cls, config: DraftConfig, seed: int, device: torch.device) -> Draft:
        """Norms of 1, everything else normal with deviation 0.02; created on the host, so equal on every device."""
        generator = torch.Generator().manual_seed(seed)
        tensors = {
            name: torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=generator) * DEVIATION
            for name, shape in config.shapes().items()
        }
        return cls(config, {name: tensor.to(device).requires_grad_() for name, tensor in tensors.items()})

    def context(self, features: Tensor) -> Context:
        """Keys and values of the target's features, f32 [batch, tokens, taps · hidden], from position 0 on."""
        c, positions = self.config.transformer, torch.arange(features.shape[1], device=features.device)
        h = rms_norm(features @ self.tensors["fc.weight"].T, self.tensors["hidden_norm.weight"], c.norm_eps)
        return [keys_values(h, f"layers.{index}.", self.tensors, positions, c) for index in range(c.layers)]

    def hidden(self, anchors: Tensor, anchor_ids: Tensor, context: Context, embedding: Tensor) -> Tensor:
        """Normalised rows f32 [batch, anchors, block, hidden] of a block at each of `anchors`.

        `anchors` i64 [batch, anchors] are positions, `anchor_ids` the tokens there. A block sees the context before its
        anchor, and itself whole.
        """
        c, block = self.config.transformer, self.config.block
        ids = torch.full((*anchors.shape, block), self.config.mask, device=anchors.device)
        ids[..., 0] = anchor_ids
        positions = anchors[..., None] + torch.arange(block, device=anchors.device)
        x = embedding[ids]
        for index, (k, v) in enumerate(context):
            layer = f"layers.{index}."
            y = rms_norm(x, self.tensors[f"{layer}input_layernorm.weight"], c.norm_eps)
            q = queries(y, layer, self.tensors, positions, c)
            own = keys_values(y, layer, self.tensors, positions, c)
            x = x + _attention(q, (k, v), own, anchors) @ self.tensors[f"{layer}self_attn.o_proj.weight"].T
            x = x + mlp(x, layer, self.tensors, c)
        return rms_norm(x, self.tensors["norm.weight"], c.norm_eps)

    def bias(self, previous: Tensor) -> Tensor:
        """What the Markov head adds to the logits after each of `previous`: f32 [..., vocabulary]."""
        rows = self.tensors["markov_head.markov_w1.weight"][previous]
        return rows @ self.tensors["markov_head.markov_w2.weight"].T

    @torch.no_grad()
    def chain(self, logits: Tensor, anchor_ids: Tensor) -> Tensor:
        """Greedy drafts i64 [rows, block] from the block's logits f32 [rows, block, vocabulary], left to right."""
        drafts, previous = [], anchor_ids
        for place in range(self.config.block):
            previous = (logits[:, place] + self.bias(previous)).argmax(dim=-1)
            drafts.append(previous)
        return torch.stack(drafts, dim=1)


def _attention(q: Tensor, context: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor], anchors: Tensor) -> Tensor:
    """[batch, anchors, block, heads · size]: `q` [batch, anchors, block, heads, size] over both groups of keys at once.

    `context` [batch, tokens, kv_heads, size] is seen where its position is below the anchor's; `own`
    [batch, anchors, block, kv_heads, size] by the rows of the same block.
    """
    batch, count, block, heads, size = q.shape
    kv_heads, tokens = own[0].shape[3], context[0].shape[1]
    q = q.unflatten(3, (kv_heads, heads // kv_heads)) * size**-0.5
    before = torch.einsum("bakgrd,btgd->bgrakt", q, context[0])
    seen = torch.arange(tokens, device=q.device) < anchors[..., None]
    before = before.masked_fill(~seen[:, None, None, :, None, :], -torch.inf)
    within = torch.einsum("bakgrd,bajgd->bgrakj", q, own[0])
    shares = torch.cat([before, within], dim=-1).softmax(dim=-1)
    mixed = torch.einsum("bgrakt,btgd->bakgrd", shares[..., :tokens], context[1])
    mixed = mixed + torch.einsum("bgrakj,bajgd->bakgrd", shares[..., tokens:], own[1])
    return mixed.reshape(batch, count, block, heads * size)
