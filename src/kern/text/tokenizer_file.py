"""tokenizer.json, opened with the tokenizers library: every error of the library in one line, and bounds it lacks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final

from kern.manifest.errors import KernError, variant
from kern.text.growth import growth, stages, total_growth
from kern.text.panics import panics_unprinted

SHORT: Final = 2**18
"""Bytes that a normalizer or a decoder may make of any text: the library takes up to 600 for each."""
FACTOR: Final = 16
"""How much longer it may make a longer text. NFKC makes 11 bytes of one at most, and Llama's normalizer 12."""
MAX_BYTES: Final = 2**28
"""Bytes that it may make at most: four times the longest text that is read."""
_NO_UNKNOWN: Final = "\0no token for unknown characters"
_CHEAP: Final = 64
"""A decoder with less growth is not measured: its few ids at a time stay far below the bound."""
_NORMALIZED: Final = re.compile(rb'"normalized"\s*:\s*true|\\u00[67]')
"""An added token that is normalized, or a letter that is escaped and may spell one."""
FLAGS: Final = ("single_word", "lstrip", "rstrip", "normalized", "special")
"""What an added token says of how it is found."""
_ENCODE: Final = "cannot encode this text"


TokenizerError = variant(KernError, "bad-tokenizer", "tokenizer.json is invalid, or fails on a text.", exit_code=2)


class TokenizerFile:
    """A tokenizer as tokenizer.json has it, without the truncation and padding that may be saved in it.

    The library leaves characters out that a BPE vocabulary lacks where it has no unknown token; here they are an error.
    `pad_token` is that of the padding.
    """

    def __init__(self, content: str | bytes) -> None:
        """Raises TokenizerError for what is not a tokenizer, and for one that encodes a text differently each time."""
        from tokenizers import Tokenizer as Library
        from tokenizers.models import BPE

        data = content.encode() if isinstance(content, str) else content
        _check_added_tokens(data)
        library = _guarded("is not a tokenizer of the tokenizers library", Library.from_buffer, data)
        self.pad_token: str | None = (library.padding or {}).get("pad_token")
        library.no_truncation()
        library.no_padding()
        if getattr(library.model, "dropout", None):
            raise TokenizerError("tokenizer.json drops merges at random (model.dropout)", "set its dropout to null")
        if isinstance(library.model, BPE) and library.model.unk_token is None:
            library.model.unk_token = _NO_UNKNOWN
        _check_not_empty(library)
        self._library = library
        self._normalizer = _Normalizer(self.state("normalizer"))
        decoder = self.state("decoder")
        self._decoder_growth = total_growth(decoder)
        self._decode_guarded = _guarded if any(map(_may_panic, stages(decoder))) else _reported

    def state(self, part: str) -> Any:
        """A part of it as tokenizer.json has it (`normalizer`, `decoder`, `post_processor`), None without one."""
        return _state(getattr(self._library, part))

    def encode(self, text: str) -> list[int]:
        """The ids of `text` with nothing added. Raises TokenizerError."""
        self._normalizer.check(text)
        ids: list[int] = _guarded(_ENCODE, self._library.encode, text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens left out. Raises TokenizerError."""
        if self._decoder_growth > _CHEAP:
            size = sum(len((self.token(id) or "").encode()) for id in ids)
            _check_bytes("decoder", size * self._decoder_growth, _most(size))
        text: str = self._decode_guarded("cannot decode these ids", self._library.decode, ids, skip_special_tokens=True)
        return text

    def token(self, id: int) -> str | None:
        """How the vocabulary spells one id (`<|im_end|>`), None for an id that it lacks."""
        token: str | None = self._library.id_to_token(id)
        return token

    def id(self, token: str) -> int | None:
        """The id of one token, None for a token that it lacks."""
        id: int | None = self._library.token_to_id(token)
        return id

    def added_tokens(self) -> dict[str, dict[str, bool]]:
        """The tokens that are found in a text as a whole, each with its flags."""
        added = self._library.get_added_tokens_decoder().values()
        return {token.content: {flag: getattr(token, flag) for flag in FLAGS} for token in added}


def _state(part: Any) -> Any:
    """A part of a tokenizer as the library saves it, None for None."""
    return None if part is None else json.loads(part.__getstate__())


def with_tokens(content: bytes, tokens: Sequence[tuple[str, Mapping[str, bool]]]) -> bytes:
    """tokenizer.json with these added tokens, each with its flags (`special`, `lstrip`); as it is where it has them.

    Raises TokenizerError.
    """
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Library

    library = Library.from_buffer(content)
    known = {token.content: token for token in library.get_added_tokens_decoder().values()}
    special = {text for text, token in known.items() if token.special}  # what is special stays special
    given = [AddedToken(text, **{**flags, **({"special": True} if text in special else {})}) for text, flags in tokens]
    missing = [token for token in given if repr(token) != repr(known.get(token.content))]
    if not missing:
        return content
    normalizer = _Normalizer(_state(library.normalizer))
    for token in missing:
        normalizer.check(token.content)  # the library normalizes them when it takes them
    library.no_truncation()
    library.no_padding()
    _guarded("cannot take more tokens", library.add_tokens, missing)
    completed: str = library.to_str()
    return completed.encode()


def _check_added_tokens(data: bytes) -> None:
    """Refuse added tokens that the normalizer makes too long: the library normalizes them when it reads them."""
    if not _NORMALIZED.search(data):
        return
    try:
        document = json.loads(data)
        texts = [token["content"] for token in document["added_tokens"] if token["normalized"]]
        normalizer = _Normalizer(document["normalizer"])
        for text in texts:
            normalizer.check(text)
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        return  # not a tokenizer: the library says why


def _check_not_empty(library: Any) -> None:
    """Refuse added tokens that the normalizer makes empty: the library finds them everywhere, without end."""
    if library.normalizer is None:
        return
    for token in library.get_added_tokens_decoder().values():
        if token.normalized and not _guarded(_ENCODE, library.normalizer.normalize_str, token.content):
            raise TokenizerError(
                f"the normalizer of tokenizer.json leaves nothing of the added token {token.content!r}",
                "say of it that it is not normalized",
            )


class _Normalizer:
    """Refuses a text that a normalizer makes too long, before the library makes it so."""

    def __init__(self, state: Any) -> None:
        self._stages = [(stage, growth(stage)) for stage in stages(state)]
        self._growth = prod(most for _, most in self._stages)

    def check(self, text: str) -> None:
        """Raises TokenizerError. Where the text might get too long, the parts are run to see what they do."""
        size = len(text.encode())
        most = _most(size)
        if max(size, 1) * self._growth <= most:
            return
        for stage, factor in self._stages:
            size = max(len(text.encode()), 1)
            if size * factor > most:
                _check_bytes("normalizer", _size_after(stage, factor, text, most), most)
            text = _guarded(_ENCODE, _normalizing(stage), text)


def _normalizing(stage: Mapping[str, Any]) -> Callable[[str], str]:
    """One part of a normalizer alone."""
    from tokenizers import Tokenizer as Library

    alone = {"version": "1.0", "normalizer": stage, "model": {"type": "BPE", "vocab": {}, "merges": []}}
    library = _guarded("is not a tokenizer of the tokenizers library", Library.from_str, json.dumps(alone))
    normalize: Callable[[str], str] = library.normalizer.normalize_str
    return normalize


def _size_after(stage: Mapping[str, Any], factor: int, text: str, most: int) -> int:
    """The bytes that one part makes of `text`; at least more than `most` where it makes more."""
    match stage:
        case {"type": "Replace", "content": str(content)}:
            without, marked = (
                len(_guarded(_ENCODE, _normalizing({**stage, "content": mark}), text).encode()) for mark in ("", "\0")
            )
            return without + (marked - without) * len(content.encode())
        case {"type": "Prepend"}:
            return len(text.encode()) + factor - 1
    if factor > most:
        return factor
    size: int = _guarded(_ENCODE, _size_in_pieces, _normalizing(stage), text, most // factor, most)
    return size


def _size_in_pieces(normalize: Callable[[str], str], text: str, length: int, most: int) -> int:
    """What is made of each `length` characters, which together is about what is made of all of them."""
    size = 0
    for at in range(0, len(text), length):
        size += len(normalize(text[at : at + length]).encode())
        if size > most:
            break
    return size


def _most(size: int) -> int:
    """The bytes that a normalizer or a decoder may make of `size`."""
    return min(max(SHORT, FACTOR * size), MAX_BYTES)


def _check_bytes(part: str, size: int, most: int) -> None:
    if size > most:
        raise TokenizerError(
            f"the {part} of tokenizer.json may make {size:,} bytes of this text, more than {most:,}",
            "give a shorter text, or a tokenizer that replaces less",
        )


def _may_panic(decoder: Mapping[str, Any]) -> bool:
    """Whether it is the decoder whose code panics where it strips more than there is."""
    return decoder["type"] == "Strip" and bool(decoder.get("stop"))


def _guarded(failure: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call the library where its Rust code may panic, which prints a report. Raises TokenizerError."""
    with panics_unprinted():
        return _reported(failure, call, *arguments, **options)


def _reported(failure: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call the library. It raises Exception itself, and what is not an Exception at all for a panic."""
    try:
        return call(*arguments, **options)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        reason = str(error).partition("\n")[0]
        if _NO_UNKNOWN in reason:
            reason = "the vocabulary lacks a character of it, and has no token for unknown ones"
        raise TokenizerError(
            f"tokenizer.json {failure}: {reason}", "use the tokenizer that the model came with"
        ) from error
