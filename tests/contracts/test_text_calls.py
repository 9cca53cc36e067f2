"""Which buffers the programs of the text contract must read and write; each violation is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kern.contracts.text import ContractError
from kern.contracts.text_checks import check_generation, check_scoring, check_speculation
from kern.manifest.reading import read
from support.edited_toy import edited
from support.toy_speculation import VOCABULARY, settings

PREFILL, DECODE = "programs/prefill/dispatches/0/args", "programs/decode/dispatches/0/args"
ADVANCE = "programs/decode/dispatches/1/args"
MORE_IDS = {"buffers/more": {"dtype": "i64", "shape": ["tokens"], "class": "input"}}
OTHER_RING = {"buffers/other": {"dtype": "i64", "shape": [1, 64], "class": "carry"}}
SHORT = {"buffers/short": {"dtype": "i64", "shape": [50], "class": "weight"}}


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"buffers/token_ring/shape": [1, 1]}, "2 entries in token_ring, one for each token that is read at once"),
        (MORE_IDS | {f"{PREFILL}/5": {"buf": "more"}},
         "program prefill reads input more, which a text caller does not write for it"),
        ({f"{DECODE}/5": {"buf": "positions"}},
         "program decode reads input positions, which a text caller does not write between its steps"),
        ({f"{DECODE}/4": {"buf": "token_ids"}}, "program decode reads input token_ids, which a text caller does not"),
        ({f"{PREFILL}/4": {"buf": "positions"}}, "program prefill does not read token_ids"),
        ({"programs/begin/dispatches/0/args/5": {"buf": "positions"}}, "program begin does not read token_ids"),
        (OTHER_RING | {f"{ADVANCE}/4": {"buf": "other"}}, "program decode does not write token_ring"),
        ({f"{DECODE}/0": {"buf": "step_slot"}}, "program decode does not write next_token"),
        ({"symbols/depth": {"min": 1, "max": 4}, f"{PREFILL}/7": {"sym": "depth"}},
         "program prefill needs symbol depth, to which a text caller gives no value"),
        ({"symbols/depth": {"min": 1, "max": 4}, "kernels/begin/impl/steps/0/grid": ["depth", 1, 1]},
         "program begin needs symbol depth"),
        ({"symbols/depth": {"min": 1, "max": 4}, f"{PREFILL}/7": {"expr": {"add": ["depth", 1]}}},
         "program prefill needs symbol depth"),
        ({"symbols/depth": {"min": 1, "max": 4}, "buffers/spare/shape": ["depth"]},
         "program prefill needs symbol depth"),
        ({"symbols/depth": {"min": 1, "max": 4},
          "kernels/begin/impl/scratch": {"part": {"dtype": "i64", "shape": ["depth"]}}},
         "program begin needs symbol depth"),
        ({f"{PREFILL}/3": {"buf": "positions"}, f"{DECODE}/3": {"buf": "step_slot"}},
         "no kernel takes token ids together with the embedding, weight table"),
        ({"programs/prefill/symbols": {"tokens": {"min": 2}}}, "program prefill for tokens = 1"),
        ({"programs/decode/symbols/tokens": {"min": 2, "max": 4}}, "program decode for tokens = 1"),
        ({"symbols/seqs": {"min": 2, "max": 2}}, "program prefill for seqs = 1"),
        ({"programs/decode/symbols/pages": {"max": 3}}, "program decode for pages = 32"),
        ({"programs/begin/symbols/pages": {"min": 2}}, "program begin for pages = 1"),
        ({f"{PREFILL}/3": {"buf": "table", "offset": 8}}, "program prefill looks 97 ids up in table, which has fewer"),
        (SHORT | {f"{PREFILL}/3": {"buf": "short"}}, "program prefill looks 97 ids up in short, which has fewer rows"),
        (SHORT | {f"{DECODE}/3": {"buf": "short"}}, "program decode looks 97 ids up in short, which has fewer rows"),
    ],
)  # fmt: skip
def test_a_program_that_uses_what_a_text_caller_does_not_write_is_refused(edit: dict[str, Any], says: str) -> None:
    with pytest.raises(ContractError) as caught:
        check_generation(edited(edit), settings())

    assert says in caught.value.message
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"programs/verify/dispatches/0/args/0": {"buf": "round_slots"}}, "program verify does not write predicted"),
        ({"programs/accept/dispatches/0/args/1": {"buf": "step_slot"}}, "program accept does not write slot_position"),
        ({"programs/accept/dispatches/0/args/8": {"buf": "seq_lens"}},
         "program accept reads input seq_lens, which a text caller does not write between its steps"),
        ({"programs/draft/dispatches/0/args/0": {"buf": "round_slots"}}, "program draft does not write round_tokens"),
        ({"programs/begin_spec/dispatches/0/args/5": {"buf": "positions"}},
         "program begin_spec does not read token_ids"),
        ({"programs/verify/dispatches/0/args/5": {"buf": "positions"}},
         "program verify reads input positions, which a text caller does not write between its steps"),
        (SHORT | {"programs/draft/dispatches/0/args/4": {"buf": "short"},
                  "programs/draft/dispatches/0/args/5": {"buf": "short"}},
         "program draft looks 97 ids up in short, short, which has fewer rows"),
    ],
)  # fmt: skip
def test_programs_of_rounds_are_checked_too(edit: dict[str, Any], says: str) -> None:
    check_generation(edited(edit), settings())
    with pytest.raises(ContractError) as caught:
        check_speculation(edited(edit), settings())

    assert says in caught.value.message


@pytest.mark.parametrize(
    ("taken", "given", "says"),
    [
        ("targets", "logits_rows", "program nll does not read targets"),
        ("logits_rows", "targets", "program nll does not read logits_rows"),
        ("token_ids", "positions", "program score does not read token_ids"),
    ],
)
def test_a_score_program_that_ignores_the_ids_is_refused(tiny: Path, taken: str, given: str, says: str) -> None:
    document = json.loads((tiny / "manifest.json").read_text())
    for dispatch in (each for name in ("score", "nll") for each in document["programs"][name]["dispatches"]):
        for arg in dispatch["args"]:
            if arg.get("buf") == taken:
                arg["buf"] = given
    manifest = read(json.dumps(document).encode()).manifest
    assert manifest is not None

    with pytest.raises(ContractError, match=says):
        check_scoring(manifest, settings().model_copy(update={"embedding": "embedding"}))


@pytest.mark.parametrize("vocabulary", [VOCABULARY, 520])
def test_the_embedding_is_the_weight_in_which_ids_are_looked_up(vocabulary: int) -> None:
    other = settings().model_copy(update={"embedding": "spoilt", "vocabulary": vocabulary})
    with pytest.raises(ContractError) as caught:
        check_generation(edited({}), other)

    assert "no kernel takes token ids together with the embedding, weight spoilt, but with table" in (
        caught.value.message
    )
