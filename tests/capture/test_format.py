"""docs/capture.md names every record and every key that is written, and shows lines that are such records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.recorded_program import SUPPORT, Recorder

PAGE = (Path(__file__).parents[2] / "docs" / "capture.md").read_text()
EVERYTHING = SUPPORT / "fake_cuda" / "everything.py"


def shown() -> list[dict[str, Any]]:
    """The records that the page shows; one that it breaks into lines is one."""
    blocks = re.findall(r"```json\n(.*?)```", PAGE, re.S)
    lines = [line for block in blocks for line in re.sub(r"\n(?!\{)", "", block).splitlines()]
    return [json.loads(line) for line in lines]


def keys(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


def test_the_page_names_every_record_and_every_key(record: Recorder) -> None:
    done = record(f"exec(Path({str(EVERYTHING)!r}).read_text())")
    kinds = {record["record"] for record in done.records}
    assert kinds == {record["record"] for record in shown()}
    named = set(re.findall(r'[`"](\w+)[`"]', PAGE))
    assert {key for record in done.records for key in keys(record) if not key.isdecimal()} <= named


def test_a_shown_record_has_the_keys_of_a_written_one(record: Recorder) -> None:
    done = record(f"exec(Path({str(EVERYTHING)!r}).read_text())")
    for example in shown():
        written = [set(r) for r in done.of(example["record"])]
        assert set(example) <= set().union(*written), example
