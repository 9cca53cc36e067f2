"""The keys `tokenizer.*` of a GGUF file, as llama.cpp defines them, and what is done with each."""

from __future__ import annotations

from typing import Final

from kern.checkpoints.fields import Table, irrelevant, obeyed, refused

_ID: Final = "an end of a text"
_NAME: Final = "a token that chat templates know by name"
_GAP: Final = "for filling gaps in code, which is not built"

TEXT_FIELDS: Final[Table] = {
    "tokenizer.ggml.model": obeyed("`gpt2` (byte-level BPE) or `llama` (SentencePiece); others are refused"),
    "tokenizer.ggml.pre": obeyed("of `gpt2`: see the table above; others are refused, and so is none"),
    "tokenizer.ggml.tokens": obeyed(),
    "tokenizer.ggml.token_type": obeyed("normal, unknown, control, user-defined, unused, byte"),
    "tokenizer.ggml.merges": obeyed("of `gpt2`"),
    "tokenizer.ggml.scores": obeyed("of `llama`: merges in their order; refused where two tokens have the same"),
    "tokenizer.ggml.bos_token_id": obeyed(f"{_NAME}; default 1 with `llama`"),
    "tokenizer.ggml.eos_token_id": obeyed(f"{_ID}, and {_NAME}; default 2 with `llama`"),
    "tokenizer.ggml.eot_token_id": obeyed(_ID),
    "tokenizer.ggml.eom_token_id": obeyed(_ID),
    "tokenizer.ggml.fim_pad_token_id": obeyed(_ID),
    "tokenizer.ggml.fim_rep_token_id": obeyed(_ID),
    "tokenizer.ggml.fim_sep_token_id": obeyed(_ID),
    "tokenizer.ggml.unknown_token_id": obeyed(f"{_NAME}; default 0 with `llama`"),
    "tokenizer.ggml.seperator_token_id": obeyed(f"{_NAME}; the key is spelled so"),
    "tokenizer.ggml.padding_token_id": obeyed(_NAME),
    "tokenizer.ggml.cls_token_id": obeyed(_NAME),
    "tokenizer.ggml.mask_token_id": obeyed(_NAME),
    "tokenizer.ggml.add_bos_token": obeyed("default true with `llama` and `llama-bpe`, else false"),
    "tokenizer.ggml.add_space_prefix": obeyed("default true with `llama`; with `gpt2` true is refused"),
    "tokenizer.chat_template": obeyed(),
    "tokenizer.ggml.add_eos_token": refused("a prompt that ends cannot be continued"),
    "tokenizer.ggml.add_sep_token": refused("a prompt with a separator behind it is not built"),
    "tokenizer.ggml.remove_extra_whitespaces": refused("runs of spaces are kept"),
    "tokenizer.ggml.precompiled_charsmap": refused("characters are not replaced before a text is encoded"),
    "tokenizer.ggml.normalizer.lowercase": refused("the case of letters is kept"),
    "tokenizer.ggml.normalizer.strip_accents": refused("accents are kept"),
    "tokenizer.ggml.suppress_tokens": refused("every token may be chosen"),
    "tokenizer.ggml.token_type_count": irrelevant("of BERT's embeddings"),
    "tokenizer.ggml.fim_pre_token_id": irrelevant(_GAP),
    "tokenizer.ggml.fim_suf_token_id": irrelevant(_GAP),
    "tokenizer.ggml.fim_mid_token_id": irrelevant(_GAP),
    "tokenizer.ggml.prefix_token_id": irrelevant(_GAP),
    "tokenizer.ggml.suffix_token_id": irrelevant(_GAP),
    "tokenizer.ggml.middle_token_id": irrelevant(_GAP),
    "tokenizer.chat_templates": irrelevant("names of further templates; `tokenizer.chat_template` is used"),
    "tokenizer.chat_template.*": irrelevant("further templates; `tokenizer.chat_template` is used"),
    "tokenizer.huggingface.json": irrelevant("llama.cpp reads the keys above"),
    "tokenizer.rwkv.world": irrelevant("of another tokenizer"),
}
"""A refused key may be false or empty."""
