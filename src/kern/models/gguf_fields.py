"""The metadata of a GGUF file, as llama.cpp defines it, and what is done with each key for llama and qwen3."""

from __future__ import annotations

from typing import Final

from kern.models.fields import Table, irrelevant, obeyed, refused

_MOE: Final = "a mixture of experts is not built"
_SCALED: Final = "a scale that llama and qwen3 do not have"
_ALIKE: Final = "all layers are built alike"
_WINDOW: Final = "layers that see less than the context are not built"
_CONVERTER: Final = "llama.cpp's converter writes it, and llama.cpp does not read it for llama and qwen3"
_RECORD: Final = "a record of how the file was made"

GGUF_FIELDS: Final[Table] = {
    "general.architecture": obeyed("`llama` or `qwen3`"),
    "general.alignment": obeyed("of tensors, default 32"),
    "general.type": refused("only a model's own file can be built", "model"),
    "general.quantization_version": refused("", 2),
    "general.file_type": irrelevant("every tensor has its own type"),
    "general.*": irrelevant(_RECORD),
    "split.no": obeyed("which part of a split file this is"),
    "split.count": obeyed("all parts are read, from the folder of the first"),
    "split.tensors.count": obeyed("tensors of all parts together"),
    "tokenizer.*": obeyed("the tokenizer"),
    "adapter.*": refused("only a model's own file can be built"),
    "quantize.*": irrelevant(_RECORD),
}
"""Keys that belong to no architecture."""

ARCHITECTURE_FIELDS: Final[Table] = {
    "block_count": obeyed(),
    "context_length": obeyed(),
    "embedding_length": obeyed(),
    "feed_forward_length": obeyed("one number, or the same for every layer"),
    "vocab_size": obeyed("default: the rows of `token_embd.weight`"),
    "attention.head_count": obeyed("one number, or the same for every layer"),
    "attention.head_count_kv": obeyed("default `attention.head_count`; one number, or the same for every layer"),
    "attention.key_length": obeyed("default `embedding_length / attention.head_count`"),
    "attention.value_length": obeyed("refused where it differs from `attention.key_length`"),
    "attention.layer_norm_rms_epsilon": obeyed(),
    "rope.dimension_count": obeyed("refused where it differs from `attention.key_length`"),
    "rope.freq_base": obeyed("default 10000"),
    "rope.scaling.type": obeyed("`none`, `linear` or `yarn`, default `linear`; others are refused"),
    "rope.scaling.factor": obeyed("default `rope.scale_linear`, else 1"),
    "rope.scale_linear": obeyed("the older name of `rope.scaling.factor`, which goes before it"),
    "rope.scaling.original_context_length": obeyed("of yarn, default `context_length`"),
    "rope.scaling.attn_factor": obeyed("multiplies cosines and sines, default 1"),
    "rope.scaling.finetuned": irrelevant("a record of the training"),
    "rope.scaling.yarn_beta_fast": refused(_CONVERTER, 32),
    "rope.scaling.yarn_beta_slow": refused(_CONVERTER, 1),
    "rope.scaling.yarn_ext_factor": refused(_CONVERTER, 1, -1),
    "rope.scaling.yarn_attn_factor": refused(_CONVERTER),
    "rope.scaling.yarn_log_multiplier": refused(_CONVERTER, 0),
    "rope.scaling.alpha": refused(_SCALED, 0),
    "rope.dimension_sections": refused("a position is one number"),
    "rope.dimension_count_swa": refused(_WINDOW),
    "rope.freq_base_swa": refused(_WINDOW),
    "attention.causal": refused("each token sees the ones before it", True),
    "attention.sliding_window": refused(_WINDOW, 0),
    "attention.sliding_window_pattern": refused(_WINDOW, 0),
    "attention.key_length_swa": refused(_WINDOW),
    "attention.value_length_swa": refused(_WINDOW),
    "attention.shared_kv_layers": refused(_ALIKE, 0),
    "attention.recurrent_layers": refused(_ALIKE),
    "attention.layer_norm_epsilon": refused("norms are RMS norms"),
    "attention.group_norm_epsilon": refused("norms are RMS norms"),
    "attention.group_norm_groups": refused("norms are RMS norms"),
    "attention.max_alibi_bias": refused("positions are rotary", 0),
    "attention.clamp_kqv": refused("nothing is clipped", 0),
    "attention.scale": refused(_SCALED, 0),
    "attention.output_scale": refused(_SCALED, 0, 1),
    "attention.value_scale": refused(_SCALED, 0, 1),
    "attention.temperature_length": refused(_SCALED, 0),
    "attention.temperature_scale": refused(_SCALED, 0),
    "attention.*": refused("a kind of attention that llama and qwen3 do not have"),
    "attn_logit_softcapping": refused(_SCALED, 0),
    "router_logit_softcapping": refused(_SCALED, 0),
    "final_logit_softcapping": refused(_SCALED, 0),
    "logit_scale": refused(_SCALED, 0, 1),
    "residual_scale": refused(_SCALED, 0, 1),
    "embedding_scale": refused(_SCALED, 0, 1),
    "expert_count": refused(_MOE, 0),
    "expert_used_count": refused(_MOE, 0),
    "expert_*": refused(_MOE, 0, False),
    "experts_*": refused(_MOE, 0),
    "moe_*": refused(_MOE, 0),
    "interleave_moe_layer_step": refused(_MOE, 0),
    "leading_dense_block_count": refused(_MOE),
    "swiglu_clamp_exp": refused("nothing is clipped"),
    "swiglu_clamp_shexp": refused("nothing is clipped"),
    "tensor_data_layout": refused("rows of q and k are in the order of llama.cpp", "Meta AI original pth"),
    "use_parallel_residual": refused("a layer's halves follow each other", False),
    "hidden_activation": refused("", "silu"),
    "pooling_type": refused("a model of embeddings", 0),
    "classifier.output_labels": refused("a classifier"),
    "embedding_length_out": refused("a model of embeddings", 0),
    "embedding_length_per_layer_input": refused(_ALIKE, 0),
    "nextn_predict_layers": refused("layers that predict further tokens are not built", 0),
    "n_deepstack_layers": refused("only a model of text alone is built", 0),
    "deepstack_mapping": refused("only a model of text alone is built"),
    "decoder_start_token_id": refused("only a decoder is built"),
    "decoder_block_count": refused("only a decoder is built", 0),
    "full_attention_interval": refused(_ALIKE, 0),
    "rescale_every_n_layers": refused(_ALIKE, 0),
    "features_length": refused("of another architecture"),
    "swin_norm": refused("of another architecture", False),
    "activation_sparsity_scale": refused("of another architecture"),
    "time_*": refused("of another architecture"),
    "token_shift_count": refused("of another architecture"),
    "target_*": refused("of a draft"),
    "norm_before_residual": refused("of a draft"),
    "hash_layer_count": refused("of another architecture"),
    **dict.fromkeys(
        (
            "altup.*", "convnext.*", "dense_*", "hyper_connection.*", "kda.*", "posnet.*", "shortconv.*", "ssm.*",
            "wkv.*",
        ),
        refused("of another architecture"),
    ),
}  # fmt: skip
"""Keys below the architecture's name, as in `llama.block_count`."""
