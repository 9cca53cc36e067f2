"""How keys and values of one layer lie in a block of the recorded pool, and so in a page of the artifact's."""

from __future__ import annotations

from collections.abc import Iterator

from kern.checkpoints.config import TransformerConfig
from kern.contracts.text import PAGE
from kern.models.buffers import BF16_BYTES
from kern.models.unfused_layers import BlockLayout
from kern.recorded.compare import Problem
from kern.recorded.passes import Call, ParsedPass


def block_layout(each: ParsedPass, config: TransformerConfig) -> BlockLayout:
    """The layout of the blocks that a pass writes."""
    return _layout(each.parts["cache"][0])


def same_blocks(each: ParsedPass, first: ParsedPass, config: TransformerConfig) -> Iterator[Problem]:
    """The blocks of all layers and passes have one layout."""
    wanted = _layout(first.parts["cache"][0])
    for call in each.parts["cache"]:
        if _behind(call) <= 0 or _behind(call) % BF16_BYTES:
            yield f"{call.where}: {call.shown('key_cache')}, {call.shown('value_cache')}", "values behind keys"
        if _layout(call) != wanted:
            yield f"{call.where}: {_layout(call)}", wanted


def full_blocks(each: ParsedPass, first: ParsedPass, config: TransformerConfig) -> Iterator[Problem]:
    """Keys and values fill a block."""
    for call in each.parts["cache"]:
        if not _layout(call).fills(config, int(call["block_stride"])):
            strides = ", ".join(call.shown(name) for name in ("block_stride", "page_stride", "head_stride"))
            yield (
                f"{call.where}: {strides}, values {_behind(call)} bytes behind keys",
                f"{PAGE} slots of {config.kv_heads} keys and values of {config.head_dim} elements",
            )


def _layout(cache: Call) -> BlockLayout:
    return BlockLayout(_behind(cache) // BF16_BYTES, int(cache["page_stride"]), int(cache["head_stride"]))


def _behind(cache: Call) -> int:
    """The offset in bytes of a layer's values from its keys."""
    return int(cache["value_cache"]) - int(cache["key_cache"])
