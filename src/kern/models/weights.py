"""The weights of a manifest: which checkpoint tensors each is made of, and writing them to a safetensors file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from kern.checkpoints.checkpoint import Checkpoint, CheckpointError
from kern.checkpoints.config import Shape, TransformerConfig, parameter_shapes
from kern.checkpoints.rope import turns
from kern.contracts.text import PAGE
from kern.manifest.arrays import ALIGNMENT

Stored = Literal["bf16", "f32"]

EMBEDDING: Final = "embedding"
ROPE_TABLE: Final = "cos_sin"
LAYER_WEIGHTS: Final = (
    *("input_norm", "qkv_proj", "q_norm", "k_norm"),
    *("o_proj", "post_attention_norm", "gate_up_proj", "down_proj"),
)
"""The weights of a layer, `layers.N.input_norm` and so on; norms of queries and keys where the model has them."""
_BLOCK: Final = 1 << 22
"""Elements converted at a time."""
_ROPE_BLOCK: Final = 1 << 18
"""Elements of the rope table computed at a time, in f64."""
_MAGNITUDE: Final = np.uint16(0x7FFF)
_INFINITY: Final = np.uint16(0x7F80)
"""The bits of a bf16 without its sign: from this value up it is infinite or NaN."""
_DTYPES: Final[Mapping[Stored, np.dtype[Any]]] = {"bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32)}


@dataclass(frozen=True, slots=True)
class Precision:
    """The dtypes that depend on the kernels: of the residual stream, and of the table of cosines and sines."""

    residual: Stored
    rope_table: Stored


OWN: Final = Precision(residual="f32", rope_table="f32")
"""The dtypes of our own kernels."""
RECORDED: Final = Precision(residual="bf16", rope_table="bf16")
"""The dtypes of recorded kernels."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight buffer: checkpoint tensors stacked along the first axis, or computed where it names none."""

    name: str
    dtype: Stored
    shape: tuple[int, ...]
    sources: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return int(np.prod(self.shape)) * (2 if self.dtype == "bf16" else 4)


def weights_of(config: TransformerConfig, precision: Precision = OWN) -> dict[str, Weight]:
    """Every weight by name, in the order of the file; no `lm_head` with tied embeddings."""
    shapes = parameter_shapes(config)

    def stacked(name: str, *sources: str) -> Weight:
        rows, *rest = zip(*(shapes[source] for source in sources), strict=True)
        return Weight(name, "bf16", (sum(rows), *(extent[0] for extent in rest)), sources)

    weights = [stacked(EMBEDDING, "model.embed_tokens.weight")]
    weights.append(Weight(ROPE_TABLE, precision.rope_table, (_rope_rows(config), config.head_dim)))
    for layer in range(config.layers):
        ours, theirs = f"layers.{layer}.", f"model.layers.{layer}."
        qkv = (f"{theirs}self_attn.{which}_proj.weight" for which in "qkv")
        weights.append(stacked(f"{ours}input_norm", f"{theirs}input_layernorm.weight"))
        weights.append(stacked(f"{ours}qkv_proj", *qkv))
        if config.qk_norm:
            weights.append(stacked(f"{ours}q_norm", f"{theirs}self_attn.q_norm.weight"))
            weights.append(stacked(f"{ours}k_norm", f"{theirs}self_attn.k_norm.weight"))
        gate_up = (f"{theirs}mlp.{which}_proj.weight" for which in ("gate", "up"))
        weights.append(stacked(f"{ours}o_proj", f"{theirs}self_attn.o_proj.weight"))
        weights.append(stacked(f"{ours}post_attention_norm", f"{theirs}post_attention_layernorm.weight"))
        weights.append(stacked(f"{ours}gate_up_proj", *gate_up))
        weights.append(stacked(f"{ours}down_proj", f"{theirs}mlp.down_proj.weight"))
    weights.append(stacked("norm", "model.norm.weight"))
    if not config.tied_embeddings:
        weights.append(stacked("lm_head", "lm_head.weight"))
    return {weight.name: weight for weight in weights}


def _rope_rows(config: TransformerConfig) -> int:
    """Every position of every page that a sequence can have."""
    return -(-config.max_positions // PAGE) * PAGE


def rope_table(config: TransformerConfig, positions: range | None = None) -> NDArray[np.float32]:
    """f32 [positions, head_dim]: cosines of a position's angles, then their sines.

    Without `positions` these are all up to max_positions, and to a whole page.
    """
    whole = range(_rope_rows(config))
    return turns(whole if positions is None else positions, config.head_dim, config.rope_theta, config.rope_scaling)


@dataclass(frozen=True, slots=True)
class WeightGroup:
    """A model's weights in a weights file, and the checkpoint tensors, by name and shape, that they are made of."""

    config: TransformerConfig
    weights: Mapping[str, Weight]
    shapes: Mapping[str, Shape]
    tensor: Callable[[str], NDArray[Any]]


def weight_group(checkpoint: Checkpoint, precision: Precision = OWN) -> WeightGroup:
    """All weights of a transformer."""
    config = checkpoint.config
    return WeightGroup(config, weights_of(config, precision), parameter_shapes(config), checkpoint.tensor)


def write_weights(path: Path, groups: Sequence[WeightGroup], progress: Callable[[int, int], None]) -> None:
    """Write the safetensors file at `path`, tensor by tensor; each starts at a multiple of 256 bytes.

    `progress` receives the bytes written so far and the total. Raises CheckpointError, OSError.
    """
    weights = [(weight, group) for group in groups for weight in group.weights.values()]
    total, done = sum(weight.size for weight, _ in weights), 0
    with path.open("wb") as file:
        file.write(_header([weight for weight, _ in weights]))
        for weight, group in weights:
            for block in _blocks(weight, group):
                done += _put(file, block)
                progress(done, total)
            file.write(bytes(-weight.size % ALIGNMENT))
        file.flush()
        os.fsync(file.fileno())


def _header(weights: Sequence[Weight]) -> bytes:
    """The safetensors header. The format allows no gaps, so padding is written as tensors called `padding.N`."""
    entries: dict[str, Any] = {}
    end = 0

    def entry(name: str, dtype: str, shape: tuple[int, ...], size: int) -> None:
        nonlocal end
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size

    for weight in weights:
        entry(weight.name, weight.dtype.upper(), weight.shape, weight.size)
        gap = -weight.size % ALIGNMENT
        if gap:
            entry(f"padding.{len(entries)}", "U8", (gap,), gap)
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _blocks(weight: Weight, group: WeightGroup) -> Iterator[NDArray[Any]]:
    if not weight.sources:
        rows, size = weight.shape
        step = max(1, _ROPE_BLOCK // size)
        for start in range(0, rows, step):
            turned = rope_table(group.config, range(start, min(start + step, rows)))
            yield turned.astype(_DTYPES[weight.dtype], copy=False)
        return
    for source in weight.sources:
        tensor = group.tensor(source)
        if tensor.shape != group.shapes[source]:
            raise CheckpointError(f"{source} has the shape {tensor.shape}, the config says {group.shapes[source]}")
        flat = tensor.reshape(-1)
        for start in range(0, flat.size, _BLOCK):
            yield _finite(source, flat[start : start + _BLOCK])


def _finite(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """The values in bf16. Raises CheckpointError where one is NaN or infinite, or becomes so."""
    with np.errstate(over="ignore"):
        block = values.astype(ml_dtypes.bfloat16, copy=False)
    if np.bitwise_and(block.view(np.uint16), _MAGNITUDE).max(initial=0) < _INFINITY:
        return block
    if np.isfinite(values.astype(np.float32)).all():
        raise CheckpointError(f"{name} has a value of {np.abs(values).max():g}, which bf16 cannot represent")
    raise CheckpointError(f"{name} has a value that is not a finite number", "fetch the checkpoint again")


def _put(file: BinaryIO, block: NDArray[Any]) -> int:
    return file.write(np.ascontiguousarray(block).view(np.uint8).data)
