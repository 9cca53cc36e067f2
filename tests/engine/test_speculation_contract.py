"""What speculation requires of a manifest; everything missing is in one error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kern.contracts.text import ContractError
from kern.contracts.text_checks import check_generation, check_speculation
from kern.engine import Generator
from kern.runtime.loading import load
from kern.text import Tokenizer
from support.edited_toy import edited
from support.toy_speculation import ROWS, Sizes, settings, toy_manifest

ROWS_UNKNOWN = "carry round_tokens: i64 [seqs * rows], two rows or more"


def test_the_toy_satisfies_the_contract() -> None:
    assert check_speculation(toy_manifest(Sizes()), settings()) == ROWS
    assert check_speculation(toy_manifest(Sizes(rows=5)), settings()) == 5


@pytest.mark.parametrize(
    ("edit", "lacks"),
    [
        ({"programs/draft": None}, "program draft"),
        ({"programs/accept": None}, "program accept"),
        ({"programs/verify": None, "programs/draft_precompute": None}, "program verify; program draft_precompute"),
        ({"programs/begin": None}, "program decode does not read token_ids"),
        ({"buffers/round_tokens": None}, ROWS_UNKNOWN),
        ({"buffers/round_tokens/dtype": "i32"}, "carry round_tokens: i64 [seqs * 8]"),
        ({"buffers/round_tokens/shape": [8]}, ROWS_UNKNOWN),
        ({"buffers/round_tokens/shape": [{"mul": ["tokens", 8]}]}, ROWS_UNKNOWN),
        ({"buffers/round_tokens/shape": [{"mul": ["seqs", 1]}]}, ROWS_UNKNOWN),
        ({"buffers/predicted/class": "workspace"}, "carry predicted: i64 [seqs * 8]"),
        ({"buffers/predicted/shape": [{"mul": ["seqs", 7]}]}, "carry predicted: i64 [seqs * 8]"),
        ({"buffers/accepted/dtype": "i64"}, "carry accepted: i32 [R, R]"),
        ({"buffers/round_count": None}, "carry round_count: i64 [R]"),
        ({"buffers/slot_position/class": "output"}, "carry slot_position: i64 [R]"),
        ({"buffers/row_slots/shape": [1]}, "input row_slots: i32 [seqs]"),
        ({"programs/draft/symbols/tokens": {"min": 8, "max": 8}}, "program draft for tokens = 7"),
        ({"programs/begin_spec/symbols/tokens": {"min": 2, "max": 8}}, "program begin_spec for tokens = 1"),
        ({"programs/accept/symbols/tokens": {"min": 1, "max": 7}}, "program accept for tokens = 8"),
        ({"symbols/tokens/max": 7, "programs/verify/symbols": {}}, "program verify for tokens = 8"),
        ({"buffers/token_ring/shape": [1, 15]}, "16 entries in token_ring, for two rounds"),
        ({"buffers/accepted/shape": [1, 7]}, "8 entries in accepted"),
        ({"buffers/token_ids/dtype": "i32"}, "input token_ids: i64 [tokens]"),
    ],
)
def test_what_is_missing_from_the_contract_is_named(edit: dict[str, Any], lacks: str) -> None:
    with pytest.raises(ContractError) as caught:
        check_speculation(edited(edit), settings())

    assert lacks in caught.value.message
    assert caught.value.exit_code == 1


def test_a_ring_of_two_rounds_and_two_counts_is_enough() -> None:
    sizes = Sizes(ring=2 * ROWS, counts=2)

    assert check_speculation(toy_manifest(sizes), settings()) == ROWS


def test_without_a_draft_model_the_rest_still_runs(tiny: Path) -> None:
    tokenizer = Tokenizer.load(tiny)
    with load(tiny, capacity=32) as executable:
        check_generation(executable.manifest, tokenizer.settings)
        with pytest.raises(ContractError, match="no draft model") as caught:
            Generator(executable, tokenizer, spec=True)
        assert "--draft" in caught.value.help
