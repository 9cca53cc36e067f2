"""tokenizer.json, opened with the tokenizers library: every error of the library in one line, and bounds it lacks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from kern.manifest.errors import KernError
from kern.text.growth import growth, stages, total_growth
from kern.text.panics import panics_unprinted

MAX_BYTES: Final = 2**28
"""Bytes that a normalizer or a decoder may make of a text: four times the longest text that is read."""
_NO_UNKNOWN: Final = "\0no token for unknown characters"
_CHEAP: Final = 64
"""A decoder with less growth is not measured: its few ids at a time stay far below the bound."""
_NORMALIZED: Final = re.compile(rb'"normalized"\s*:\s*true|\\u00[67]')
"""An added token that is normalized, or a letter that is escaped and may spell one."""
FLAGS: Final = ("single_word", "lstrip", "rstrip", "normalized", "special")
"""What an added token says of how it is found."""
_ENCODE: Final = "cannot encode this text"


class TokenizerError(KernError):
    """A tokenizer.json that is not one, or that cannot encode a text or decode ids."""

    code: ClassVar[str] = "tokenizer"
    exit_code: ClassVar[int] = 2


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
        self._normalizer = self.state("normalizer")
        decoder = self.state("decoder")
        self._decoder_growth = total_growth(decoder)
        self._decode_guarded = _guarded if any(map(_may_panic, stages(decoder))) else _reported

    def state(self, part: str) -> Any:
        """A part of it as tokenizer.json has it (`normalizer`, `decoder`, `post_processor`), None without one."""
        return _state(getattr(self._library, part))

    def encode(self, text: str) -> list[int]:
        """The ids of `text` with nothing added. Raises TokenizerError."""
        _check_normalized(self._normalizer, text)
        ids: list[int] = _guarded(_ENCODE, self._library.encode, text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens left out. Raises TokenizerError."""
        if self._decoder_growth > _CHEAP:
            size = sum(len((self.token(id) or "").encode()) for id in ids)
            _check_bytes("decoder", size * self._decoder_growth)
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
    normalizer = _state(library.normalizer)
    for token in missing:
        _check_normalized(normalizer, token.content)  # the library normalizes them when it takes them
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
        for text in texts:
            _check_normalized(document["normalizer"], text)
    except (LookupError, TypeError, ValueError, RecursionError):
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


def _check_normalized(normalizer: Any, text: str) -> None:
    """Refuse a text that a normalizer may make too long; where it might, its parts are run to see what they do."""
    size = len(text.encode())
    if max(size, 1) * total_growth(normalizer) <= MAX_BYTES:
        return
    for stage in stages(normalizer):
        _check_bytes("normalizer", max(size, 1) * growth(stage))
        text = _guarded(_ENCODE, _normalize, stage, text)
        size = len(text.encode())


def _normalize(stage: Any, text: str) -> str:
    from tokenizers import Tokenizer as Library

    alone = {"version": "1.0", "normalizer": stage, "model": {"type": "BPE", "vocab": {}, "merges": []}}
    normalized: str = Library.from_str(json.dumps(alone)).normalizer.normalize_str(text)
    return normalized


def _check_bytes(part: str, size: int) -> None:
    if size > MAX_BYTES:
        raise TokenizerError(
            f"the {part} of tokenizer.json may make {size:,} bytes of this text, more than {MAX_BYTES:,}",
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
