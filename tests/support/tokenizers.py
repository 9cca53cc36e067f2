"""A tokenizer small enough to know its ids by heart."""

from __future__ import annotations

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers

from kern.contracts.text import DecodeBytes, TextSettings
from kern.text import Tokenizer


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
        special_tokens={} if bos is None else {"bos_token": "<begin>"},
        tokenizer_sha256=None,
        decode_bytes=DecodeBytes(fixed=1, per_context_token=1),
    )
    return Tokenizer(settings, library.to_str())


def spaced_library() -> Library:
    """As SentencePiece: a space before the text, which decoding leaves out at the very beginning; two bytes; specials.

    Ids: 0 <s>, 1 </s>, 2 ▁, 3 ▁Hello, 4 ▁world, 5 !, 6 and 7 the bytes of é, 8 ▁▁.
    """
    tokens = ["<s>", "</s>", "▁", "▁Hello", "▁world", "!", "<0xC3>", "<0xA9>", "▁▁"]
    vocabulary = {token: place for place, token in enumerate(tokens)}
    library = Library(models.BPE(vocab=vocabulary, merges=[("▁", "▁")], byte_fallback=True))
    library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    library.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    library.add_special_tokens(["<s>", "</s>"])
    return library


def spaced_tokenizer() -> Tokenizer:
    """`spaced_library` of a folder."""
    return Tokenizer(bytes_tokenizer().settings, spaced_library().to_str())
