"""The parameters of a transformer under their Hugging Face names."""

from __future__ import annotations

from kern.checkpoints.config import TransformerConfig

Shape = tuple[int, ...]


def layer_parameters(config: TransformerConfig, layer: int) -> dict[str, Shape]:
    """Names and shapes of one decoder layer's parameters, matrices as [outputs, inputs]."""
    c = config
    shapes: dict[str, Shape] = {
        "input_layernorm": (c.hidden,),
        "self_attn.q_proj": (c.q_size, c.hidden),
        "self_attn.k_proj": (c.kv_size, c.hidden),
        "self_attn.v_proj": (c.kv_size, c.hidden),
        "self_attn.o_proj": (c.hidden, c.q_size),
        "post_attention_layernorm": (c.hidden,),
        "mlp.gate_proj": (c.ffn, c.hidden),
        "mlp.up_proj": (c.ffn, c.hidden),
        "mlp.down_proj": (c.hidden, c.ffn),
    }
    if c.qk_norm:
        shapes |= {"self_attn.q_norm": (c.head_dim,), "self_attn.k_norm": (c.head_dim,)}
    return {f"model.layers.{layer}.{name}.weight": shape for name, shape in shapes.items()}


def parameter_shapes(config: TransformerConfig) -> dict[str, Shape]:
    """Names and shapes of all parameters that a checkpoint of this config holds."""
    shapes: dict[str, Shape] = {"model.embed_tokens.weight": (config.vocabulary, config.hidden)}
    for layer in range(config.layers):
        shapes |= layer_parameters(config, layer)
    shapes["model.norm.weight"] = (config.hidden,)
    if not config.tied_embeddings:
        shapes["lm_head.weight"] = (config.vocabulary, config.hidden)
    return shapes
