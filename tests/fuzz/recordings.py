"""Fuzz target: records of launches. Mining one ends with a report and with valid JSON, or with a refusal."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NoReturn

from fuzz.byte_changes import MOST_BYTES, change_bytes
from fuzz.json_changes import change_json, json_text
from fuzz.target import ACCEPTED, Contradiction, Target, require
from kern.cli.mine import mine_dump
from kern.manifest.expressions import Sym
from support.recordings_program import Arg, Behaviour, Op, Program, simulate
from support.recordings_programs import NORM

TOKENS = Sym(sym="tokens")
FRAGMENTS: tuple[Any, ...] = (
    *("launch", "copy", "fill", "kernel", "graph", "graph_launch", "module", "lost", "end", "process", "00" * 8, "0"),
    *("device", "host", "pinned", "0" * 64, [8, 1, 1], [2**32 - 1] * 3, [0, 0, 0], {"cluster": [2, 1, 1]}, 2**64 - 1),
    *(
        [[0, 8], [8, 4]],
        [[0, 2**32 - 1]],
        {"param": 0, "at": 0, "memory": "device", "range": [2**40, 2**20]},
        "00000080",
    ),
)


@cache
def seeds() -> tuple[bytes, ...]:
    """Two programs: one with a struct and a position, one whose passes of one token are launches of a graph."""
    mix = Op("_Z3mixI4halfLi8EEvPT_", (Arg("write"), Arg("read"), Arg("state")), ((TOKENS + 1).over(4), 8, 1))
    packed = Op("packed", (Arg("write"), Arg("read"), Arg("weight")), (132, 1, 1), struct=True)
    where = Op("where", (Arg("read"), Arg("position")))
    first = Program((where,), (NORM, mix), 3, (NORM, packed))
    graphs = Program((), (NORM, mix), 2, (where,))
    return (
        _record(first, [16, 1, 34, 1, 5, 1], Behaviour(initialise=False, disturb=0.3, late=0.3)),
        _record(graphs, [16, 1, 34, 1, 5, 1, 1], Behaviour(graph=True, noise=False)),
    )


def _record(program: Program, sizes: list[int], behaviour: Behaviour) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return (simulate(Path(folder), program, sizes, behaviour).folder / "launches.jsonl").read_bytes()


def change(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Change the JSON of a line, or of several alike; move, repeat and drop lines; or change bytes anywhere."""
    lines = data.splitlines(keepends=True)
    kind = random.randrange(20)
    if not lines or kind < 2:
        return change_bytes(random, data, others)
    at = random.randrange(len(lines))
    if kind < 10:
        return b"".join([*lines[:at], _changed(random, lines[at], lines), *lines[at + 1 :]])
    if kind < 12:
        end = at + random.choice((1, 1, 3, len(lines)))
        return b"".join(lines[:at] + lines[end:])
    if kind < 15:
        end = at + random.choice((1, 1, 5, 20))
        times = random.choice((2, 2, 5, 300))
        return b"".join(lines[:end] + lines[at:end] * times + lines[end:])[:MOST_BYTES]
    if kind < 17:
        source = random.choice(others).splitlines(keepends=True) or lines
        start = random.randrange(len(source))
        return b"".join(lines[:at] + source[start : start + random.choice((1, 5, 50))] + lines[at:])[:MOST_BYTES]
    to = random.randrange(len(lines))
    lines.insert(to, lines.pop(at))
    return b"".join(lines)


def _changed(random: Random, line: bytes, others: Sequence[bytes]) -> bytes:
    try:
        value, other = json.loads(line), json.loads(random.choice(others))
    except (ValueError, RecursionError):
        return change_bytes(random, line, others)
    text = json_text(random, change_json(random, value, [other], FRAGMENTS))
    return text.replace(b"\n", b" ") + b"\n" if random.random() < 0.95 else text


def run(data: bytes, folder: Path) -> str:
    """Mine a record: as JSON, as the report, and as the survey of parameter layouts."""
    process = folder / "pid-1"
    process.mkdir()
    (process / "launches.jsonl").write_bytes(data)
    found = json.loads(_printed(folder, abi=False, as_json=True), parse_constant=_no_number)
    require(len(found["processes"]) == 1, f"other processes than one: {len(found['processes'])}")
    for each in found["processes"][0]["passes"]:
        first, last = each["lines"]
        require(1 <= first <= last <= data.count(b"\n"), f"a pass outside the record: {each}")
    for abi in (False, True):
        require(bool(_printed(folder, abi=abi, as_json=False)), "nothing printed")
    return ACCEPTED


def _printed(folder: Path, *, abi: bool, as_json: bool) -> str:
    text = io.StringIO()
    with redirect_stdout(text):
        mine_dump(folder, abi, as_json)
    return text.getvalue()


def _no_number(text: str) -> NoReturn:
    raise Contradiction(f"not a JSON number: {text}")


TARGET = Target("recordings", seeds, change, run, short=40)
