"""GGUF files of small models, as llama.cpp's converter writes them, with changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from gguf import GGMLQuantizationType, GGUFEndian, GGUFWriter
from numpy.typing import NDArray
from tokenizers import pre_tokenizers

from kern.checkpoints.config import TransformerConfig

_PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "model.embed_tokens": "token_embd",
    "model.norm": "output_norm", "lm_head": "output", "model.layers": "blk",
}  # fmt: skip


def paired(rows: NDArray[Any], heads: int) -> NDArray[Any]:
    """Rows of a head's halves in turn, as llama.cpp has those of llama."""
    return rows.reshape(heads, 2, len(rows) // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def gguf_metadata(config: TransformerConfig) -> dict[str, Any]:
    """The keys that a converter writes."""
    c, a = config, config.family
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<end>", "ab"]
    words += [f"[unused{i}]" for i in range(c.vocabulary - len(words))]
    return {
        "general.architecture": a, "general.name": "small", "general.quantization_version": 2,
        f"{a}.block_count": c.layers, f"{a}.context_length": c.max_positions, f"{a}.embedding_length": c.hidden,
        f"{a}.feed_forward_length": c.ffn, f"{a}.attention.head_count": c.heads,
        f"{a}.attention.head_count_kv": c.kv_heads, f"{a}.attention.key_length": c.head_dim,
        f"{a}.attention.value_length": c.head_dim, f"{a}.attention.layer_norm_rms_epsilon": c.norm_eps,
        f"{a}.rope.freq_base": c.rope_theta, f"{a}.rope.dimension_count": c.head_dim, f"{a}.vocab_size": c.vocabulary,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [3 if word == "<end>" else 1 for word in words],
        "tokenizer.ggml.merges": ["a b"], "tokenizer.ggml.eos_token_id": words.index("<end>"),
    }  # fmt: skip


def gguf_tensors(config: TransformerConfig, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Tensors by Hugging Face names, under llama.cpp's and in its order."""
    found = {}
    for name, tensor in tensors.items():
        short = name
        for theirs, ours in _PARTS.items():
            short = short.replace(theirs, ours)
        heads = config.heads if "q_proj.weight" in name else config.kv_heads if "k_proj.weight" in name else None
        found[short] = paired(tensor, heads) if heads is not None and config.family == "llama" else tensor
    return found


def write_gguf(
    path: Path,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any]],
    endian: GGUFEndian = GGUFEndian.LITTLE,
) -> Path:
    """Write a file; keys whose value is None are left out."""
    writer = GGUFWriter(path, metadata["general.architecture"], endianess=endian)
    for key, value in metadata.items():
        if value is not None and key != "general.architecture":
            _add(writer, key, value)
    for name, tensor in tensors.items():
        if tensor.dtype == ml_dtypes.bfloat16:
            writer.add_tensor(name, tensor.view(np.uint8), raw_dtype=GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(name, np.ascontiguousarray(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    add = writer.add_array if isinstance(value, list) else writer.add_int32 if value == -1 else kinds[type(value)]
    add(key, value)
