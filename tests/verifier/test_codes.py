"""Every code: its number, its explanation, and an example that yields it and nothing else."""

from __future__ import annotations

import re

import pytest

from kern.manifest.diagnostics import Code, Diagnostic, Example
from kern.manifest.reading import read
from kern.verifier import check
from kern.verifier.example import BASE
from kern.verifier.verify import CODES
from support.edited_example import edited
from support.valid_manifests import texts


def diagnostics(text: str) -> list[Diagnostic]:
    reading = read(text.encode())
    assert reading.manifest is not None, reading.diagnostics
    return list(check(reading.manifest))


@pytest.mark.parametrize("code", CODES.values(), ids=lambda code: code.id)
def test_failing_example_yields_exactly_its_code(code: Code) -> None:
    assert isinstance(code.example, Example)
    text = edited(code.example.failing)
    found = diagnostics(text)
    assert {d.code for d in found} == {code.id}, [(d.code, d.pointer, d.message) for d in found]
    assert all(d.message and d.help for d in found)


@pytest.mark.parametrize("code", CODES.values(), ids=lambda code: code.id)
def test_fixed_example_is_valid(code: Code) -> None:
    assert isinstance(code.example, Example)
    assert diagnostics(edited(code.example.fixed)) == []
    assert code.example.fixed != code.example.failing


@pytest.mark.parametrize("code", CODES.values(), ids=lambda code: code.id)
def test_a_place_that_a_diagnostic_names_is_in_the_text(code: Code) -> None:
    assert isinstance(code.example, Example)
    text = edited(code.example.failing)
    reading = read(text.encode())
    for diagnostic in diagnostics(text):
        assert diagnostic.path in reading.source.spans


@pytest.mark.parametrize("code", CODES.values(), ids=lambda code: code.id)
def test_a_code_explains_itself(code: Code) -> None:
    assert re.fullmatch(r"K0[2-9]\d\d", code.id)
    assert code.title == code.title.strip()
    assert code.title[-1] != "."
    assert 2 <= len(re.findall(r"[.](?=\s+[A-Z`\"]|$)", code.explanation)) <= 5
    assert code.explanation.endswith(".")


def test_codes_are_listed_once_and_by_rule() -> None:
    assert list(CODES) == sorted(CODES)
    assert all(name == code.id for name, code in CODES.items())
    assert {code.id[1:3] for code in CODES.values()} == {f"0{rule}" for rule in range(2, 10)}
    assert len({code.title for code in CODES.values()}) == len(CODES)


@pytest.mark.parametrize("name", texts())
def test_valid_manifests_hold(name: str) -> None:
    assert diagnostics(texts()[name]) == []


def test_edits_splice_json() -> None:
    assert edited({}) == BASE
    assert edited({"": "{}"}) == "{}"
    assert '"max": 7}' in edited({"/symbols/rows/max": "7"})
    assert '"extra": {"max": 2}' in edited({"/symbols/extra": '{"max": 2}'})
    assert '"idle": 1}' in edited({"/programs": "{}", "/programs/idle": "1"})
    with pytest.raises(KeyError):
        edited({"/nowhere/at/all": "1"})
