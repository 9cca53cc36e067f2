"""Calls of several sequences by the text contract, without the engine: rows in any order, padding rows between them.

After each call, the state must have changed nowhere but at the places of the call's own tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kern.checkpoints.config import TransformerConfig
from kern.contracts.text import PAGE, decoding_program, row_buckets, token_buckets
from kern.manifest.references import symbol_range
from kern.runtime.executable import Executable
from support.agreement import Logits, Run, agreement

I64 = NDArray[np.int64]


@dataclass
class Text:
    """A sequence: the prompt, what was chosen after it, its slot and its pages; `done` tokens have their state.

    `held`: the last token is the one of the slot, so that the device knows it.
    """

    prompt: list[int]
    slot: int
    pages: list[int]
    chosen: list[int] = field(default_factory=list)
    logits: list[NDArray[np.float32]] = field(default_factory=list)
    done: int = 0
    held: bool = False

    @property
    def ids(self) -> list[int]:
        return self.prompt + self.chosen

    def places(self, start: int, end: int) -> I64:
        """The slots in the cache of these positions."""
        at = np.arange(start, end)
        return np.asarray(np.array(self.pages)[at // PAGE] * PAGE + at % PAGE, np.int64)

    def choose(self, id: int, logits: NDArray[np.float32]) -> None:
        self.chosen.append(id)
        self.logits.append(logits)
        self.held = True

    @property
    def run(self) -> Run:
        return Run(self.prompt, self.chosen, np.array(self.logits))


class Batch:
    """An executable whose calls are made by hand. `pages` is how many each sequence may have.

    `watched` is the model whose state is compared before and after each call. `graph` replays each decode as a graph.
    """

    def __init__(
        self, executable: Executable, pages: int, *, watched: TransformerConfig | None = None, graph: bool = False
    ) -> None:
        self.executable, self.pages, self.watched, self.graph = executable, pages, watched, graph
        manifest = executable.manifest
        (self.slots,) = (extent for extent in manifest.buffers["slot_token"].shape if isinstance(extent, int))
        self.chunk = symbol_range(manifest, "step", "tokens")[1]
        self._graphs: dict[int, Callable[[], None]] = {}

    def begin(self, texts: Sequence[Text]) -> None:
        """The last token of each is its slot's."""
        count = len(texts)
        self._write(
            {"tokens": count, "seqs": count},
            token_ids=[text.ids[-1] for text in texts],
            positions=[len(text.ids) - 1 for text in texts],
            row_slots=[text.slot for text in texts],
        )
        self._run("begin", {"tokens": count, "seqs": count}, [])
        for text in texts:
            text.held = True

    def decode(self, rows: Sequence[Text | None], bucket: int | None = None) -> None:
        """A step of these rows; None is a padding row, of which some more follow up to `bucket`."""
        if bucket is None:
            bucket = next(size for size in row_buckets(self.slots) if size >= len(rows))
        padded = [*rows, *[None] * (bucket - len(rows))]
        values = {"tokens": bucket, "seqs": bucket}
        program = decoding_program(self.executable.manifest, bucket)
        assert program is not None
        self._write(values, row_slots=[-1 if text is None else text.slot for text in padded])
        self._table(values, padded)
        places = [text.places(text.done, text.done + 1) for text in padded if text is not None]
        self._run(program, values, places)
        self._choices(values, padded)
        for text in rows:
            if text is not None:
                text.done += 1

    def ragged(
        self, program: str, parts: Sequence[tuple[Text, int]], *, bucket: int | None = None, rows: int | None = None
    ) -> None:
        """The next tokens of each text, so many, in one call of `prefill` or `step`.

        A step chooses where the last token of a text is among them. An id that the slot holds is given as -1.
        """
        sizes = [size for _, size in parts]
        if bucket is None:
            bucket = next(size for size in token_buckets(self.chunk) if size >= sum(sizes))
        if rows is None:
            rows = next(size for size in row_buckets(self.slots) if size >= len(parts))
        values = {"tokens": bucket, "seqs": rows}
        ids, positions, places, chooses = ([] for _ in range(4))
        for text, size in parts:
            given = text.ids[text.done : text.done + size]
            last = text.done + size == len(text.ids)
            if text.held and last and program == "step":
                given[-1] = -1
            ids += given
            positions += range(text.done, text.done + size)
            places.append(text.places(text.done, text.done + size))
            chooses.append(len(ids) - 1 if last else -1)
        padding, missing = bucket - len(ids), rows - len(parts)
        texts: list[Text | None] = [*(text for text, _ in parts), *[None] * missing]
        starts = np.cumsum([0, *sizes, *[0] * missing])
        self._write(
            values,
            token_ids=[*ids, *[0] * padding],
            positions=[*positions, *[0] * padding],
            slot_mapping=[*np.concatenate(places), *[-1] * padding],
            seq_lens=[*(text.done + size for text, size in parts), *[0] * missing],
            cu_seqlens_q=starts,
            row_slots=[-1 if text is None else text.slot for text in texts],
            logits_rows=[*chooses, *[-1] * missing],
        )
        self._table(values, texts)
        self._run(program, values, places)
        if program == "step":
            self._choices(values, [text if at >= 0 else None for (text, _), at in zip(parts, chooses, strict=True)])
        for text, size in parts:
            text.done += size

    def _choices(self, values: dict[str, int], rows: Sequence[Text | None]) -> None:
        chosen = self.executable.read("next_token", values)
        logits = self.executable.read("logits", values)
        for row, text in enumerate(rows):
            if text is not None:
                text.choose(int(chosen[row]), logits[row].copy())

    def _table(self, values: dict[str, int], rows: Sequence[Text | None]) -> None:
        # Padding rows name page 0, which another sequence may have.
        table = [[*text.pages, *[0] * (self.pages - len(text.pages))] if text else [0] * self.pages for text in rows]
        self._write(values, block_table=table)

    def _write(self, values: dict[str, int], **arrays: Any) -> None:
        for name, array in arrays.items():
            self.executable.write(name, np.array(array), {**values, "pages": self.pages})

    def _run(self, program: str, values: dict[str, int], places: Sequence[I64]) -> None:
        given = {**values, "pages": self.pages}
        before = None if self.watched is None else self._cache(self.watched)
        if self.graph and program.startswith("decode"):
            if values["seqs"] not in self._graphs:
                self._graphs[values["seqs"]] = self.executable.graph([(program, given)]).launch
            self._graphs[values["seqs"]]()
        else:
            self.executable.run(program, given)
        if self.watched is not None:
            changed = np.flatnonzero((self._cache(self.watched) != before).any(axis=1))
            allowed = np.concatenate([*places, np.array([], np.int64)])
            assert set(changed.tolist()) <= set(allowed.tolist()), program

    def _cache(self, config: TransformerConfig) -> NDArray[np.uint16]:
        """The numbers of each place in the cache, [places, numbers]."""
        page = (config.layers, 2, config.kv_heads, PAGE, config.head_dim)
        pool = self.executable.read_state("kv").view(np.uint16).reshape(-1, *page)
        return np.moveaxis(pool, 4, 1).reshape(len(pool) * PAGE, -1).copy()


def assert_as_alone(text: Text, reference: Logits, *, within: float, label: str) -> None:
    """Each row of logits is within `within` of float32's over the text alone, relative to its length.

    Where float32 would have chosen another id, its margin is at most the errors of the two logits together.
    """
    found = text.run
    assert found.logits.argmax(axis=1).tolist() == text.chosen, label
    measured = agreement(found, reference)
    print(f"{label}: {measured}")
    assert measured.relative <= within, label
    assert measured.widest <= 2 * measured.error, label
