"""Where each rule begins and ends: the last value that holds and the first that does not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kern.manifest.reading import read
from kern.verifier import check
from support.edited_example import edited

SCALE = "/kernels/scale/impl/steps/0"
FINAL = "/kernels/summarize/impl/steps/1"
PRODUCT = "/programs/fill/dispatches/0"
FILL = "/programs/fill/dispatches"
STEP = "/programs/step/dispatches"


def codes(edits: Mapping[str, str]) -> list[str]:
    manifest = read(edited(edits).encode()).manifest
    assert manifest is not None
    return [d.code for d in check(manifest)]


HOLD: Mapping[str, Mapping[str, str]] = {
    "a symbol that can be 0 as a scalar": {f"{STEP}/2/args/3": '{"sym": "start"}'},
    "a program that fixes a symbol at one value": {"/programs/fill/symbols": '{"start": {"min": 7, "max": 7}}'},
    "a program that fixes a symbol at 0": {"/programs/fill/symbols": '{"start": {"max": 0}}'},
    "bounds of a program that say nothing": {"/programs/fill/symbols": '{"rows": {}}'},
    "a symbol from 0 that every user narrows to 1 may make a size": {
        "/symbols/rows": '{"min": 0, "max": 64}',
        "/programs/fill/symbols": '{"rows": {"min": 1}}',
        "/programs/step/symbols": '{"rows": {"min": 1, "max": 1}}',
    },
    "a large grid where no program that dispatches the kernel reaches it": {
        "/kernels/summarize/impl/steps/0/grid/1": '{"mul": [{"sym": "rows"}, 65535]}',
    },
    "a buffer that only one program uses is sized by that program": {
        "/buffers/peak/shape": '[{"mul": ["rows", 2305843009213693951]}]',
    },
    "the largest block": {f"{SCALE}/block": "[16, 1, 64]"},
    "the largest grid": {f"{SCALE}/grid": "[2147483647, 65535, 65535]"},
    "a cluster of 8 that divides": {f"{FINAL}/grid": "[8, 2, 1]", f"{FINAL}/cluster": "[4, 2, 1]"},
    "a cluster that divides a multiple of it": {
        f"{FINAL}/grid": '[{"mul": [{"sym": "rows"}, 6]}, 1, 1]', f"{FINAL}/cluster": "[3, 1, 1]",
    },
    "all launch attributes": {f"{FINAL}/pdl": "true", f"{FINAL}/cooperative": "true", f"{FINAL}/cluster": "[2, 1, 1]"},
    "the greatest f32, in the short spelling that rounds to it": {f"{FILL}/1/args/2": '{"f32": 3.4028235e38}'},
    "the greatest literals": {f"{SCALE}/args/3": '{"i32": -2147483648}', f"{STEP}/2/args/3": '{"u32": 4294967295}'},
    "an i64 as large as a symbol gets": {
        "/kernels/record/params/2": '"i64"',
        "/kernels/record/impl/steps/0/params/2": '"i64"',
        "/symbols/start/max": "9223372036854775807",
    },
    "a view at the last aligned offset": {f"{FILL}/1/args/1": '{"buf": "mixed", "offset": 32752}'},
    "the last offset in a granule": {f"{FILL}/2/args/1": '{"state": "history", "offset": 8176}'},
    "more alignment than 256 from a state that has it": {
        "/kernels/record/params/1": '"inout ptr align 1024"',
        "/states/history": '{"bytes_per_token": 512, "granule": 16, "align": 1024}',
        f"{STEP}/2/args/1": '{"state": "history", "offset": 1024}',
    },
    "a write through a view marks the whole buffer written": {
        f"{FILL}/0/args/0": '{"buf": "mixed", "offset": 16384}', f"{FILL}/0/args/3": '{"i32": 32}',
    },
    "a carry read before any write in its program": {
        "/buffers/scaled/class": '"carry"', f"{STEP}/0/args/0/buf": '"mixed"',
        f"{STEP}/1/args/1": '{"buf": "scaled", "offset": 16}',
    },
    "a product on a row of a longer array": {
        f"{STEP}/0/args/0": '{"buf": "total"}', f"{STEP}/0/args/3": '{"i32": 1}', f"{STEP}/1/args/1/buf": '"total"',
    },
    "an operator with extents fixed in the step": {
        "/kernels/product/params": '["out buffer<f32>", "in buffer<bf16>", "in buffer<bf16>", "i32"]',
        "/kernels/product/impl/steps/0/args/4": '{"i32": 128}',
        "/kernels/product/impl/steps/0/args/5": '{"i32": 64}',
        f"{FILL}/0/args": '[{"buf": "mixed"}, {"buf": "signal"}, {"buf": "filter"}, {"sym": "rows"}]',
        f"{STEP}/0/args": '[{"buf": "mixed"}, {"buf": "signal"}, {"buf": "filter"}, {"sym": "rows"}]',
    },
    "an operator with a stated alignment": {"/kernels/product/impl/steps/0/params/0": '"out buffer<f32> align 16"'},
    "upper-case digits of a hash": {f"{FINAL}/sha256": f'"{"AB" * 32}"'},
    "a program that leaves only state behind": {"/programs/fill/dispatches/1/args/2": '{"f32": 2.0}'},
    "a scratch kept is read before any write": {
        "/kernels/summarize/impl/steps/0/params": '["out buffer<f32>", "in buffer<f32>", "i32", "in buffer<i32>"]',
        "/kernels/summarize/impl/steps/0/args": '[{"scratch": "part"}, {"arg": 2}, {"arg": 3}, {"scratch": "count"}]',
        f"{FINAL}/params/3": '"out buffer<i32>"',
    },
    "a kernel that works in place, its interface's parameter forwarded twice": {
        "/kernels/scale/params": '["inout buffer<f32>", "f32"]',
        f"{SCALE}/args": '[{"arg": 0}, {"arg": 0}, {"arg": 1}, {"i32": 128}]',
        f"{FILL}/1/args": '[{"buf": "mixed"}, {"f32": 0.5}]', f"{FILL}/2/args/0/buf": '"mixed"',
        f"{STEP}/1/args": '[{"buf": "mixed"}, {"f32": 0.5}]', f"{STEP}/2/args/0/buf": '"mixed"',
        f"{STEP}/3/args/2/buf": '"scaled"', "/buffers/scaled/class": '"input"',
    },
    "views of one buffer, one of them written": {
        f"{FILL}/1/args/0": '{"buf": "mixed", "offset": 16384}', f"{FILL}/2/args/0/buf": '"mixed"',
    },
    "one address read twice": {
        "/kernels/scale/params": '["out buffer<f32>", "in buffer<f32>", "in buffer<f32>", "f32"]',
        f"{SCALE}/params": '["out buffer<f32>", "in buffer<f32>", "in buffer<f32>", "f32"]',
        f"{SCALE}/args": '[{"arg": 0}, {"arg": 1}, {"arg": 2}, {"arg": 3}]',
        f"{FILL}/1/args": '[{"buf": "scaled"}, {"buf": "mixed"}, {"buf": "mixed"}, {"f32": 0.5}]',
        f"{STEP}/1/args": '[{"buf": "scaled"}, {"buf": "mixed"}, {"buf": "mixed"}, {"f32": 0.5}]',
    },
    "a second result that nothing reads": {
        f"{FILL}/1/args": '[{"buf": "scaled"}, {"buf": "spare"}, {"buf": "mixed"}, {"f32": 0.5}]',
        f"{STEP}/1/args": '[{"buf": "scaled"}, {"buf": "spare"}, {"buf": "mixed"}, {"f32": 0.5}]',
        "/kernels/scale/params": '["out buffer<f32>", "out buffer<f32>", "in buffer<f32>", "f32"]',
        f"{SCALE}/params": '["out buffer<f32>", "out buffer<f32>", "in buffer<f32>", "f32"]',
        f"{SCALE}/args": '[{"arg": 0}, {"arg": 1}, {"arg": 2}, {"arg": 3}]',
        "/buffers/spare": '{"dtype": "f32", "shape": ["rows", 128], "class": "workspace"}',
    },
    "a result next to a state that nothing reads": {
        "/kernels/record/params/0": '"out buffer<f32>"', "/kernels/record/impl/steps/0/params/0": '"out buffer<f32>"',
        "/buffers/spare": '{"dtype": "f32", "shape": ["rows", 128], "class": "workspace"}',
        f"{FILL}/2/args/0/buf": '"spare"', f"{STEP}/2/args/0/buf": '"spare"',
    },
    "a state that one program writes and another reads": {
        "/kernels/recall": (
            '{"params": ["out buffer<f32>", "in ptr"], "impl": {"steps": [{"symbol": "recall_f32", '
            '"params": ["out buffer<f32>", "in ptr"], "block": [1, 1, 1], "grid": [1, 1, 1], '
            '"args": [{"arg": 0}, {"arg": 1}]}]}}'),
        "/programs/recall": (
            '{"dispatches": [{"kernel": "recall", "args": [{"buf": "total"}, {"state": "history"}]}]}'),
    },
}  # fmt: skip

BREAK: Mapping[str, tuple[Mapping[str, str], str]] = {
    "a program's bounds crossed": ({"/programs/fill/symbols": '{"rows": {"min": 9, "max": 3}}'}, "K0202"),
    "a program's lower bound above the global upper one": (
        {"/programs/fill/symbols": '{"rows": {"min": 65}}'}, "K0206"),
    "an offset below 0": ({f"{FILL}/1/args/1": '{"buf": "mixed", "offset": -16}'}, "K0714"),
    "a state's offset below 0": ({f"{FILL}/2/args/1": '{"state": "history", "offset": -512}'}, "K0715"),
    "an offset past a state's bytes": (
        {"/states/history": '{"bytes": 512}'}, "K0715"),
    "a scratch offset below 0": ({f"{FINAL}/args/3": '{"scratch": "count", "offset": -4}'}, "K0610"),
    "an interface argument below 0": ({f"{SCALE}/args/2": '{"arg": -1}'}, "K0601"),
    "an alignment that only a launch behind the interface asks for": (
        {f"{FILL}/1/args/0": '{"buf": "scaled", "offset": 8}'}, "K0713"),
    "more alignment than buffers have": ({f"{SCALE}/params/0": '"out buffer<f32> align 512"'}, "K0713"),
    "more alignment than a scratch has": ({f"{FINAL}/params/2": '"in buffer<f32> align 512"'}, "K0609"),
    "an offset that the dtype does not divide": ({f"{STEP}/3/args/2": '{"buf": "scaled", "offset": 2}'}, "K0713"),
    "a buffer for a ptr": ({f"{FILL}/2/args/1": '{"buf": "mixed"}'}, "K0706"),
    "a state for a scalar": ({f"{FILL}/2/args/2": '{"state": "history"}'}, "K0706"),
    "a scratch for a ptr": ({f"{FINAL}/params/3": '"inout ptr"'}, "K0608"),
    "a scratch for a scalar": ({f"{SCALE}/args/3": '{"scratch": "x"}'}, "K0514"),
    "a constant expression for an f32": ({f"{FILL}/1/args/2": '{"expr": 4}'}, "K0710"),
    "a symbol one beyond its scalar": ({"/symbols/start/max": "2147483648"}, "K0709"),
    "a negative u8": ({f"{SCALE}/params/3": '"u8"', f"{SCALE}/args/3": '{"u8": -1}'}, "K0614"),
    "a literal f32 that rounds to infinity": ({f"{FILL}/1/args/2": '{"f32": 3.4028236e38}'}, "K0712"),
    "an addition that is 0 at the lower bound": ({f"{SCALE}/grid/1": '{"add": [{"sym": "rows"}, -1]}'}, "K0507"),
    "a cluster that divides at both bounds and not between": (
        {f"{SCALE}/cluster": "[2, 1, 1]", "/symbols/rows": '{"min": 2, "max": 64}', "/programs/step/symbols": "{}"},
        "K0523"),
    "a cluster with a dimension of 0": ({f"{FINAL}/cluster": "[0, 1, 1]"}, "K0522"),
    "a cluster on an operator": ({"/kernels/product/impl/steps/0/cluster": "[1, 1, 1]"}, "K0521"),
    "a cooperative operator": ({"/kernels/product/impl/steps/0/cooperative": "true"}, "K0521"),
    "shared memory of an operator": ({"/kernels/product/impl/steps/0/shared_mem": "64"}, "K0519"),
    "a block of an operator": ({"/kernels/product/impl/steps/0/block": "[32, 1, 1]"}, "K0520"),
    "an operator without a name": ({"/kernels/product/impl/steps/0/symbol": '"extern:"'}, "K0517"),
    "parameters of an operator too few": (
        {"/kernels/product/impl/steps/0/params": '["out buffer<f32>"]'}, "K0518"),
    "no file name": ({f"{FINAL}/cubin": '""'}, "K0512"),
    "a Windows path": ({f"{FINAL}/cubin": '"a\\\\b"'}, "K0512"),
    "the folder itself": ({f"{FINAL}/cubin": '"."'}, "K0512"),
    "65 digits of a hash": ({f"{FINAL}/sha256": f'"{"0" * 65}"'}, "K0510"),
    "a line after the hash": ({f"{FINAL}/sha256": f'"{"0" * 64}\\n"'}, "K0510"),
    "granule and bytes, even the granule that is the default": (
        {"/states/history": '{"bytes": 8192, "granule": 1}'}, "K0304"),
    "a state of negative size": ({"/states/history": '{"bytes": -1}'}, "K0301"),
    "an alignment of 0": ({"/states/history/align": "0"}, "K0302"),
    "an offset that leaves an operator too little": (
        {f"{PRODUCT}/args/0": '{"buf": "mixed", "offset": 512}'}, "K0716"),
    "an offset that leaves an operator's last operand too little": (
        {f"{PRODUCT}/args/2": '{"buf": "filter", "offset": 256}'}, "K0716"),
    "an operator's extent fixed in the step too long": (
        {"/kernels/product/impl/steps/0/args/5": '{"i32": 65}', "/kernels/product/params": (
            '["out buffer<f32>", "in buffer<bf16>", "in buffer<bf16>", "i32", "i32"]'),
         f"{FILL}/0/args": '[{"buf": "mixed"}, {"buf": "signal"}, {"buf": "filter"}, {"sym": "rows"}, {"i32": 128}]',
         f"{STEP}/0/args": '[{"buf": "mixed"}, {"buf": "signal"}, {"buf": "filter"}, {"sym": "rows"}, {"i32": 128}]'},
        "K0716"),
    "an operator reaches by the bounds of the program that dispatches it": (
        {f"{STEP}/0/args/3": '{"i32": 2}'}, "K0716"),
    "a buffer read and written by the dispatch that writes it first": (
        {f"{FILL}/1/args/1": '{"buf": "scaled", "offset": 16}'}, "K0801"),
    "an inout on what nothing wrote": ({
        "/kernels/scale/params/0": '"inout buffer<f32>"'}, "K0801"),
    "an output read by a program that did not write it": (
        {f"{FILL}/1/args/1/buf": '"peak"'}, "K0801"),
    "one address for two results": (
        {"/kernels/summarize/params/1": '"out buffer<f32>"', f"{FINAL}/params/1": '"out buffer<f32>"',
         f"{STEP}/3/args/1/buf": '"peak"', "/buffers/total": '{"dtype": "f32", "shape": [128], "class": "input"}',
         f"{STEP}/1/args/1/buf": '"total"'}, "K0720"),
    "one address of a state, read and written": (
        {"/kernels/record/params/0": '"in ptr"', "/kernels/record/impl/steps/0/params/0": '"in ptr"',
         f"{FILL}/2/args/0": '{"state": "history"}',
         f"{STEP}/2/args/0": '{"state": "history", "offset": 512}'}, "K0720"),
    "a state that is only read, though its kernel writes a buffer": (
        {"/kernels/record/params": '["inout buffer<f32>", "in ptr align 16", "i32", "u32"]',
         "/kernels/record/impl/steps/0/params": '["inout buffer<f32>", "in ptr", "i32", "u32"]'}, "K0806"),
    "workspaces that only feed each other's writers": (
        {"/programs/fill/dispatches/2/args/0/buf": '"mixed"', "/programs/step/dispatches/2/args/0/buf": '"mixed"',
         "/programs/step/dispatches/3/args/2/buf": '"mixed"'}, "K0807"),
    "a scratch written and read first in one launch": ({f"{FINAL}/params/2": '"in buffer<f32>"',
        "/kernels/summarize/impl/steps/0/params/0": '"inout buffer<f32>"'}, "K0611"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOLD)
def test_holds(case: str) -> None:
    assert codes(HOLD[case]) == []


@pytest.mark.parametrize("case", BREAK)
def test_is_refused(case: str) -> None:
    edits, code = BREAK[case]
    assert set(codes(edits)) == {code}


OFFSETS: Mapping[str, tuple[str, str]] = {
    "K0714": (f"{FILL}/1/args/1", '{{"buf": "mixed", "offset": {}}}'),
    "K0715": (f"{FILL}/2/args/1", '{{"state": "history", "offset": {}}}'),
    "K0610": (f"{FINAL}/args/3", '{{"scratch": "count", "offset": {}}}'),
}
BYTES = {"K0714": 64 * 128 * 4, "K0715": 512 * 16, "K0610": 8 * 4}
"""Bytes of each at the upper bounds, of the state's granule."""


@pytest.mark.parametrize("code", OFFSETS)
def test_the_help_points_to_where_an_offset_may_be(code: str) -> None:
    pointer, arg = OFFSETS[code]
    for offset, help in ((-4096, "give an offset of 0 or more"), (2**40, f"give an offset below {BYTES[code]}")):
        manifest = read(edited({pointer: arg.format(offset)}).encode()).manifest
        assert manifest is not None
        (found,) = check(manifest)
        assert found.code == code
        assert help in found.help
        assert "smaller" not in found.help
