"""The fields of generation_config.json, as transformers 4 and 5 define them, and what is done with each.

A text is continued with the most likely token, so what changes that choice is refused, and what shapes sampling is
irrelevant.
"""

from __future__ import annotations

from typing import Final

from kern.checkpoints.fields import Table, irrelevant, obeyed, refused

_CHOICE: Final = "the most likely token is chosen as it is: take it out of the file"
_SEARCH: Final = "one text is followed, by its most likely token: take it out of the file"
_SAMPLING: Final = "sampling; the most likely token is chosen"
_BEAMS: Final = "of a search by beams, which is refused"
_GUESSES: Final = "guesses of tokens, which do not change the text"
_CALLER: Final = "the caller decides"
_OUTPUT: Final = "what transformers returns"
_SPEED: Final = "how transformers computes it"
_RECORD: Final = "a record of how the file was made"
_IDS: Final = "an id; the tokenizer's files decide"

GENERATION_FIELDS: Final[Table] = {
    "eos_token_id": obeyed("an id or several: stop ids, beside those of the other files"),
    "repetition_penalty": refused(_CHOICE, 1),
    "encoder_repetition_penalty": refused(_CHOICE, 1),
    "no_repeat_ngram_size": refused(_CHOICE, 0),
    "encoder_no_repeat_ngram_size": refused(_CHOICE, 0),
    "bad_words_ids": refused(_CHOICE, []),
    "suppress_tokens": refused(_CHOICE, []),
    "begin_suppress_tokens": refused(_CHOICE, []),
    "sequence_bias": refused(_CHOICE, {}, []),
    "forced_bos_token_id": refused(_CHOICE),
    "forced_eos_token_id": refused(_CHOICE),
    "force_words_ids": refused(_CHOICE, []),
    "constraints": refused(_CHOICE, []),
    "exponential_decay_length_penalty": refused(_CHOICE),
    "guidance_scale": refused(_CHOICE, 1),
    "watermarking_config": refused(_CHOICE),
    "dola_layers": refused(_CHOICE),
    "penalty_alpha": refused(_CHOICE, 0),
    "min_length": refused("a text ends with its first stop id: take it out of the file", 0),
    "min_new_tokens": refused("a text ends with its first stop id: take it out of the file", 0),
    "stop_strings": refused("take it out of the file, and give `kern run` each one with --stop", []),
    "num_beams": refused(_SEARCH, 1),
    "num_beam_groups": refused(_SEARCH, 1),
    "token_healing": refused("a prompt is not changed: take it out of the file", False),
    "early_stopping": irrelevant(_BEAMS),
    "length_penalty": irrelevant(_BEAMS),
    "diversity_penalty": irrelevant(_BEAMS),
    **dict.fromkeys(
        (
            "do_sample", "temperature", "top_k", "top_p", "top_h", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff",
            "renormalize_logits",
        ),
        irrelevant(_SAMPLING),
    ),
    "num_return_sequences": irrelevant("of sampling and of a search by beams"),
    "max_length": irrelevant(_CALLER),
    "max_new_tokens": irrelevant(_CALLER),
    "max_time": irrelevant(_CALLER),
    "remove_invalid_values": irrelevant("logits that are not numbers are an error"),
    **dict.fromkeys(
        (
            "use_mtp", "is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule",
            "assistant_confidence_threshold", "assistant_early_exit", "assistant_lookbehind",
            "assistant_ensemble_weight", "target_lookbehind", "prompt_lookup_num_tokens", "max_matching_ngram_size",
            "speculation_type",
        ),
        irrelevant(_GUESSES),
    ),
    **dict.fromkeys(
        (
            "output_attentions", "output_hidden_states", "output_scores", "output_logits", "return_dict_in_generate",
            "return_legacy_cache",
        ),
        irrelevant(_OUTPUT),
    ),
    **dict.fromkeys(
        (
            "use_cache", "cache_implementation", "cache_config", "max_cache_len", "compile_config", "disable_compile",
            "continuous_batching_config", "low_memory", "prefill_chunk_size",
        ),
        irrelevant(_SPEED),
    ),
    "bos_token_id": irrelevant(_IDS),
    "pad_token_id": irrelevant(_IDS),
    "decoder_start_token_id": irrelevant(_IDS),
    "_from_model_config": irrelevant(_RECORD),
    "_commit_hash": irrelevant(_RECORD),
    "transformers_version": irrelevant(_RECORD),
}  # fmt: skip
"""Every field that transformers' GenerationConfig has."""
