"""A tokenizer small enough to know its ids by heart."""

from __future__ import annotations

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from kern.text import Tokenizer
from kern.text.contract import DecodeBytes, TextSettings


def bytes_tokenizer(bos: int | None = None, template: str | None = None) -> Tokenizer:
    """One token a byte, so that every character beyond ASCII is spread over several; one merge, two specials."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: place for place, letter in enumerate([*alphabet, "<end>", "ab", "<begin>"])}
    library = Library(models.BPE(vocab=vocabulary, merges=[("a", "b")]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["<end>", "<begin>"])
    settings = TextSettings(
        vocabulary=259,
        positions=64,
        embedding="table",
        stop_ids=(256,),
        bos=bos,
        chat_template=template,
        tokenizer_sha256=None,
        decode_bytes=DecodeBytes(fixed=1, per_context_token=1),
    )
    return Tokenizer(settings, library.to_str())
