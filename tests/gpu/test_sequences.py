"""Several sequences at once on a GPU, their pages interleaved: each as if it were alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kern.contracts.text import PAGE
from kern.runtime.executable import Executable
from kern.runtime.loading import load
from support.agreement import Run, assert_agrees
from support.tiny import prompt, tiny_reference

pytestmark = pytest.mark.gpu

LENGTHS = {3: (5, 33, 100), 8: (2, 16, 17, 48, 64, 65, 3, 120)}
COUNT = 40
PAGES = 10
WITHIN = 0.03

I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """Positions `start` to `end` of one sequence of ids, whose pages are in `table`."""

    ids: Sequence[int]
    start: int
    end: int
    table: NDArray[np.int32]

    def slots(self) -> I64:
        positions = np.arange(self.start, self.end)
        return np.asarray(self.table[positions // PAGE] * PAGE + positions % PAGE, np.int64)


def call(executable: Executable, programs: Sequence[str], parts: Sequence[Part]) -> dict[str, int]:
    """Write the inputs of these parts, side by side, and run the programs over them."""
    sizes = [part.end - part.start for part in parts]
    write, values = executable.write, {"tokens": sum(sizes), "seqs": len(parts), "pages": len(parts[0].table)}
    write("token_ids", np.concatenate([np.array(part.ids[part.start : part.end], np.int64) for part in parts]), values)
    write("positions", np.concatenate([np.arange(part.start, part.end, dtype=np.int64) for part in parts]), values)
    write("slot_mapping", np.concatenate([part.slots() for part in parts]), values)
    write("block_table", np.array([part.table for part in parts], np.int32), values)
    write("seq_lens", np.array([part.end for part in parts], np.int32), values)
    write("cu_seqlens_q", np.cumsum([0, *sizes]).astype(np.int32), values)
    for program in programs:
        executable.run(program, values)
    return values


def generate(
    executable: Executable,
    prompts: Sequence[Sequence[int]],
    tables: NDArray[np.int32],
    *,
    together: bool = False,
    graph: bool = False,
) -> list[Run]:
    """COUNT greedy steps of all prompts at once, fed on the device; `together`: their prefill is one call as well."""
    executable.clear("kv")
    prefills = [Part(ids, 0, len(ids) - 1, table) for ids, table in zip(prompts, tables, strict=True)]
    for parts in [prefills] if together else [[part] for part in prefills]:
        call(executable, ["prefill"], parts)
    lasts = [Part(ids, len(ids) - 1, len(ids), table) for ids, table in zip(prompts, tables, strict=True)]
    values = call(executable, ["begin"], lasts)
    step = executable.graph([("decode", values)]).launch if graph else lambda: executable.run("decode", values)
    ids, logits = [], []
    for _ in range(COUNT):
        step()
        ids.append(executable.read("next_token", values))
        logits.append(executable.read("logits", values))
    return [
        Run(given, [int(row[seq]) for row in ids], np.array([row[seq] for row in logits]))
        for seq, given in enumerate(prompts)
    ]


def prompts_and_tables(sequences: int) -> tuple[list[list[int]], NDArray[np.int32]]:
    """A prompt of another length for each sequence, and its pages, scattered over the pool."""
    prompts = [prompt(length, seed=length) for length in LENGTHS[sequences]]
    pages = np.random.default_rng(sequences).permutation(sequences * PAGES).astype(np.int32)
    return prompts, pages.reshape(sequences, PAGES)


@pytest.mark.parametrize("sequences", LENGTHS)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_each_sequence_runs_as_if_it_were_alone(tiny_folder: Callable[..., Path], family: str, sequences: int) -> None:
    prompts, tables = prompts_and_tables(sequences)
    folder = tiny_folder(family, sequences)
    with load(folder, capacity=PAGES * PAGE, sequences=sequences, sharing=False) as executable:
        whole = generate(executable, prompts, tables)
        recorded = generate(executable, prompts, tables, graph=True)
        fewer = generate(executable, prompts[1:3], tables[1:3])
        alone = [generate(executable, [ids], table[None])[0] for ids, table in zip(prompts, tables, strict=True)]

    for seq, run in enumerate(whole):
        assert run.same(alone[seq]), f"sequence {seq}"
        assert recorded[seq].same(run), f"sequence {seq}"
    assert fewer[0].same(alone[1])
    assert fewer[1].same(alone[2])
    for run in whole:
        label = f"{family}, one of {sequences}, {len(run.prompt)} tokens"
        assert_agrees(run, tiny_reference(folder).logits, within=WITHIN, label=label)


@pytest.mark.parametrize("sequences", LENGTHS)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_prompts_of_several_sequences_in_one_call(
    tiny_folder: Callable[..., Path], family: str, sequences: int
) -> None:
    prompts, tables = prompts_and_tables(sequences)
    folder = tiny_folder(family, sequences)
    with load(folder, capacity=PAGES * PAGE, sequences=sequences, sharing=False) as executable:
        for run in generate(executable, prompts, tables, together=True):
            label = f"{family}, prefilled with {sequences - 1} others, {len(run.prompt)} tokens"
            assert_agrees(run, tiny_reference(folder).logits, within=WITHIN, label=label)
