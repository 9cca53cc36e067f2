"""tokenizer.json, opened with the tokenizers library: its errors in one line each, and limits that it lacks."""

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
"""Bytes that a normalizer or decoder may always produce: the library uses up to 600 bytes of memory for each."""
FACTOR: Final = 16
"""Its limit per byte of a longer text. NFKC produces up to 11 bytes per byte, and Llama's normalizer 12."""
MAX_BYTES: Final = 2**28
"""Its limit in total: four times the longest text that is read."""
_NO_UNKNOWN: Final = "\0no token for unknown characters"
_CHEAP: Final = 64
"""A decoder with less growth is not checked: it decodes few ids at a time, far below the limit."""
_NORMALIZED: Final = re.compile(rb'"normalized"\s*:\s*true|\\u00[67]')
"""An added token that is normalized, or an escaped letter, which may be part of that key."""
FLAGS: Final = ("single_word", "lstrip", "rstrip", "normalized", "special")
"""The properties of an added token."""
_ENCODE: Final = "cannot encode this text"


TokenizerError = variant(KernError, "bad-tokenizer", "tokenizer.json is invalid, or fails on a text.", exit_code=2)


class TokenizerFile:
    """The tokenizer of tokenizer.json, without the truncation and padding that may be saved in it.

    If a BPE vocabulary lacks a character and has no unknown token, the library drops the character; here it is an
    error. `pad_token` is the padding's token.
    """

    def __init__(self, content: str | bytes) -> None:
        """Raises TokenizerError for an invalid file, and for a tokenizer that encodes a text differently each time."""
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
        """The part `part` of tokenizer.json (`normalizer`, `decoder`, `post_processor`), None if there is none."""
        return _state(getattr(self._library, part))

    def encode(self, text: str) -> list[int]:
        """The ids of `text` with nothing added. Raises TokenizerError."""
        self._normalizer.check(text)
        ids: list[int] = _guarded(_ENCODE, self._library.encode, text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids` without special tokens. Raises TokenizerError."""
        if self._decoder_growth > _CHEAP:
            size = sum(len((self.token(id) or "").encode()) for id in ids)
            _check_bytes("decoder", size * self._decoder_growth, _most(size))
        text: str = self._decode_guarded("cannot decode these ids", self._library.decode, ids, skip_special_tokens=True)
        return text

    def token(self, id: int) -> str | None:
        """The token of an id (`<|im_end|>`), None for an unknown id."""
        token: str | None = self._library.id_to_token(id)
        return token

    def id(self, token: str) -> int | None:
        """The id of a token, None for an unknown token."""
        id: int | None = self._library.token_to_id(token)
        return id

    def added_tokens(self) -> dict[str, dict[str, bool]]:
        """The added tokens, each with its flags."""
        added = self._library.get_added_tokens_decoder().values()
        return {token.content: {flag: getattr(token, flag) for flag in FLAGS} for token in added}


def _state(part: Any) -> Any:
    """A part of a tokenizer in the form in which the library saves it, None for None."""
    return None if part is None else json.loads(part.__getstate__())


def with_tokens(content: bytes, tokens: Sequence[tuple[str, Mapping[str, bool]]]) -> bytes:
    """tokenizer.json with these added tokens, each with its flags (`special`, `lstrip`); unchanged if it has them.

    Raises TokenizerError.
    """
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Library

    library = Library.from_buffer(content)
    known = {token.content: token for token in library.get_added_tokens_decoder().values()}
    special = {text for text, token in known.items() if token.special}  # a special token stays special
    added = [AddedToken(text, **{**flags, **({"special": True} if text in special else {})}) for text, flags in tokens]
    missing = [token for token in added if repr(token) != repr(known.get(token.content))]
    if not missing:
        return content
    normalizer = _Normalizer(_state(library.normalizer))
    for token in missing:
        normalizer.check(token.content)  # the library normalizes tokens when it adds them
    library.no_truncation()
    library.no_padding()
    _guarded("cannot take more tokens", library.add_tokens, missing)
    completed: str = library.to_str()
    return completed.encode()


def _check_added_tokens(data: bytes) -> None:
    """Refuse added tokens that the normalizer makes too long: the library normalizes tokens when it reads them."""
    if not _NORMALIZED.search(data):
        return
    try:
        document = json.loads(data)
        texts = [token["content"] for token in document["added_tokens"] if token["normalized"]]
        normalizer = _Normalizer(document["normalizer"])
        for text in texts:
            normalizer.check(text)
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        return  # not a tokenizer: the library reports why


def _check_not_empty(library: Any) -> None:
    """Refuse added tokens that the normalizer makes empty: the library would find them in an endless loop."""
    if library.normalizer is None:
        return
    for token in library.get_added_tokens_decoder().values():
        if token.normalized and not _guarded(_ENCODE, library.normalizer.normalize_str, token.content):
            raise TokenizerError(
                f"the normalizer of tokenizer.json makes the added token {token.content!r} empty",
                "set its `normalized` to false",
            )


class _Normalizer:
    """Refuses a text that a normalizer would make too long, before the library does so."""

    def __init__(self, state: Any) -> None:
        self._stages = [(stage, growth(stage)) for stage in stages(state)]
        self._growth = prod(most for _, most in self._stages)

    def check(self, text: str) -> None:
        """Raises TokenizerError. If the text might become too long, the parts are run one by one to measure it."""
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
    """The function of one part of a normalizer."""
    from tokenizers import Tokenizer as Library

    alone = {"version": "1.0", "normalizer": stage, "model": {"type": "BPE", "vocab": {}, "merges": []}}
    library = _guarded("is not a tokenizer of the tokenizers library", Library.from_str, json.dumps(alone))
    normalize: Callable[[str], str] = library.normalizer.normalize_str
    return normalize


def _size_after(stage: Mapping[str, Any], factor: int, text: str, most: int) -> int:
    """The bytes that one part makes of `text`; a number above `most` if it makes more than that."""
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
    """The sum for pieces of `length` characters, which is close to the size for the whole text."""
    size = 0
    for at in range(0, len(text), length):
        size += len(normalize(text[at : at + length]).encode())
        if size > most:
            break
    return size


def _most(size: int) -> int:
    """The bytes that a normalizer or decoder may make of `size` bytes."""
    return min(max(SHORT, FACTOR * size), MAX_BYTES)


def _check_bytes(part: str, size: int, most: int) -> None:
    if size > most:
        raise TokenizerError(
            f"the {part} of tokenizer.json may expand this text to {size:,} bytes; the limit is {most:,}",
            "give a shorter text, or a tokenizer that replaces less",
        )


def _may_panic(decoder: Mapping[str, Any]) -> bool:
    """Whether this decoder panics if it strips more characters than there are."""
    return decoder["type"] == "Strip" and bool(decoder.get("stop"))


def _guarded(failure: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a function of the library whose Rust code may panic and print a report. Raises TokenizerError."""
    with panics_unprinted():
        return _reported(failure, call, *arguments, **options)


def _reported(failure: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call the library. It raises Exception itself, and a BaseException for a panic. Raises TokenizerError."""
    try:
        return call(*arguments, **options)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        reason = str(error).partition("\n")[0]
        if _NO_UNKNOWN in reason:
            reason = "it has a character that is not in the vocabulary, which has no token for unknown ones"
        raise TokenizerError(
            f"tokenizer.json {failure}: {reason}", "use the tokenizer that the model came with"
        ) from error
