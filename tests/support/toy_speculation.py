"""A toy target with a toy draft: every round accepts exactly what a test asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kern.contracts.text import PAGE, TEXT_FILE, DecodeBytes, TextSettings
from kern.manifest.builder import Argument, ManifestBuilder
from kern.manifest.expressions import Add
from kern.manifest.types import Arg, Impl, Kernel, Manifest, Step
from support.artifacts import SUPPORT, compiled, write_artifact

ROWS: Final = 8
RING: Final = 64
COUNTS: Final = 64
VOCABULARY: Final = 97
POSITIONS: Final = 512
CHUNK: Final = 64
MODULE: Final = "toy.so"
TABLE: Final = np.random.default_rng(11).permutation(VOCABULARY)


@dataclass(frozen=True)
class Sizes:
    """What of the toy's manifest a test may choose; `mistake` is added to what `accept` accepts."""

    rows: int = ROWS
    ring: int = RING
    counts: int = COUNTS
    mistake: int = 0


def _kernel(name: str, *params: str) -> Kernel:
    args = tuple(Arg(arg=index) for index in range(len(params)))
    step = Step(symbol=name, params=params, block=(1, 1, 1), grid=(1, 1, 1), shared_mem=0, cubin=MODULE, args=args)
    return Kernel(params=params, impl=Impl(steps=(step,)))


OUT, IN, INOUT = "out buffer<i64>", "in buffer<i64>", "inout buffer<i64>"
KERNELS: Final = {
    "target": (OUT, "out buffer<f32>", "inout ptr", IN, IN, IN, IN, "i32", "i32"),
    "project": ("inout ptr", "in buffer<f32>", IN, IN, "i32"),
    "draft": (OUT, OUT, OUT, "inout ptr", IN, IN, "in buffer<i32>", IN, IN, "i32", "i32", "i32"),
    "begin": (INOUT, INOUT, OUT, "out buffer<i32>", INOUT, IN, IN, *["in buffer<i32>"] * 4, "i32"),
    "advance": (INOUT, INOUT, INOUT, "inout buffer<i32>", INOUT, IN, "i32", "i32"),
    "begin_spec": (INOUT, INOUT, INOUT, INOUT, "in buffer<i32>", IN, IN, "i32"),
    "accept": (
        *(INOUT, INOUT, INOUT, INOUT, INOUT, "inout buffer<i32>", IN, IN, "in buffer<i32>"),
        *("i32", "i32", "i32", "i32"),
    ),
}


def toy_manifest(sizes: Sizes) -> Manifest:
    """Programs of target and draft under the names of the text contract."""
    b, rows = ManifestBuilder("toy speculation"), sizes.rows
    for name, params in KERNELS.items():
        b.kernel(name, _kernel(name, *params))
    tokens, seqs = b.symbol("tokens", max=CHUNK), b.symbol("seqs", max=1)
    pages = b.symbol("pages", max=POSITIONS // PAGE)
    kv, draft_kv = (b.state(name, bytes_per_token=8, granule=PAGE) for name in ("kv", "draft_kv"))
    token_ids, positions, slots = (b.input(n, "i64", [tokens]) for n in ("token_ids", "positions", "slot_mapping"))
    block_table = b.input("block_table", "i32", [seqs, pages])
    seq_lens = b.input("seq_lens", "i32", [seqs])
    first_rows = b.input("cu_seqlens_q", "i32", [Add(add=(seqs, 1))])
    table, spoilt = b.weight("table", "i64", [VOCABULARY]), b.weight("spoilt", "i64", [POSITIONS + ROWS])
    row_slots, next_token = b.input("row_slots", "i32", [seqs]), b.output("next_token", "i64", [seqs])
    step = [b.carry(name, "i64", [1]) for name in ("slot_token", "slot_position", "step_slot")]
    step_length, ring = b.carry("step_length", "i32", [1]), b.carry("token_ring", "i64", [1, sizes.ring])
    each_row = ("round_tokens", "round_positions", "round_slots", "predicted")
    *of_round, predicted = (b.carry(name, "i64", [seqs * rows]) for name in each_row)
    features = b.carry("features", "f32", [tokens])
    accepted, count = b.carry("accepted", "i32", [1, sizes.counts]), b.carry("round_count", "i64", [1])
    spare, unused = b.workspace("spare", "i64", [tokens]), b.workspace("unused", "f32", [tokens])
    round_tokens, round_positions, round_slots = of_round
    of_slot: tuple[Argument, ...] = (*step[:2], ring, count)

    p = b.program("prefill")
    p.dispatch("target", spare, features, kv, table, token_ids, positions, slots, tokens, VOCABULARY)
    p.dispatch("project", draft_kv, features, positions, slots, tokens)
    carries = (*step, step_length, ring)
    p = b.program("decode", tokens=(1, 1))
    p.dispatch("target", next_token, unused, kv, table, *step, 1, VOCABULARY)
    p.dispatch("advance", *carries, next_token, pages, sizes.ring)
    b.program("begin", tokens=(1, 1)).dispatch(
        "begin", *carries, token_ids, positions, block_table, seq_lens, first_rows, row_slots, sizes.ring
    )
    b.program("begin_spec", tokens=(1, 1)).dispatch("begin_spec", *of_slot, row_slots, token_ids, positions, sizes.ring)
    p = b.program("draft", tokens=(rows - 1, rows - 1))
    anchor = row_slots, *step[:2]
    p.dispatch("draft", *of_round, draft_kv, table, spoilt, *anchor, rows - 1, VOCABULARY, pages)
    p = b.program("verify", tokens=(rows, rows))
    p.dispatch("target", predicted, features, kv, table, *of_round, rows, VOCABULARY)
    p = b.program("accept", tokens=(rows, rows))
    drafted = round_slots, accepted, round_tokens, predicted, row_slots
    p.dispatch("accept", *of_slot, *drafted, rows, sizes.ring, sizes.mistake, sizes.counts)
    p = b.program("draft_precompute", tokens=(rows, rows))
    p.dispatch("project", draft_kv, features, round_positions, round_slots, rows)
    return b.build()


def settings(stop_ids: Sequence[int] = (), positions: int = POSITIONS) -> TextSettings:
    """text.json of the toy."""
    return TextSettings(
        vocabulary=VOCABULARY,
        positions=positions,
        embedding="table",
        stop_ids=tuple(stop_ids),
        bos=None,
        chat_template=None,
        tokenizer_sha256=None,
        decode_bytes=DecodeBytes(fixed=8 * VOCABULARY, per_context_token=8),
    )


def write_toy(
    folder: Path,
    spoilt: Iterable[int] = (),
    sizes: Sizes | None = None,
    manifest: Manifest | None = None,
    last: int | None = None,
) -> Path:
    """The toy's folder, its draft wrong at the positions `spoilt`; no token can be chosen after the id `last`."""
    marks = np.zeros(POSITIONS + ROWS, np.int64)
    marks[list(spoilt)] = 1
    table = TABLE.astype(np.int64)
    if last is not None:
        table[last] = -1
    weights: Mapping[str, NDArray[Any]] = {"table": table, "spoilt": marks}
    image = compiled((SUPPORT / "toy_speculation.c").read_text())
    write_artifact(folder, manifest or toy_manifest(sizes or Sizes()), {MODULE: image}, weights)
    (folder / TEXT_FILE).write_text(settings().model_dump_json())
    return folder


def continuation(prompt: Sequence[int], count: int) -> list[int]:
    """The `count` ids that the target gives after `prompt`."""
    ids = list(prompt)
    total = sum(id * (place + 1) for place, id in enumerate(ids))
    for _ in range(count):
        ids.append(int(TABLE[ids[-1]] + total) % VOCABULARY)
        total += ids[-1] * len(ids)
    return ids[len(prompt) :]


def spoiling(prompt: int, accepts: Sequence[int], rows: int = ROWS) -> list[int]:
    """The positions at which the draft must be wrong, so that rounds after a prompt accept just so many."""
    anchor, positions = prompt - 1, []
    for accepted in accepts:
        if accepted < rows - 1:
            positions.append(anchor + accepted + 1)
        anchor += accepted + 1
    return positions
