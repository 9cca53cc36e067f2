"""How the products of a step of more than 8 sequences are divided among the blocks of a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kern.kernels.cuda_sizes import Sizes

WIDE_MODULE: Final = "wide"
"""Their source, compiled only where a plan has them."""
WIDE_TARGET: Final = "sm_90a"
"""The only target with products of warpgroups."""
WIDE_ROWS: Final = 64
"""Rows for which the weights are read once. 128 took 5.4 ms for all products of Qwen3-4B on an H200, 64 take 3.2."""
WIDE_THREADS: Final = 384
"""Threads per block: two warpgroups that multiply, and four warps that load."""
_RING: Final = 200 * 1024
"""Bytes of the ring of slices of weights and rows."""
WIDE_SHARED_MEM: Final = _RING + 1024
"""Bytes of dynamic shared memory: the ring, barriers and norms."""
_ATOM: Final = 64
"""Elements of a row that a slice has at least."""
_TILE: Final = 128
"""Rows of weights that both warpgroups multiply at once."""
_MOST_WEIGHTS: Final = 384
"""The most rows of weights of a block, whose sums are in registers."""
_MIN_STAGES: Final = 3
_WAITING: Final = {2: 0, 4: 12}
"""Multiprocessors of 132 that have no part in clusters of so many blocks.

The H200's groups of multiprocessors are of unequal size: 30 clusters of 4 run at once, not 33, and a second wave of the
other three would take as long as the first.
"""


@dataclass(frozen=True, slots=True)
class Division:
    """`blocks`, of which `split` share depth, with `rows` of weights at once, in slices of `atoms` · 64 elements."""

    macro: str
    blocks: int
    split: int
    rows: int
    atoms: int

    @property
    def possible(self) -> bool:
        """Whether the sums fit in registers, and enough slices in the ring."""
        return self.rows <= _MOST_WEIGHTS and self._stages(self.atoms) >= _MIN_STAGES

    def _stages(self, atoms: int) -> int:
        behind = (-self.rows % _TILE) * _ATOM * 2
        return (_RING - behind) // (atoms * (self.rows + WIDE_ROWS) * _ATOM * 2)

    def deepened(self) -> Division:
        """The same in slices of two atoms, if the ring then has as many as it needs: each costs a handshake."""
        enough = self._stages(2) >= _MIN_STAGES
        return Division(self.macro, self.blocks, self.split, self.rows, 2) if enough else self

    def defines(self) -> Mapping[str, int]:
        """The macros that the source is compiled with."""
        values = {"SPLIT": self.split, "ROWS": self.rows, "ATOMS": self.atoms}
        return {f"WIDE_{self.macro}_{name}": value for name, value in values.items()}


def divisions(sizes: Sizes, multiprocessors: int) -> Mapping[str, Division]:
    """The division of each entry's product; empty where one of them is too large."""
    qkv = sizes.q_size + 2 * sizes.kv_heads * sizes.head_dim
    found = {
        "rms_matmul_wide": _together("QKV", qkv, 2, multiprocessors),
        "output_matmul_add_wide": _together("OUTPUT", sizes.hidden, 4, multiprocessors),
        "down_matmul_add_wide": _together("DOWN", sizes.hidden, 4, multiprocessors),
        "rms_gate_up_wide": _gate_up(sizes.ffn, multiprocessors),
        "rms_matmul_f32_wide": Division("LOGITS", multiprocessors, 1, 2 * _TILE, 1),
    }
    return found if all(division.possible for division in found.values()) else {}


def _together(macro: str, columns: int, split: int, multiprocessors: int) -> Division:
    """A product whose depth the blocks of a cluster share, in one pass over its columns."""
    clusters = (multiprocessors - _WAITING[split] * multiprocessors // 132) // split
    rows = _in_eights(-(-columns // clusters))
    return Division(macro, clusters * split, split, rows, 1).deepened()


def _gate_up(columns: int, multiprocessors: int) -> Division:
    """Eight rows of gate, eight of up and so on, in passes of about equal size."""
    share = -(-columns // multiprocessors)
    passes = -(-share // _TILE)
    return Division("GATE_UP", multiprocessors, 1, 2 * _in_eights(-(-share // passes)), 1)


def _in_eights(rows: int) -> int:
    """The hardware's pattern in shared memory has eight rows."""
    return -(-rows // 8) * 8


def wide_defines(divided: Mapping[str, Division]) -> Mapping[str, int]:
    """The macros that the source is compiled with."""
    found = {name: value for division in divided.values() for name, value in division.defines().items()}
    return {"WIDE_RING_BYTES": _RING, **found} if found else {}
