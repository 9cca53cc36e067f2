"""Fuzz target: GGUF checkpoints. What is accepted has the tensors that the gguf package reads in it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import pre_tokenizers

from fuzz.byte_changes import LIMITS, change_bytes
from fuzz.gguf_form import (
    ARRAY,
    BOOL,
    F32,
    F64,
    FORMS,
    I8,
    I32,
    STRING,
    U8,
    U32,
    U64,
    Gguf,
    Info,
    Malformed,
    Value,
    parsed,
    with_info,
    with_pair,
    written,
)  # fmt: skip
from fuzz.target import ACCEPTED, Target, require
from kern.checkpoints.config import parameter_shapes
from kern.checkpoints.gguf_checkpoint import GgufCheckpoint
from kern.models.text_files import text_settings

HIDDEN, FFN, HEADS, KV_HEADS = 32, 64, 2, 1
STORED = {0: (1, 4), 1: (1, 2), 8: (32, 34), 2: (32, 18), 3: (32, 20), 30: (1, 2)}
"""Elements and bytes of a block of F32, F16, Q8_0, Q4_0, Q4_1 and BF16."""
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}  # fmt: skip
KEYS = (
    *(b"llama.rope.freq_base", b"llama.rope.scaling.type", b"llama.rope.dimension_count", b"llama.vocab_size"),
    *(b"llama.attention.key_length", b"llama.attention.head_count_kv", b"tokenizer.ggml.add_bos_token", b"llama"),
    *(b"tokenizer.ggml.bos_token_id", b"tokenizer.chat_template", b"general.alignment", b"general.architecture", b""),
)


def _file(stored: int, *, tied: bool) -> bytes:
    """A llama model of one layer with a byte-level tokenizer; norms in f32, matrices stored as `stored`."""
    tokens = [letter.encode() for letter in sorted(pre_tokenizers.ByteLevel.alphabet())] + [b"ab", b"<|endoftext|>"]
    pairs = [
        ("general.architecture", STRING, b"llama"), ("llama.block_count", U32, 1),
        ("llama.embedding_length", U32, HIDDEN), ("llama.feed_forward_length", U32, FFN),
        ("llama.attention.head_count", U32, HEADS),
        ("llama.attention.head_count_kv", U32, KV_HEADS), ("llama.context_length", U32, 64),
        ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5), ("llama.vocab_size", U32, len(tokens)),
        ("llama.rope.freq_base", F32, 1e4), ("tokenizer.ggml.model", STRING, b"gpt2"),
        ("tokenizer.ggml.pre", STRING, b"smollm"), ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
        ("tokenizer.ggml.token_type", ARRAY, (I32, [1] * 257 + [3])),
        ("tokenizer.ggml.merges", ARRAY, (STRING, [b"a b"])), ("tokenizer.ggml.eos_token_id", U32, 257),
        ("tokenizer.ggml.bos_token_id", U32, 257), ("tokenizer.ggml.add_bos_token", BOOL, 0),
        ("tokenizer.chat_template", STRING, b"{{ messages[0].content }}"),
    ]  # fmt: skip
    matrices = {
        "token_embd": (HIDDEN, len(tokens)), "blk.0.attn_q": (HIDDEN, HIDDEN), "blk.0.attn_k": (HIDDEN, 16),
        "blk.0.attn_v": (HIDDEN, 16), "blk.0.attn_output": (HIDDEN, HIDDEN), "blk.0.ffn_gate": (HIDDEN, FFN),
        "blk.0.ffn_up": (HIDDEN, FFN), "blk.0.ffn_down": (FFN, HIDDEN),
    }  # fmt: skip
    if not tied:
        matrices["output"] = (HIDDEN, len(tokens))
    norms = dict.fromkeys(("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"), (HIDDEN,))
    infos, data = [], b""
    for name, dims in (matrices | norms).items():
        kind = 0 if len(dims) == 1 else stored
        elements, size = STORED[kind]
        infos.append(Info(f"{name}.weight".encode(), dims, kind, len(data)))
        data += bytes(index % 97 % 60 for index in range(int(np.prod(dims)) // elements * size))
        data += bytes(-len(data) % 32)
    metadata = tuple((key.encode(), Value(kind, content)) for key, kind, content in pairs)
    return written(Gguf(metadata, tuple(infos), data))[0]


@cache
def seeds() -> tuple[bytes, ...]:
    """Models stored in Q8_0, F16 and Q4_0."""
    return _file(8, tied=False), _file(1, tied=True), _file(2, tied=True)


def change(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Change the metadata or a tensor's description, then perhaps make one count or length lie; or change bytes."""
    if random.random() < 0.1:
        return change_bytes(random, data, others)
    try:
        file = parsed(data)
        changed = random.choice((_metadata, _metadata, _tensor))(random, file) if random.random() < 0.8 else file
        data, fields = written(changed)
    except (Malformed, struct.error, OverflowError, TypeError, IndexError, ValueError):
        return change_bytes(random, data, others)
    if changed is file or random.random() < 0.1:
        place, size = random.choice(fields)
        near = int.from_bytes(data[place : place + size], "little") + random.choice((-1, 1, 8))
        value = random.choice((*LIMITS, near, near, near, 12, 13, 2**20, 2**28)) % 256**size
        data = data[:place] + value.to_bytes(size, "little") + data[place + size :]
    return data


def _metadata(random: Random, file: Gguf) -> Gguf:
    at = random.randrange(len(file.pairs))
    key, value = file.pairs[at]
    kind = random.randrange(8)
    if kind == 0:
        return with_pair(file, at)
    if kind == 1:
        return with_pair(file, at, (key, value), (random.choice((key, key + b"x", random.choice(KEYS))), value))
    if kind == 2:
        return with_pair(file, at, (random.choice((*KEYS, key[:-1], key * 20)), value))
    if kind == 3:
        return with_pair(file, at, (key, random.choice(file.pairs)[1]))
    if kind == 4:
        return with_pair(file, at, (key, _value(random)))
    return with_pair(file, at, (key, Value(value.type, _content(random, value))))


def _content(random: Random, value: Value) -> Any:
    if value.type == STRING:
        return random.choice((change_bytes(random, value.content, [b"none"]), value.content * 2, b"\xff\xfe", b"gpt2"))
    if value.type == ARRAY:
        inner, entries = value.content
        if not entries:
            return inner, [_value(random, U8).content] * random.choice((1, 1000))
        at, times = random.randrange(len(entries)), random.choice((0, 2, 100, 10_000))
        one = _content(random, Value(inner, entries[at]))
        repeated = [*entries[:at], *[entries[at]] * times, *entries[at + 1 :]]
        return inner, random.choice(([], entries[:at], repeated, [*entries[:at], one, *entries[at + 1 :]]))
    if value.type in (F32, F64):
        return random.choice((0.0, -1.0, float("nan"), float("inf"), 1e30, 1e-30, value.content * 2))
    return random.choice((0, 1, value.content + 1, value.content - 1, value.content * 2, random.choice(LIMITS)))


def _value(random: Random, kind: int | None = None, depth: int = 0) -> Value:
    """A value of any type."""
    kind = random.choice((U8, I8, U32, I32, F32, BOOL, STRING, ARRAY, U64, F64)) if kind is None else kind
    if kind == STRING:
        return Value(kind, random.choice((b"", b"a", b"\xff", b"llama", b"x" * 10_000, "é".encode())))
    if kind == ARRAY:
        inner = random.choice((*FORMS, STRING, ARRAY)) if depth < 3 else U8
        entries = [_value(random, inner, depth + 1).content] * random.choice((0, 1, 3, 1000))
        return Value(kind, (inner, entries if depth == 0 else entries[:20]))
    return Value(kind, 1.5 if kind in (F32, F64) else random.choice((0, 1, 2, 100)))


def _tensor(random: Random, file: Gguf) -> Gguf:
    at = random.randrange(len(file.infos))
    info = file.infos[at]
    other = random.choice(file.infos)
    extents = [
        random.choice((0, 1, 2, 31, 32, 64, extent + 1, extent * 2, random.choice(LIMITS))) for extent in info.dims
    ]
    dims = random.choice((tuple(extents), info.dims[::-1], info.dims[:1], (*info.dims, 1), other.dims, (), (1,) * 5))
    offsets = (info.offset + 32, info.offset + 1, other.offset, len(file.data), 0, random.choice(LIMITS))
    return random.choice((
        with_info(file, at), with_info(file, at, info, info), with_info(file, at, replace(info, name=other.name)),
        with_info(file, at, info, replace(info, name=random.choice((b"rope_freqs.weight", b"blk.0.attn_q.bias")))),
        with_info(file, at, replace(info, name=info.name[:-1])), with_info(file, at, replace(info, dims=dims)),
        with_info(file, at, replace(info, dims=dims)),
        with_info(file, at, replace(info, offset=random.choice(offsets))),
        with_info(file, at, replace(info, type=random.choice((0, 1, 2, 3, 8, 12, 30, 4, 5, 39, 40, 255, 2**32 - 1)))),
        replace(file, infos=tuple(random.sample(file.infos, len(file.infos)))),
        replace(file, data=file.data[: random.randrange(len(file.data) + 1)]),
        replace(file, version=random.randrange(5)),
    ))  # fmt: skip


def run(data: bytes, folder: Path) -> str:
    """Read the config, the tokenizer and every tensor of a checkpoint."""
    path = folder / "m.gguf"
    path.write_bytes(data)
    checkpoint = GgufCheckpoint(path)
    config = checkpoint.config
    text_settings(config, checkpoint.text)
    found = {name: checkpoint.tensor(name) for name in parameter_shapes(config)}
    stored = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    for name, values in found.items():
        theirs = stored[_gguf_name(name)]
        require(values.shape == tuple(theirs.shape.tolist()[::-1]), f"another shape: {name}, {values.shape}")
        bits, expected = values.view(np.uint32), dequantize(theirs.data, theirs.tensor_type).astype(np.float32)
        expected_bits = expected.view(np.uint32)
        if name.endswith(("q_proj.weight", "k_proj.weight")):  # its rows come in another order
            bits, expected_bits = np.sort(bits, axis=0), np.sort(expected_bits, axis=0)
        require(np.array_equal(bits, expected_bits) or np.isnan(expected).any(), f"other values: {name}")
    return ACCEPTED


def _gguf_name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    _, _, layer, part = name.split(".", 3)
    short = {
        "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    }[part.removesuffix(".weight")]  # fmt: skip
    return f"blk.{layer}.{short}.weight"


TARGET = Target("gguf", seeds, change, run, short=80)
