"""Attention of the rows of a round of speculation on a GPU against float64: causal or full, with and without norms."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import pytest

from kern.contracts.text import PAGE
from kern.device.base import Device
from kern.kernels.cuda_plan import CudaPlan
from kern.kernels.cuda_sizes import Round, Sizes
from kernels.cuda_harness import CudaLibrary, libraries_of
from kernels.harness import BF16, bf16, close, poison
from kernels.test_attention import LAYER, expected, filled
from kernels.test_cuda_kernels import EPS, angles, near_attention, rotated, roundings

pytestmark = pytest.mark.gpu

F64, I32, I64 = np.float64, np.int32, np.int64
SCALE = 0.2
SHAPES = {  # and the rows of a round
    "group 1": (Sizes(hidden=256, ffn=256, q_heads=2, kv_heads=2, head_dim=128, sequences=8), 8),
    "group 3": (Sizes(hidden=256, ffn=256, q_heads=9, kv_heads=3, head_dim=64, sequences=8), 8),
    "group 4": (Sizes(hidden=256, ffn=256, q_heads=8, kv_heads=2, head_dim=128, sequences=8), 8),
    "group 8": (Sizes(hidden=256, ffn=256, q_heads=8, kv_heads=1, head_dim=64, sequences=8), 8),
    "many rows": (Sizes(hidden=256, ffn=256, q_heads=4, kv_heads=2, head_dim=64, sequences=8), 19),
}


@pytest.fixture(scope="module")
def libraries(device: Device) -> Mapping[str, CudaLibrary]:
    shapes = SHAPES.items()
    plans = {n: CudaPlan(device.target, sizes, round=Round(rows, sizes.ffn, 32)) for n, (sizes, rows) in shapes}
    return libraries_of(device, plans)


class Rows:
    """The last rows of each of some sequences, whose contexts are in the pool, but for the rows' own keys and values.

    `lengths` are those of the sequences, 0 of padding. `kept` are the rows with a slot, of each; what the pool has in a
    kept row's slot is NaN. `pages` of the table: enough where it is not given; then a length may be beyond them.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        s: Sizes,
        lengths: list[int],
        rows: int,
        kept: list[list[int]],
        pages: int | None = None,
    ) -> None:
        self.s, self.lengths, self.rows, self.kept = s, lengths, rows, kept
        self.keys = [length if pages is None else min(length, pages * PAGE) for length in lengths]
        self.cache = filled(rng, self.keys, s.kv_heads, s.head_dim, pages)
        self.stride = s.q_size + (2 * s.kv_heads + 1) * s.head_dim  # wider than what is in it
        self.qkv = bf16(rng.normal(size=(len(lengths) * rows, self.stride)))
        self.norms = bf16(rng.normal(size=s.head_dim)), bf16(rng.normal(size=s.head_dim))
        room = self.cache.table.shape[1] * PAGE
        self.cos_sin = angles(rng, room, s.head_dim)
        self.places = np.array([np.arange(length - rows, length) for length in lengths])
        self.positions = np.clip(self.places, 0, room - 1)
        self.slots = np.full((len(lengths), rows), -1, I64)
        for seq, row in self._kept():
            page, slot = self._page(seq, row)
            self.slots[seq, row] = page * PAGE + slot
            self.cache.pool[page, LAYER, :, :, slot] = np.nan

    def run(
        self, cuda: CudaLibrary, with_norms: bool, causal: bool, wide: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Outputs, with rows for which there are no tokens behind them, and the pool."""
        s, cache, pool, qkv, tokens = self.s, self.cache, self.cache.pool.copy(), self.qkv.copy(), len(self.qkv)
        out = poison((tokens + 3, s.q_size), BF16)
        where = {**cache.arguments(s.q_heads, self.stride), "pool": pool[:, LAYER:], "slots": self.slots}
        rows = {"positions": self.positions, "cos_sin": self.cos_sin, "seq_lens": np.array(self.lengths, I32)}
        entry = ("norm_" if with_norms else "") + "append_attention_rows" + ("" if causal else "_full") + "_wide" * wide
        norms = {"q_norm": self.norms[0], "k_norm": self.norms[1], "eps": EPS} if with_norms else {}
        sizes = {"tokens": tokens, "seqs": len(self.lengths), "scale": SCALE}
        cuda.run(entry, o=out, qkv=qkv, **sizes, **norms, **where, **rows)
        assert qkv.tobytes() == self.qkv.tobytes()
        return out, pool

    def expected(self, stored: np.ndarray, with_norms: bool, causal: bool) -> tuple[np.ndarray, np.ndarray]:
        """Outputs, for either rounding of the queries, and the pool, in float64.

        `stored` is the pool with the kept rows' keys as they were rounded.
        """
        s, pool = self.s, self.cache.pool.astype(F64)
        heads = self.qkv.reshape(len(self.qkv), -1, s.head_dim)
        q, k, v, _ = np.split(heads, np.cumsum([s.q_heads, s.kv_heads, s.kv_heads]), axis=1)
        q_norm, k_norm = self.norms if with_norms else (None, None)
        angle = self.cos_sin[self.positions.reshape(-1)][:, None]
        q, k = rotated(q, q_norm, angle), rotated(k, k_norm, angle)
        for seq, row in self._kept():
            (page, slot), of = self._page(seq, row), seq * self.rows + row
            pool[page, LAYER, 0, :, slot], pool[page, LAYER, 1, :, slot] = k[of], v[of]
            self.cache.keys[seq][self.places[seq, row]] = stored[page, LAYER, 0, :, slot]
            self.cache.values[seq][self.places[seq, row]] = v[of]
        wants = [[self._output(x, at, causal) for at in range(len(self.qkv))] for x in roundings(q)]
        return np.array(wants), pool

    def _output(self, q: np.ndarray, at: int, causal: bool) -> np.ndarray:
        seq, row = divmod(at, self.rows)
        seen = min(self.places[seq, row] + 1, self.keys[seq]) if causal else self.keys[seq]
        return expected(q[at], self.cache, seq, seen, SCALE) if seen > 0 else np.zeros(self.s.q_size)

    def check(self, cuda: CudaLibrary) -> None:
        for with_norms, causal, wide in product((True, False), (True, False), {False, len(self.lengths) > 1}):
            out, pool = self.run(cuda, with_norms, causal, wide)
            wants, wanted = self.expected(pool, with_norms, causal)
            stored, tokens = pool.astype(F64), len(self.qkv)
            assert np.array_equal(np.isnan(stored), np.isnan(wanted))
            close(np.nan_to_num(stored), np.nan_to_num(wanted), slack=1e-4)
            near_attention(out[:tokens], wants, self.s.head_dim)
            assert np.isnan(out[tokens:].astype(F64)).all()

    def _kept(self) -> list[tuple[int, int]]:
        return [(seq, row) for seq, rows in enumerate(self.kept) for row in rows]

    def _page(self, seq: int, row: int) -> tuple[int, int]:
        place = int(self.places[seq, row])
        return int(self.cache.table[seq, place // PAGE]), place % PAGE


@pytest.mark.parametrize("context", [0, 1, 15, 16, 17, 57, 100, 709, 5000])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_after_a_context(libraries, rng, shape, context):
    sizes, most = SHAPES[shape]
    for rows in (1, most - 1, most):
        Rows(rng, sizes, [context + rows], rows, [list(range(rows))]).check(libraries[shape])


@pytest.mark.parametrize("kept", [[], [0], [1, 2, 6], [0, 1, 2, 3, 4, 5, 6]])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_without_a_slot_leaves_what_is_there(libraries, rng, shape, kept):
    sizes, most = SHAPES[shape]
    for rows in (7, most):
        Rows(rng, sizes, [60 + rows], rows, [kept]).check(libraries[shape])


@pytest.mark.parametrize("inside", [0, 1, 3])
@pytest.mark.parametrize("pages", [1, 3, 5])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_past_the_capacity_see_the_pages_there_are(libraries, rng, shape, pages, inside):
    sizes, most = SHAPES[shape]
    for rows in (7, most):
        Rows(rng, sizes, [pages * PAGE - inside + rows], rows, [list(range(inside))], pages).check(libraries[shape])


def test_a_length_far_past_the_capacity(libraries, rng):
    sizes, _ = SHAPES["group 4"]
    for length in (1000, 2**31 - 1):
        Rows(rng, sizes, [length], 8, [[]], pages=3).check(libraries["group 4"])


LENGTHS = [[8, 400], [129, 0, 17], [24, 40, 500, 16, 8, 33, 1000, 77], [0] * 7 + [30]]


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_several_sequences(libraries, rng, shape, lengths):
    sizes, most = SHAPES[shape]
    for rows in (7, most):
        longer = [length + most if length else 0 for length in lengths]
        kept = [list(range(rng.integers(0, rows + 1))) if length else [] for length in lengths]
        Rows(rng, sizes, longer, rows, kept).check(libraries[shape])


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_each_sequence_has_the_bits_that_it_has_alone(libraries, rng, shape, wide):
    sizes, rows = SHAPES[shape]
    many = Rows(rng, sizes, [400, 24, 60, 130], rows, [list(range(rows))] * 4)
    together, pool = many.run(libraries[shape], True, True, wide)
    for seq in range(4):
        alone = Rows(rng, sizes, [many.lengths[seq]], rows, [many.kept[seq]])
        own = slice(seq * rows, (seq + 1) * rows)
        alone.qkv, alone.norms, alone.cos_sin = many.qkv[own].copy(), many.norms, many.cos_sin
        alone.cache.pool, alone.cache.table = many.cache.pool, many.cache.table[seq : seq + 1]
        alone.slots = many.slots[seq : seq + 1]
        out, found = alone.run(libraries[shape], True, True, wide)
        assert out[:rows].tobytes() == together[own].tobytes()
        pages = many.cache.table[seq]
        assert found[pages].tobytes() == pool[pages].tobytes()
