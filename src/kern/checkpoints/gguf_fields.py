"""The metadata of a GGUF file, as llama.cpp defines it, and what is done with each key for llama and qwen3."""

from __future__ import annotations

from typing import Final

from kern.checkpoints.fields import MOE, RECORD, SCALED, Table, each, irrelevant, obeyed, refused

_ALIKE: Final = "all layers are built alike"
_WINDOW: Final = "layers that see less than the context are not built"
_CONVERTER: Final = "llama.cpp's converter writes it, and llama.cpp does not read it for llama and qwen3"
_ID: Final = "a token that ends generation"
_NAME: Final = "a token that chat templates know by name"

GGUF_FIELDS: Final[Table] = {
    "general.architecture": obeyed("`llama` or `qwen3`"),
    "general.alignment": obeyed("of tensors, default 32"),
    "general.type": refused("only a model's own file can be built", "model"),
    "general.quantization_version": refused("", 2),
    "general.file_type": irrelevant("every tensor has its own type"),
    "general.sampling.penalty_repeat": refused("the most likely token is chosen unchanged", 1),
    "general.sampling.*": irrelevant("sampling; the most likely token is chosen"),
    "general.*": irrelevant(RECORD),
    "split.no": obeyed("which part of a split file this is"),
    "split.count": obeyed("all parts are read, from the folder of the first"),
    "split.tensors.count": obeyed("tensors of all parts together"),
    "tokenizer.*": obeyed("the tokenizer"),
    "adapter.*": refused("only a model's own file can be built"),
    "quantize.*": irrelevant(RECORD),
}
"""Keys that belong to no architecture."""

ARCHITECTURE_FIELDS: Final[Table] = {
    **each("block_count context_length embedding_length attention.layer_norm_rms_epsilon", obeyed()),
    "feed_forward_length": obeyed("one number, or the same for every layer"),
    "vocab_size": obeyed("default: the rows of `token_embd.weight`"),
    "attention.head_count": obeyed("one number, or the same for every layer"),
    "attention.head_count_kv": obeyed("default `attention.head_count`; one number, or the same for every layer"),
    "attention.key_length": obeyed("default `embedding_length / attention.head_count`"),
    "attention.value_length": obeyed("refused where it differs from `attention.key_length`"),
    "rope.dimension_count": obeyed("refused where it differs from `attention.key_length`"),
    "rope.freq_base": obeyed("default 10000"),
    "rope.scaling.type": obeyed("`none`, `linear` or `yarn`, default `linear`; others are refused"),
    "rope.scaling.factor": obeyed("default `rope.scale_linear`, else 1"),
    "rope.scale_linear": obeyed("the older name of `rope.scaling.factor`, which has precedence"),
    "rope.scaling.original_context_length": obeyed("of yarn, default `context_length`"),
    "rope.scaling.attn_factor": obeyed("multiplies cosines and sines, default 1"),
    "rope.scaling.finetuned": irrelevant("a record of the training"),
    "rope.scaling.yarn_beta_fast": refused(_CONVERTER, 32),
    "rope.scaling.yarn_beta_slow": refused(_CONVERTER, 1),
    "rope.scaling.yarn_ext_factor": refused(_CONVERTER, 1, -1),
    "rope.scaling.yarn_attn_factor": refused(_CONVERTER),
    "rope.scaling.yarn_log_multiplier": refused(_CONVERTER, 0),
    **each(
        "rope.scaling.alpha attention.scale attention.temperature_length attention.temperature_scale "
        "attn_logit_softcapping router_logit_softcapping final_logit_softcapping",
        refused(SCALED, 0),
    ),
    "rope.dimension_sections": refused("a position is one number"),
    **each(
        "rope.dimension_count_swa rope.freq_base_swa attention.key_length_swa attention.value_length_swa",
        refused(_WINDOW),
    ),
    "attention.causal": refused("each token sees the ones before it", True),
    "attention.sliding_window": refused(_WINDOW, 0),
    "attention.sliding_window_pattern": refused(_WINDOW, 0),
    **each(
        "attention.shared_kv_layers embedding_length_per_layer_input full_attention_interval rescale_every_n_layers",
        refused(_ALIKE, 0),
    ),
    "attention.recurrent_layers": refused(_ALIKE),
    **each(
        "attention.layer_norm_epsilon attention.group_norm_epsilon attention.group_norm_groups",
        refused("norms are RMS norms"),
    ),
    "attention.max_alibi_bias": refused("positions are rotary", 0),
    "attention.clamp_kqv": refused("nothing is clipped", 0),
    **each(
        "attention.output_scale attention.value_scale logit_scale residual_scale embedding_scale",
        refused(SCALED, 0, 1),
    ),
    "attention.*": refused("a kind of attention that llama and qwen3 do not have"),
    **each("expert_count expert_used_count experts_* moe_* interleave_moe_layer_step", refused(MOE, 0)),
    "expert_*": refused(MOE, 0, False),
    "leading_dense_block_count": refused(MOE),
    "swiglu_clamp_exp": refused("nothing is clipped"),
    "swiglu_clamp_shexp": refused("nothing is clipped"),
    "tensor_data_layout": refused("rows of q and k are in the order of llama.cpp", "Meta AI original pth"),
    "use_parallel_residual": refused("a layer's halves follow each other", False),
    "hidden_activation": refused("", "silu"),
    "pooling_type": refused("a model of embeddings", 0),
    "classifier.output_labels": refused("a classifier"),
    "embedding_length_out": refused("a model of embeddings", 0),
    "nextn_predict_layers": refused("layers that predict further tokens are not built", 0),
    "n_deepstack_layers": refused("only a model of text alone is built", 0),
    "deepstack_mapping": refused("only a model of text alone is built"),
    "decoder_start_token_id": refused("only a decoder is built"),
    "decoder_block_count": refused("only a decoder is built", 0),
    **each(
        "features_length activation_sparsity_scale time_* token_shift_count hash_layer_count altup.* convnext.* "
        "dense_* hyper_connection.* kda.* posnet.* shortconv.* ssm.* wkv.*",
        refused("of another architecture"),
    ),
    "swin_norm": refused("of another architecture", False),
    "target_*": refused("of a draft"),
    "norm_before_residual": refused("of a draft"),
}  # fmt: skip
"""Keys below the architecture's name, as in `llama.block_count`."""

TEXT_FIELDS: Final[Table] = {
    "tokenizer.ggml.model": obeyed("`gpt2` (byte-level BPE) or `llama` (SentencePiece); others are refused"),
    "tokenizer.ggml.pre": obeyed("of `gpt2`: see the table above; others are refused, and it is required"),
    "tokenizer.ggml.tokens": obeyed(),
    "tokenizer.ggml.token_type": obeyed("normal, unknown, control, user-defined, unused, byte"),
    "tokenizer.ggml.merges": obeyed("of `gpt2`"),
    "tokenizer.ggml.scores": obeyed("of `llama`: merges in their order; refused where two tokens have the same"),
    "tokenizer.ggml.bos_token_id": obeyed(f"{_NAME}; default 1 with `llama`"),
    "tokenizer.ggml.eos_token_id": obeyed(f"{_ID}, and {_NAME}; default 2 with `llama`"),
    **each(
        "tokenizer.ggml.eot_token_id tokenizer.ggml.eom_token_id tokenizer.ggml.fim_pad_token_id "
        "tokenizer.ggml.fim_rep_token_id tokenizer.ggml.fim_sep_token_id",
        obeyed(_ID),
    ),
    "tokenizer.ggml.unknown_token_id": obeyed(f"{_NAME}; default 0 with `llama`"),
    "tokenizer.ggml.seperator_token_id": obeyed(f"{_NAME}; the key is spelled so"),
    **each("tokenizer.ggml.padding_token_id tokenizer.ggml.cls_token_id tokenizer.ggml.mask_token_id", obeyed(_NAME)),
    "tokenizer.ggml.add_bos_token": obeyed("default true with `llama` and `llama-bpe`, else false"),
    "tokenizer.ggml.add_space_prefix": obeyed("default true with `llama`; with `gpt2` true is refused"),
    "tokenizer.chat_template": obeyed(),
    "tokenizer.ggml.add_eos_token": refused("a prompt that ends cannot be continued"),
    "tokenizer.ggml.add_sep_token": refused("a separator after the prompt is not supported"),
    "tokenizer.ggml.remove_extra_whitespaces": refused("runs of spaces are kept"),
    "tokenizer.ggml.precompiled_charsmap": refused("characters are not replaced before a text is encoded"),
    "tokenizer.ggml.normalizer.lowercase": refused("the case of letters is kept"),
    "tokenizer.ggml.normalizer.strip_accents": refused("accents are kept"),
    "tokenizer.ggml.suppress_tokens": refused("every token may be chosen"),
    "tokenizer.ggml.token_type_count": irrelevant("of BERT's embeddings"),
    **each(
        "tokenizer.ggml.fim_pre_token_id tokenizer.ggml.fim_suf_token_id tokenizer.ggml.fim_mid_token_id "
        "tokenizer.ggml.prefix_token_id tokenizer.ggml.suffix_token_id tokenizer.ggml.middle_token_id",
        irrelevant("for filling gaps in code, which is not built"),
    ),
    "tokenizer.chat_templates": irrelevant("names of further templates; `tokenizer.chat_template` is used"),
    "tokenizer.chat_template.*": irrelevant("further templates; `tokenizer.chat_template` is used"),
    "tokenizer.huggingface.json": irrelevant("llama.cpp reads the keys above"),
    "tokenizer.rwkv.world": irrelevant("of another tokenizer"),
}
"""A refused key may be false or empty."""
