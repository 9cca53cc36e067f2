"""How much longer a normalizer or decoder of the tokenizers library may make a text.

Both are read in the form in which the library saves them: `{"type": "Replace", "pattern": {"String": " "}, "content":
"▁"}`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, Final

_GROWTH: Final[Mapping[str, int]] = {
    # The forms of Unicode: the largest expansion in UTF-8, from unicode.org/faq/normalization.
    "NFC": 3,
    "NFD": 3,
    "NFKC": 11,
    "NFKD": 11,
    "Lowercase": 3,
    "Strip": 1,
    "StripAccents": 1,
    "Nmt": 1,
    "BertNormalizer": 15,  # NFD, lower case, and spaces around a character of three bytes
    "ByteLevel": 3,
    "ByteFallback": 3,
    "Fuse": 1,
    "Metaspace": 1,
}
_OTHER: Final = 32
"""For types that combine several of these, or that are not in this table."""


def stages(state: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """The parts of a normalizer or decoder, in the order in which they run; empty for None."""
    if state is None:
        return
    if state["type"] != "Sequence":
        yield state
        return
    for part in state.get("normalizers") or state.get("decoders") or ():
        yield from stages(part)


def growth(stage: Mapping[str, Any]) -> int:
    """The maximum number of bytes of UTF-8 that one part makes of each byte, or of an empty text."""
    match stage:
        case {"type": "Replace", "pattern": {"String": str(found)}, "content": str(content)} if found:
            return max(1, -(-len(content.encode()) // len(found.encode())))
        case {"type": "Replace", "content": str(content)}:  # a regular expression may match between two bytes
            return 1 + 2 * len(content.encode())
        case {"type": "Prepend", "prepend": str(content)}:
            return 1 + len(content.encode())
        case {"type": "Precompiled", "precompiled_charsmap": str(charsmap)}:
            return max(1, *map(len, base64.b64decode(charsmap).split(b"\0")))
        case {"type": str(name)}:
            return _GROWTH.get(name, _OTHER)
    return _OTHER


def total_growth(state: Mapping[str, Any] | None) -> int:
    """The maximum number of bytes that all parts together make of each byte."""
    return prod(map(growth, stages(state)))
