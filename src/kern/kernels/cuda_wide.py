"""How the products of a step of more than 8 sequences are divided among a GPU's blocks, and a block's warps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

WIDE_MODULE: Final = "wide"
"""Their source, compiled only for a plan with more than 8 sequences."""
WIDE_BESIDES: Final = 1024
"""Bytes of shared memory for barriers and norms, next to the ring."""
_COLUMNS: Final = 16
"""Rows of weights of a tile: those of one tensor-core product."""
_GROUPS: Final = 4
"""Groups of warps for columns or for k; the rest of the eight is for rows."""
_TILES: Final = 6
"""The most tiles of a warp: their sums are in registers."""
_CLUSTERED: Final = 16
"""Blocks in clusters are a multiple of this: a group of multiprocessors that shares clusters has an odd number left."""


@dataclass(frozen=True, slots=True)
class Product:
    """A product of `columns`, None where only the call knows, by `split` blocks of a cluster that share its depth.

    `parts` rows of weights for each column: 2 for gate and up.
    """

    macro: str
    columns: int | None
    split: int
    parts: int = 1

    def divided(self, multiprocessors: int, deep: int | None = None) -> Division:
        """Over a GPU with as many multiprocessors; `deep` groups of warps share a stage's depth, as many as can be."""
        blocks = multiprocessors if self.split == 1 else multiprocessors // _CLUSTERED * _CLUSTERED
        if self.columns is None:
            return Division(self.macro, blocks, self.split, 1, _TILES)
        tiles = -(-self.columns * self.parts // _COLUMNS)
        of_block = -(-tiles * self.split // blocks)
        fitting = [each for each in (4, 2, 1) if of_block * each <= _TILES * _GROUPS]
        deep = deep or (fitting[0] if fitting else 1)
        passes = -(-of_block * deep // (_TILES * _GROUPS))
        return Division(self.macro, blocks, self.split, deep, -(-of_block * deep // (_GROUPS * passes)))


@dataclass(frozen=True, slots=True)
class Division:
    """`blocks`, of which `split` share depth; `deep` groups of a block's warps do as well; `tiles` of each warp."""

    macro: str
    blocks: int
    split: int
    deep: int
    tiles: int

    def defines(self) -> Mapping[str, int]:
        """The macros that the source is compiled with."""
        values = {"SPLIT": self.split, "DEEP": self.deep, "TILES": self.tiles}
        return {f"WIDE_{self.macro}_{name}": value for name, value in values.items()}


def divided(multiprocessors: int, products: Mapping[str, Product]) -> Mapping[str, Division]:
    """Each product over a GPU with as many multiprocessors."""
    return {name: product.divided(multiprocessors) for name, product in products.items()}
