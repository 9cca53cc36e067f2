"""What the text contract requires for several sequences at once, and the sizes that calls are padded to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kern.contracts.text import ContractError, call_limits, decoding_program, row_buckets, token_buckets
from kern.contracts.text_checks import check_batches, check_generation
from kern.manifest.reading import read
from kern.manifest.types import Manifest
from kern.text import Tokenizer
from support.edited_toy import edited
from support.toy_speculation import settings

STEP = "programs/step"


def changed(folder: Path, edit: dict[str, Any]) -> Manifest:
    """The folder's manifest with values at other paths; None deletes."""
    document = json.loads((folder / "manifest.json").read_text())
    for path, value in edit.items():
        *parents, last = path.split("/")
        at = document
        for key in parents:
            at = at[int(key) if isinstance(at, list) else key]
        if value is None:
            del at[last]
        else:
            at[last] = value
    manifest = read(json.dumps(document).encode()).manifest
    assert manifest is not None
    return manifest


def rewired(folder: Path, program: str, old: str, new: str) -> Manifest:
    """The folder's manifest, one buffer of a program's dispatches replaced by another."""
    document = json.loads((folder / "manifest.json").read_text())
    for dispatch in document["programs"][program]["dispatches"]:
        for arg in dispatch["args"]:
            if arg.get("buf") == old:
                arg["buf"] = new
    manifest = read(json.dumps(document).encode()).manifest
    assert manifest is not None
    return manifest


def test_a_built_model_has_as_many_slots_as_it_takes_sequences(tiny: Path) -> None:
    manifest = changed(tiny, {})

    assert check_batches(manifest, Tokenizer.load(tiny).settings) == 8
    assert call_limits(manifest)["sequences"] == 8


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({STEP: None}, "it lacks program step"),
        ({"programs/begin/symbols/seqs/max": 4}, "program begin for seqs = 8"),
        ({"programs/begin/symbols/tokens/max": 4}, "program begin for tokens = 8"),
        ({"programs/prefill/symbols/seqs/max": 7}, "program prefill for seqs = 8"),
        ({f"{STEP}/symbols/seqs/max": 7}, "program step for seqs = 8"),
        ({"programs/decode/symbols/tokens/max": 7}, "program decode for tokens = seqs = 8"),
        ({"programs/decode/symbols/seqs/max": 3}, "program decode for tokens = seqs = 4; program decode for"),
        ({"buffers/slot_position/shape": [7]}, "as many rows in slot_position as in slot_token"),
        ({"buffers/token_ring/shape": [7, 64]}, "as many rows in token_ring as in slot_token"),
        ({"buffers/logits_rows/dtype": "i32"}, "input logits_rows: i64 [seqs]"),
    ],
)
def test_what_is_missing_for_several_sequences_is_named(tiny: Path, edit: dict[str, Any], says: str) -> None:
    with pytest.raises(ContractError) as caught:
        check_batches(changed(tiny, edit), Tokenizer.load(tiny).settings)

    assert says in caught.value.message


@pytest.mark.parametrize(
    ("program", "old", "new", "says"),
    [
        ("step", "logits_rows", "targets", "program step reads input targets, which a text caller does not write"),
        ("step", "row_slots", "seq_lens", "program step does not read row_slots"),
        ("step", "slot_position", "slot_token", "program step does not write slot_position"),
        ("decode", "row_slots", "step_length", "program decode does not read row_slots"),
        ("begin", "row_slots", "seq_lens", "program begin does not read row_slots"),
    ],
)
def test_programs_that_ignore_the_slots_are_refused(tiny: Path, program: str, old: str, new: str, says: str) -> None:
    with pytest.raises(ContractError) as caught:
        check_batches(rewired(tiny, program, old, new), Tokenizer.load(tiny).settings)

    assert says in caught.value.message


def test_a_model_of_one_sequence_at_a_time_generates_and_says_what_several_would_take() -> None:
    check_generation(edited({}), settings())
    with pytest.raises(ContractError, match="generate several texts at once; it lacks program step"):
        check_batches(edited({}), settings())


def test_a_step_runs_the_first_program_that_takes_its_rows(tiny: Path) -> None:
    few = {"tokens": {"min": 1, "max": 4}, "seqs": {"min": 1, "max": 4}}
    decode = json.loads((tiny / "manifest.json").read_text())["programs"]["decode"]
    both = changed(tiny, {"programs/decode/symbols": few, "programs/decode_wide": decode})

    assert [decoding_program(both, rows) for rows in (1, 4, 8)] == ["decode", "decode", "decode_wide"]
    assert decoding_program(both, 9) is None
    assert check_batches(both, Tokenizer.load(tiny).settings) == 8


def test_the_sizes_that_calls_are_padded_to() -> None:
    assert row_buckets(1) == (1,)
    assert row_buckets(5) == (1, 2, 4, 5)
    assert row_buckets(64) == (1, 2, 4, 8, 16, 24, 32, 48, 64)
    assert row_buckets(1000)[-3:] == (192, 256, 1000)
    assert token_buckets(1) == (1,)
    assert token_buckets(16) == (16,)
    assert token_buckets(100) == (16, 32, 64, 100)
    assert token_buckets(512) == (16, 32, 64, 128, 256, 512)


@given(st.integers(1, 70_000))
def test_every_size_has_a_bucket_within_the_limit(limit: int) -> None:
    for buckets in (row_buckets(limit), token_buckets(limit)):
        assert list(buckets) == sorted(set(buckets))
        assert (buckets[0] >= 1, buckets[-1]) == (True, limit)
    assert len(token_buckets(limit)) < 15
