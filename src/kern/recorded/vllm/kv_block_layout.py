"""How keys and values of one layer lie in a block of the recorded pool, and so in a page of the artifact's."""

from __future__ import annotations

from kern.checkpoints.config import TransformerConfig
from kern.contracts.text import PAGE
from kern.models.buffers import BF16_BYTES
from kern.models.unfused_layers import BlockLayout
from kern.recorded.parse_pass import Call
from kern.recorded.vllm.assumptions import PAGE as PAGE_CLAIM
from kern.recorded.vllm.assumptions import POOL, Refuted


def block_layout(cache: Call, config: TransformerConfig) -> BlockLayout:
    """The layout of a block that a cache write writes. Raises Refuted."""
    apart = int(cache["value_cache"]) - int(cache["key_cache"])
    if apart <= 0 or apart % BF16_BYTES:
        raise Refuted(POOL, f"{cache.where}: {cache.shown('key_cache')}, {cache.shown('value_cache')}", "values behind")
    block = BlockLayout(apart // BF16_BYTES, int(cache["page_stride"]), int(cache["head_stride"]))
    if not block.fills(config, int(cache["block_stride"])):
        evidence = ", ".join(cache.shown(name) for name in ("block_stride", "page_stride", "head_stride"))
        raise Refuted(
            PAGE_CLAIM,
            f"{cache.where}: {evidence}, values {apart} bytes behind keys",
            f"{PAGE} slots of {config.kv_heads} keys and values of {config.head_dim} elements",
        )
    return block
