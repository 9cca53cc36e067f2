"""What the CUDA kernels are compiled for: a model's sizes and a target, and the launches that follow from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kern.artifact.errors import UnknownTarget
from kern.kernels.cuda_sizes import CHUNK, Round, Sizes, UnsupportedSizes
from kern.kernels.cuda_wide import WIDE_MODULE, WIDE_TARGET, Division, divisions, wide_defines

_WARPS: Final = 8
"""Warps of a matrix-vector kernel that multiply; bulk copies have one more. 4 or 16 were slower on an H200."""
_HELD_CHUNKS: Final = 24
"""Chunks of its rows that a warp of a matrix-vector kernel holds in registers; the rest is in shared memory."""
_TILE, _BATCH = 8, 4
"""Columns whose sums a matrix-vector kernel keeps together; tiles of a batch, of which it keeps two."""
_SUMS_PADDING, _TILES_PADDING = 4, 8
"""Padding, in numbers, between the sums of one row and the next, and of one tile and the next."""
_MAX_SLOTS: Final = 16
_BARRIERS: Final = 2 * _MAX_SLOTS * 8
"""Bytes of the barriers of a ring."""
_SPLIT_COLUMNS: Final = 2 * _BATCH * _TILE
"""Columns of two blocks that split a product's inner dimension: as many as a block keeps sums of."""
_MIN_RING: Final = 32 * 1024
ROUND_MODULES: Final = ("attention_rows", "speculation")
"""Sources for rounds of speculation, compiled only for a plan with a round."""
MARKOV_MODULE: Final = "markov"
"""The source for the Markov head of a draft, compiled only where it supports the draft's head."""
MAX_MARKOV_RANK: Final = 512
_MARKOV_WORK: Final = 1024
"""An upper bound of what its kernel has in shared memory besides the ring, in bytes."""
MANY_ROWS_MODULE: Final = "attention_rows_wide"
"""Attention of the rows of a round, compiled again for several sequences."""
ROWS_MODULE: Final = "matvec_rows"
"""The products of a step, compiled for the rows of a round."""
DRAFT_MODULE: Final = "matvec_draft"
"""The one of these that is compiled again for a draft whose MLP has another width than the target's."""
SPLIT_WARPS: Final = 8
"""Warps per block of attention over a split of the context."""
_FOR_STEP, _FOR_ROUND, _FOR_DRAFT = 0, 1, 2
_MULTIPROCESSORS: Final = {80: 108, 86: 84, 87: 16, 89: 128, 90: 132, 100: 148, 103: 148, 120: 170, 121: 48}
"""Multiprocessors of each architecture's largest common card: they set how work is divided, not what is computed."""
_SHARED_MEM: Final = {80: 163, 87: 163, 90: 227, 100: 227, 103: 227}
"""KB of shared memory that a block may have, where it is more than 99."""
_ROWS: Final = (1, 2, 4, 8)
"""Rows for which a matrix-vector kernel is compiled."""
_TARGET: Final = re.compile(r"sm_(?P<number>[1-9][0-9]+)[af]?")


@dataclass(frozen=True, slots=True)
class Tuning:
    """How the work of a decode step is divided. The defaults are the fastest measured on an H200, one short sequence.

    A matrix-vector kernel has one block per multiprocessor, and loads weights up to `ring_kb` ahead: by bulk copies of
    up to `slot_kb` where the target has those, else each thread loads what it will use. With 163 KB five slices of the
    output projection of Qwen3-4B's attention fit, with 162 four.
    `splits` of the context in attention have eight warps each: compared with 16 of four warps, a step's attention takes
    4.1 µs per layer rather than 4.3 after 100 tokens, and 26.6 rather than 25.9 after 16000.
    `kept_every`: each step of a chain reads a Markov head's whole matrix, and the L2 keeps one in so many of its slots
    in preference to the others: a third of 78 MB, so that a step takes 18 µs rather than 23 (1: no preference).
    `wide_splits` of the context in rounds of several sequences, which have more blocks, two on a multiprocessor.

    What was slower on an H200: rings of which two fit on a multiprocessor, so that the next kernel's fills while one
    runs (2.7 ms per step rather than 2.4: the smaller depth costs more), slots of 8 KB (3.6 ms), letting the next
    kernel start later than when the inputs are ready, and prefetching into the L2 what does not fit in a ring, or what
    the next kernel begins with (by 1 % for 16 KB per block, 3 % for 64).
    """

    ring_kb: int = 163
    slot_kb: int = 40
    splits: int = 8
    kept_every: int = 3
    wide_splits: int = 4


@dataclass(frozen=True, slots=True)
class CudaPlan:
    """Kernels for `target` (`sm_90a`, …) and a model's sizes; without a `round` the modules for one are left out."""

    target: str
    sizes: Sizes
    tuning: Tuning = field(default_factory=Tuning)
    round: Round | None = None

    def __post_init__(self) -> None:
        """Raises UnknownTarget and UnsupportedSizes."""
        match = _TARGET.fullmatch(self.target)
        if match is None or int(match["number"]) < 80:
            raise UnknownTarget(f"no CUDA kernels for `{self.target}`", "targets: sm_80 and later, such as sm_90a")
        if not self._possible_rows:
            widest = max(self._widest_ffn, self.sizes.hidden, self.sizes.q_size)
            raise UnsupportedSizes(
                f"a row of {widest} elements does not fit in a block's shared memory on {self.target}",
                "build for an architecture with more shared memory, such as sm_80 or sm_90a",
            )

    def has(self, source: str) -> bool:
        """Whether a source, by its stem, is compiled."""
        if source == MARKOV_MODULE:
            return self.markov_slots > 0
        if source == WIDE_MODULE:
            return bool(self.wide)
        return self.round is not None or source not in ROUND_MODULES

    @property
    def architecture(self) -> int:
        """90 for sm_90a."""
        return int(self.target.removeprefix("sm_").rstrip("af"))

    @property
    def dependent_launch(self) -> bool:
        """Whether a kernel may start before the one ahead of it has finished (programmatic dependent launch)."""
        return self.architecture >= 90

    @property
    def bulk(self) -> bool:
        """Whether weights are loaded by bulk copies, which a dedicated warp issues."""
        return self.architecture >= 90

    @property
    def matvec_threads(self) -> int:
        """Threads per block of a matrix-vector kernel."""
        return 32 * (_WARPS + self.bulk)

    @property
    def matvec_blocks(self) -> int:
        """Blocks of a matrix-vector kernel."""
        return _MULTIPROCESSORS.get(self.architecture, 132)

    @property
    def rows(self) -> int:
        """Rows of a step for which the weights are read once: 8, or fewer where shared memory is short."""
        return self._sharing(self.sizes.sequences)

    @property
    def rows_of_round(self) -> int:
        """The same of a round."""
        return self._sharing(self.round_rows)

    @property
    def round_rows(self) -> int:
        """Rows of a round; 0 without one."""
        return 0 if self.round is None else self.round.rows

    @property
    def variants(self) -> Mapping[str, tuple[str, Mapping[str, int]]]:
        """Sources that are compiled again, by module: the source, and the macros that differ."""
        if self.round is None:
            return {}
        rows = {"ROWS": self.rows_of_round}
        variants: dict[str, tuple[str, Mapping[str, int]]] = {
            ROWS_MODULE: ("matvec", {**rows, "MATVEC_FOR": _FOR_ROUND})
        }
        if self.sizes.sequences > 1:
            many = {"SPLITS": self.tuning.wide_splits, "ROWS_BLOCKS": 2}
            variants[MANY_ROWS_MODULE] = ("attention_rows", many)
        if self.round.ffn != self.sizes.ffn:
            own = {"FFN": self.round.ffn, "FFN_SPLIT": self.split(self.round.ffn), "MATVEC_FOR": _FOR_DRAFT}
            variants[DRAFT_MODULE] = ("matvec", {**rows, **own})
        return variants

    def split(self, k: int) -> int:
        """How many blocks of `down_matmul_add` share its inner dimension `k`.

        Two where a single block would have to keep part of its rows in shared memory, and has room for the columns of
        both.
        """
        too_long = -(-(k // CHUNK) // _WARPS) > _HELD_CHUNKS
        columns = self.sizes.hidden <= _SPLIT_COLUMNS * self.matvec_blocks // 2
        return 2 if self.bulk and too_long and k % (2 * CHUNK) == 0 and columns else 1

    @property
    def wide(self) -> Mapping[str, Division]:
        """How the products of a step of more than 8 sequences are divided, by entry; empty where there are none."""
        if self.sizes.sequences <= max(_ROWS) or self.target != WIDE_TARGET:
            return {}
        return divisions(self.sizes, self.matvec_blocks)

    def _sharing(self, rows: int) -> int:
        enough = [possible for possible in self._possible_rows if possible >= rows]
        return min(enough) if enough else max(self._possible_rows)

    @property
    def _widest_ffn(self) -> int:
        return max(self.sizes.ffn, 0 if self.round is None else self.round.ffn)

    @property
    def _possible_rows(self) -> list[int]:
        s = self.sizes
        widths = ((s.hidden, 2), (self._widest_ffn, 1), (s.q_size, 1))
        limit = self._shared_bytes - _MIN_RING
        return [rows for rows in _ROWS if all(self._work(k, rows, parts) <= limit for k, parts in widths)]

    def matvec_shared_mem(self, k: int, rows: int, *, pairs: bool = False) -> int:
        """Bytes of dynamic shared memory of a matrix-vector kernel for `rows` rows with the inner dimension `k`.

        `pairs`: it computes two products for each output.
        """
        work = self._work(k, rows, 2 if pairs else 1)
        room = (self._shared_bytes - work) // 1024 * 1024
        return work + min(self.tuning.ring_kb * 1024, room)

    @property
    def _shared_bytes(self) -> int:
        return _SHARED_MEM.get(self.architecture, 99) * 1024

    def _work(self, k: int, rows: int, parts: int) -> int:
        """Bytes of barriers, inputs and sums: what a block's shared memory holds besides the ring."""
        left = max(0, -(-(k // CHUNK) // _WARPS) + 1 - _HELD_CHUNKS)
        sums = 2 * _BATCH * (_WARPS * rows * (parts * _TILE + _SUMS_PADDING) + _TILES_PADDING)
        return _BARRIERS + rows * _WARPS * left * CHUNK * 2 + 4 * sums

    @property
    def prefill_shared_mem(self) -> int:
        """Bytes of dynamic shared memory of attention over a chunk: five tiles of 64 rows."""
        return 5 * 64 * self.sizes.head_dim * 2

    def split_shared_mem(self, new: int) -> int:
        """Bytes of dynamic shared memory of attention over a split: pages of its warps, queries, `new` tokens, sums."""
        head = self.sizes.head_dim * 2
        return SPLIT_WARPS * 2 * 16 * head + 16 * head + new * 2 * head + 2 * SPLIT_WARPS * 16 * 4

    @property
    def markov_slots(self) -> int:
        """Slots of the ring of the Markov head's kernel, each of eight rows of its matrix for every warp.

        0 where there is no round, the rank is not a multiple of 32 up to MAX_MARKOV_RANK, or its rows do not fit.
        """
        if self.round is None or self.round.rank % CHUNK or self.round.rank > MAX_MARKOV_RANK:
            return 0
        slots = (self._shared_bytes - _MARKOV_WORK) // self._markov_slot(self.round)
        return min(slots, _MAX_SLOTS) if slots >= 2 else 0

    def _markov_slot(self, of: Round) -> int:
        return _TILE * _WARPS * of.rank * 2

    @property
    def markov_shared_mem(self) -> int:
        """Bytes of dynamic shared memory of the Markov head's kernel: its ring."""
        return 0 if self.round is None else self.markov_slots * self._markov_slot(self.round)

    def defines(self) -> Mapping[str, int]:
        """The macros that the sources are compiled with."""
        s, t = self.sizes, self.tuning
        rounds = {} if self.round is None else {"ROUND_ROWS": self.round.rows, "ROWS_BLOCKS": 1}
        if self.round is not None and self.markov_slots:
            rounds |= {"MARKOV_RANK": self.round.rank, "MARKOV_SLOTS": self.markov_slots}
            rounds["MARKOV_KEPT_EVERY"] = t.kept_every
        return {
            "HIDDEN": s.hidden,
            "FFN": s.ffn,
            "Q_SIZE": s.q_size,
            "HEAD_DIM": s.head_dim,
            "FFN_SPLIT": self.split(s.ffn),
            "MATVEC_FOR": _FOR_STEP,
            "ROWS": self.rows,
            "SPLITS": t.splits,
            "SPLIT_WARPS": SPLIT_WARPS,
            "MATVEC_BLOCKS": self.matvec_blocks,
            "MATVEC_HELD_CHUNKS": _HELD_CHUNKS,
            "MATVEC_WARPS": _WARPS,
            "MATVEC_RING_BYTES": t.ring_kb * 1024,
            "MATVEC_SLOT_BYTES": t.slot_kb * 1024,
            "MATVEC_SHARED_BYTES": self._shared_bytes,
            "MATVEC_BULK": int(self.bulk),
            **wide_defines(self.wide),
            **rounds,
        }
