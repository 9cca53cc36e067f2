"""The fields of config.json for llama and qwen3, and of generation_config.json, and what is done with each.

They are those of transformers 4 and 5.
"""

from __future__ import annotations

from typing import Final

from kern.checkpoints.fields import MOE, RECORD, SCALED, Table, each, irrelevant, obeyed, refused

_QUANTISED: Final = "give the checkpoint before its quantisation, or a GGUF file"
_OUTPUT: Final = "what transformers returns"
_IDS: Final = "an id; the tokenizer's files decide"
_CHOICE: Final = "the most likely token is chosen unchanged: remove it from the file"
_SEARCH: Final = "one text is generated, greedily: remove it from the file"

GENERATION_FIELDS: Final[Table] = {
    "eos_token_id": obeyed("an id or several: stop ids, in addition to those of the other files"),
    **each("repetition_penalty encoder_repetition_penalty guidance_scale", refused(_CHOICE, 1)),
    **each("no_repeat_ngram_size encoder_no_repeat_ngram_size penalty_alpha", refused(_CHOICE, 0)),
    **each("bad_words_ids suppress_tokens begin_suppress_tokens force_words_ids constraints", refused(_CHOICE, [])),
    "sequence_bias": refused(_CHOICE, {}, []),
    **each(
        "forced_bos_token_id forced_eos_token_id exponential_decay_length_penalty watermarking_config dola_layers",
        refused(_CHOICE),
    ),
    "min_length": refused("a text ends with its first stop id: remove it from the file", 0),
    "min_new_tokens": refused("a text ends with its first stop id: remove it from the file", 0),
    "stop_strings": refused("remove it from the file, and give `kern run` each one with --stop", []),
    "num_beams": refused(_SEARCH, 1),
    "num_beam_groups": refused(_SEARCH, 1),
    "token_healing": refused("a prompt is not changed: remove it from the file", False),
    **each("early_stopping length_penalty diversity_penalty", irrelevant("of a search by beams, which is refused")),
    **each(
        "do_sample temperature top_k top_p top_h min_p typical_p epsilon_cutoff eta_cutoff renormalize_logits",
        irrelevant("sampling; the most likely token is chosen"),
    ),
    "num_return_sequences": irrelevant("of sampling and of a search by beams"),
    **each("max_length max_new_tokens max_time", irrelevant("the caller decides")),
    "remove_invalid_values": irrelevant("logits that are not numbers are an error"),
    **each(
        "use_mtp is_assistant num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold "
        "assistant_early_exit assistant_lookbehind assistant_ensemble_weight target_lookbehind "
        "prompt_lookup_num_tokens max_matching_ngram_size speculation_type",
        irrelevant("guesses of tokens, which do not change the text"),
    ),
    **each(
        "output_attentions output_hidden_states output_scores output_logits return_dict_in_generate "
        "return_legacy_cache",
        irrelevant(_OUTPUT),
    ),
    **each(
        "use_cache cache_implementation cache_config max_cache_len compile_config disable_compile "
        "continuous_batching_config low_memory prefill_chunk_size",
        irrelevant("how transformers computes it"),
    ),
    **each("bos_token_id pad_token_id decoder_start_token_id", irrelevant(_IDS)),
    **each("_from_model_config _commit_hash transformers_version", irrelevant(RECORD)),
}  # fmt: skip
"""The fields of generation_config.json, all that transformers' GenerationConfig has.

A text is continued with the most likely token, so what changes that choice is refused, and what shapes sampling is
irrelevant.
"""

HF_FIELDS: Final[Table] = {
    "model_type": obeyed("`llama` or `qwen3`"),
    "architectures": obeyed("refused unless the family's `ForCausalLM` is among them"),
    "vocab_size": obeyed("default 32000, qwen3 151936"),
    "hidden_size": obeyed("default 4096"),
    "intermediate_size": obeyed("default 11008, qwen3 22016"),
    "num_hidden_layers": obeyed("default 32"),
    "num_attention_heads": obeyed("default 32"),
    "num_key_value_heads": obeyed("default `num_attention_heads`, qwen3 32"),
    "head_dim": obeyed("default `hidden_size / num_attention_heads`, qwen3 128"),
    "max_position_embeddings": obeyed("default 2048, qwen3 32768"),
    "rms_norm_eps": obeyed("default 1e-6"),
    "tie_word_embeddings": obeyed("default false; with true, a head in the file must equal the embedding"),
    "eos_token_id": obeyed("an id or several: stop ids, with those of generation_config.json and the tokenizer"),
    "rope_theta": obeyed("default 10000"),
    "rope_scaling": obeyed("transformers 4's name of `rope_parameters`; refused where both differ"),
    "rope_parameters": obeyed("see below"),
    "original_max_position_embeddings": obeyed("of llama3 and yarn; refused where it differs from the one there"),
    "partial_rotary_factor": refused("only whole heads are rotated", 1),
    "layer_types": obeyed("refused unless every layer is `full_attention`"),
    "use_sliding_window": obeyed("default false, llama true; refused where it cuts the context of a layer"),
    "sliding_window": obeyed("default none, qwen3 4096; refused where it cuts the context of a layer"),
    "max_window_layers": obeyed("of qwen3, default 28: layers before it have no sliding window"),
    "hidden_act": refused("", "silu", "swish"),
    "hidden_activation": refused("", "silu", "swish"),
    **each("attention_bias mlp_bias qkv_bias use_qkv_bias bias", refused("biases are not built", False)),
    **each("quantization_config quantization compression_config", refused(_QUANTISED)),
    "auto_map": refused("the checkpoint's own code is not run"),
    "per_layer_config": refused("all layers are built alike", {}),
    "no_rope_layers": refused("every layer is rotated"),
    "no_rope_layer_interval": refused("every layer is rotated"),
    "rope_interleaved": refused("halves of a head are paired", False),
    "rotary_pct": refused("only whole heads are rotated", 1),
    "rope_ratio": refused("`rope_parameters` scales", 1),
    "rope_local_base_freq": refused("every layer is rotated alike"),
    "attention_chunk_size": refused("the whole context is attended to"),
    **each(
        "attn_logit_softcapping final_logit_softcapping query_pre_attn_scalar scale_depth dim_model_base",
        refused(SCALED),
    ),
    **each(
        "attention_multiplier embedding_multiplier residual_multiplier logits_scaling logit_scale scale_emb",
        refused(SCALED, 1),
    ),
    "qk_norm": refused("q and k are normed in qwen3, and not in llama"),
    "use_qk_norm": refused("q and k are normed in qwen3, and not in llama"),
    "clip_qkv": refused("nothing is clipped"),
    "sandwich_norm": refused("a layer has two norms", False),
    "parallel_attn": refused("a layer's halves follow each other", False),
    "alibi": refused("positions are rotary", False),
    **each(
        "num_experts num_local_experts n_routed_experts n_shared_experts num_experts_per_tok moe_intermediate_size "
        "decoder_sparse_step",
        refused(MOE, 0),
    ),
    "mlp_only_layers": refused(MOE, []),
    "num_nextn_predict_layers": refused("layers that predict further tokens are not built", 0),
    "is_encoder_decoder": refused("only a decoder is built", False),
    "add_cross_attention": refused("only a decoder is built", False),
    **each("text_config vision_config audio_config", refused("only a model of text alone is built")),
    "pruned_heads": refused("all layers are built alike", {}, []),
    "is_causal": refused("each token sees the ones before it", True),
    "use_bidirectional_attention": refused("each token sees the ones before it", False),
    "pretraining_tp": irrelevant("cuts products into parts; their sum is the same"),
    "chunk_size_feed_forward": irrelevant("cuts products into parts; their sum is the same"),
    **each("dtype torch_dtype use_bfloat16", irrelevant("weights are kept in bf16")),
    **each(
        "use_cache return_dict output_hidden_states output_attentions tie_last_hidden_states torchscript",
        irrelevant(_OUTPUT),
    ),
    **each(
        "attn_implementation _attn_implementation _attn_implementation_autoset _flash_attn_2_enabled "
        "cache_implementation experts_implementation _experts_implementation",
        irrelevant("which kernels transformers uses"),
    ),
    **each(
        "initializer_range attention_dropout hidden_dropout hidden_dropout_prob resid_pdrop embd_pdrop "
        "gradient_checkpointing output_router_logits router_aux_loss_coef",
        irrelevant("training"),
    ),
    **each(
        "bos_token_id pad_token_id sep_token_id cls_token_id unk_token_id mask_token_id decoder_start_token_id",
        irrelevant(_IDS),
    ),
    "tokenizer_class": irrelevant("the tokenizer's files decide"),
    "prefix": irrelevant("the tokenizer's files decide"),
    **each("max_sequence_length model_max_length seq_length", irrelevant("`max_position_embeddings` decides")),
    **each("is_decoder tie_encoder_decoder cross_attention_hidden_size", irrelevant("of models with an encoder")),
    **each(
        "id2label label2id num_labels problem_type finetuning_task",
        irrelevant("of classifiers; their heads are refused as tensors"),
    ),
    "task_specific_params": irrelevant("how to ask for each of several tasks; the caller decides"),
    **{
        name: GENERATION_FIELDS[name]
        for name in (
            "max_length", "min_length", "max_new_tokens", "min_new_tokens", "do_sample", "early_stopping", "num_beams",
            "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "min_p", "typical_p",
            "epsilon_cutoff", "eta_cutoff", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
            "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "output_scores",
            "return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
            "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens",
        )
    },
    **each(
        "transformers_version transformers.js_config _name_or_path name_or_path _commit_hash is_llama_config "
        "unsloth_fixed unsloth_version",
        irrelevant(RECORD),
    ),
    "tf_legacy_loss": irrelevant("of TensorFlow"),
}  # fmt: skip
"""Every field that transformers' configs of llama and qwen3 have, and those of others that would change the result."""

ROPE_FIELDS: Final[Table] = {
    "rope_type": obeyed("`default`, `linear`, `llama3` or `yarn`; others are refused"),
    "type": obeyed("the older name of `rope_type`; refused where both differ"),
    "rope_theta": obeyed("refused where it differs from the one outside"),
    "factor": obeyed("of linear, llama3 and yarn"),
    "original_max_position_embeddings": obeyed("of llama3 and yarn, default `max_position_embeddings`"),
    "low_freq_factor": obeyed("of llama3"),
    "high_freq_factor": obeyed("of llama3"),
    "beta_fast": obeyed("of yarn, default 32"),
    "beta_slow": obeyed("of yarn, default 1"),
    "attention_factor": obeyed("of yarn; default 0.1 ln(factor) + 1"),
    "mscale": obeyed("of yarn, with `mscale_all_dim`: the attention factor is their ratio"),
    "mscale_all_dim": obeyed("of yarn"),
    "truncate": obeyed("of yarn, default true"),
    "attn_factor": refused("transformers does not read it, vLLM does", 1),
    "extrapolation_factor": refused("transformers does not read it, vLLM does", 1),
    "partial_rotary_factor": refused("only whole heads are rotated", 1),
    "mrope_section": refused("a position is one number"),
    "full_attention": refused("all layers are rotated alike"),
    "sliding_attention": refused("all layers are rotated alike"),
    "finetuned": irrelevant("a record of the training"),
}
"""The fields of `rope_parameters` and `rope_scaling`."""

ROPE_USES: Final = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
    "yarn": (
        "factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor", "mscale",
        "mscale_all_dim", "truncate",
    ),
}  # fmt: skip
"""Which of them a type has, in addition to the type and theta."""
