"""One cause, one diagnostic: what follows from an error is not reported as another."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kern.manifest.reading import read
from kern.verifier import check
from support.edited_example import edited

SCALE = "/programs/fill/dispatches/1"
STEP_SCALE = "/programs/step/dispatches/1"

ONE_CAUSE: Mapping[str, tuple[Mapping[str, str], list[tuple[str, str]]]] = {
    "a misspelt buffer is neither unwritten nor leaves another unused": (
        {f"{SCALE}/args/0/buf": '"scald"'},
        [("K0702", f"{SCALE}/args/0/buf")],
    ),
    "the only mention of a buffer misspelt leaves it not 'never written'": (
        {"/programs/step/dispatches/3/args/0/buf": '"peek"'},
        [("K0702", "/programs/step/dispatches/3/args/0/buf")],
    ),
    "the only mention of a weight misspelt leaves it not 'unused'": (
        {"/programs/fill/dispatches/0/args/2/buf": '"filtr"', "/programs/step/dispatches/0/args/2/buf": '"filtr"'},
        [
            ("K0702", "/programs/fill/dispatches/0/args/2/buf"),
            ("K0702", "/programs/step/dispatches/0/args/2/buf"),
        ],
    ),
    "an unknown kernel may write whatever it is given": (
        {f"{SCALE}/kernel": '"scael"'},
        [("K0701", f"{SCALE}/kernel")],
    ),
    "the only call of a kernel misspelt leaves it not 'unused'": (
        {"/programs/step/dispatches/3/kernel": '"sumarize"'},
        [("K0701", "/programs/step/dispatches/3/kernel")],
    ),
    "a missing argument may be the one that was written": (
        {f"{SCALE}/args": '[{"buf": "mixed"}, {"f32": 0.5}]'},
        [("K0705", f"{SCALE}/args")],
    ),
    "a number in place of the written buffer": (
        {f"{SCALE}/args/0": '{"i32": 1}'},
        [("K0706", f"{SCALE}/args/0")],
    ),
    "an unknown symbol in the only use of another": (
        {"/programs/fill/dispatches/2/args/2/sym": '"strat"', "/programs/step/dispatches/2/args/2/sym": '"rows"'},
        [("K0704", "/programs/fill/dispatches/2/args/2/sym")],
    ),
    "a broken symbol breaks nothing that uses it": (
        {"/symbols/rows": '{"min": 9, "max": 4}'},
        [("K0202", "/symbols/rows/max")],
    ),
    "a symbol that can be 0 is reported at each size that uses it, not as an empty grid": (
        {"/symbols/rows": '{"min": 0, "max": 64}', "/programs/step/symbols": '{"rows": {"min": 1, "max": 1}}'},
        [
            ("K0205", "/buffers/signal/shape/0"),
            ("K0205", "/buffers/mixed/shape/0"),
            ("K0205", "/buffers/scaled/shape/0"),
            ("K0205", "/kernels/scale/impl/steps/0/grid/0"),
            ("K0205", "/kernels/record/impl/steps/0/grid/0"),
        ],
    ),
    "an unknown interface parameter leaves nothing unread or unwritten": (
        {"/kernels/scale/impl/steps/0/args/0": '{"arg": 7}'},
        [("K0601", "/kernels/scale/impl/steps/0/args/0")],
    ),
    "an unknown scratch leaves the other not 'unread'": (
        {"/kernels/summarize/impl/steps/0/args/0": '{"scratch": "prat"}'},
        [("K0607", "/kernels/summarize/impl/steps/0/args/0")],
    ),
    "an unknown scratch does not hide that the interface's parameter is never written": (
        {
            "/kernels/summarize/impl/steps/1/args/2": '{"scratch": "prat"}',
            "/kernels/summarize/impl/steps/1/params/1": '"in buffer<f32>"',
        },
        [("K0607", "/kernels/summarize/impl/steps/1/args/2"), ("K0606", "/kernels/summarize/params/1")],
    ),
    "an unknown scratch does not hide that a parameter is unused": (
        {
            "/kernels/summarize/impl/steps/1/args/2": '{"scratch": "prat"}',
            "/kernels/summarize/impl/steps/0/args/2": '{"i32": 128}',
        },
        [("K0607", "/kernels/summarize/impl/steps/1/args/2"), ("K0905", "/kernels/summarize/params/3")],
    ),
    "an `out` parameter that is only read is reported at its first read": (
        {"/kernels/product/params/1": '"out buffer<bf16>"', "/buffers/signal/class": '"carry"'},
        [("K0605", "/kernels/product/impl/steps/0/args/1")],
    ),
    "a scratch that two steps read and none writes is reported at its first read": (
        {"/kernels/summarize/impl/steps/0/params/0": '"in buffer<f32>"'},
        [("K0611", "/kernels/summarize/impl/steps/0/args/0")],
    ),
    "an unknown scratch leaves the one that was meant not 'unused'": (
        {"/kernels/summarize/impl/steps/1/args/3": '{"scratch": "cuont"}'},
        [("K0607", "/kernels/summarize/impl/steps/1/args/3")],
    ),
    "a scalar forwarded to an operator's pointer leaves its operands unchecked": (
        {"/kernels/product/impl/steps/0/args/0": '{"arg": 3}'},
        [("K0602", "/kernels/product/impl/steps/0/args/0")],
    ),
    "an unknown scratch as an operator's operand": (
        {"/kernels/product/impl/steps/0/args/0": '{"scratch": "nowhere"}'},
        [("K0607", "/kernels/product/impl/steps/0/args/0"), ("K0604", "/kernels/product/params/0")],
    ),
    "a workspace that nothing reads and a state of the same name": (
        {
            "/buffers/spare": '{"dtype": "f32", "shape": ["rows", 128], "class": "workspace"}',
            "/programs/step/dispatches/0/args/0/buf": '"spare"',
            "/programs/step/dispatches/1/args/1/buf": '"total"',
            "/states/spare": '{"bytes": 8192}',
            "/programs/step/dispatches/2/args/1": '{"state": "spare"}',
        },
        [("K0807", "/buffers/spare")],
    ),
    "a buffer given three times, and written through the second, is reported there": (
        {
            "/kernels/summarize/params": '["in buffer<f32>", "inout buffer<f32>", "in buffer<f32>", "i32"]',
            "/kernels/summarize/impl/steps/1/params/0": '"in buffer<f32>"',
            "/programs/step/dispatches/3/args/0/buf": '"total"',
            "/programs/step/dispatches/3/args/2/buf": '"total"',
            "/buffers/peak/class": '"input"',
            "/programs/fill/dispatches/1/args/1/buf": '"mixed"',
        },
        [("K0720", "/programs/step/dispatches/3/args/1"), ("K0903", "/buffers/peak")],
    ),
    "a step with an argument too few": (
        {"/kernels/scale/impl/steps/0/args": '[{"arg": 1}, {"arg": 2}, {"i32": 128}]'},
        [("K0513", "/kernels/scale/impl/steps/0/args")],
    ),
    "a kernel without steps writes nothing and is reported once": (
        {"/kernels/scale/impl/steps": "[]"},
        [("K0501", "/kernels/scale/impl/steps")],
    ),
    "misstated parameters of an operator": (
        {"/kernels/product/impl/steps/0/params/0": '"out buffer<bf16>"'},
        [("K0518", "/kernels/product/impl/steps/0/params/0")],
    ),
    "an extent that is too large for two operands is reported once": (
        {f"{SCALE[:-1]}0/args/4": '{"i32": 1280}'},
        [("K0716", "/programs/fill/dispatches/0/args/0")],
    ),
    "an output that is read and that nothing writes": (
        {"/programs/step/dispatches/3/args/0/buf": '"mixed"', f"{STEP_SCALE}/args/1/buf": '"peak"'},
        [("K0804", "/buffers/peak")],
    ),
    "a read before any write is reported at the first read": (
        {"/programs/fill/dispatches/0/args/0/buf": '"scaled"', "/programs/fill/dispatches/2/args/0/buf": '"mixed"'},
        [("K0801", f"{SCALE}/args/1")],
    ),
    "an interface parameter of another kind is reported at its step and its callers, and breaks no data flow": (
        {"/kernels/product/params/0": '"i32"'},
        [
            ("K0602", "/kernels/product/impl/steps/0/args/0"),
            ("K0706", "/programs/fill/dispatches/0/args/0"),
            ("K0706", "/programs/step/dispatches/0/args/0"),
        ],
    ),
    "a block whose z alone is too large": (
        {"/kernels/scale/impl/steps/0/block": "[1, 16, 2048]"},
        [("K0505", "/kernels/scale/impl/steps/0/block/2")],
    ),
    "a block whose z is too large, and that is too large at any z": (
        {"/kernels/scale/impl/steps/0/block": "[32, 32, 65]"},
        [("K0505", "/kernels/scale/impl/steps/0/block/2"), ("K0504", "/kernels/scale/impl/steps/0/block")],
    ),
    "no programs": ({"/programs": "{}"}, [("K0906", "/programs")]),
    "a program without dispatches leaves the rest not 'unused'": (
        {"/programs/step/dispatches": "[]"},
        [("K0907", "/programs/step/dispatches")],
    ),
    "a state without a size is not outgrown": ({"/states/history": "{}"}, [("K0306", "/states/history")]),
    "a changed dtype is reported where the buffer is passed": (
        {"/buffers/total/dtype": '"i32"'},
        [("K0707", "/programs/step/dispatches/3/args/1")],
    ),
}


SPARE = {
    "symbols": '{"max": 2}',
    "states": '{"bytes": 64}',
    "buffers": '{"dtype": "u8", "shape": [1], "class": "workspace"}',
}
"""Sections, and a declaration in each that nothing uses."""


@pytest.mark.parametrize("case", ONE_CAUSE)
def test_one_cause_one_diagnostic(case: str) -> None:
    edits, expected = ONE_CAUSE[case]
    manifest = read(edited(edits).encode()).manifest
    assert manifest is not None
    assert [(d.code, d.pointer) for d in check(manifest)] == expected


def test_independent_errors_are_all_reported_in_the_order_of_the_rules() -> None:
    edits = {
        "/symbols/spare": '{"max": 2}',
        "/states/history/align": "100",
        "/buffers/total/shape": "[0]",
        "/kernels/scale/impl/steps/0/block": "[0, 1, 1]",
        "/kernels/scale/impl/steps/0/args/3": '{"u8": 1}',
        "/kernels/record/impl/steps/0/shared_mem": "300000",
        "/programs/fill/dispatches/1/args/2": '{"f32": 1e300}',
        "/programs/step/dispatches/2/args/1": '{"state": "history", "offset": 99999}',
        "/programs/step/dispatches/3/args/0/buf": '"nothing"',
    }
    manifest = read(edited(edits).encode()).manifest
    assert manifest is not None
    assert [d.code for d in check(manifest)] == [
        "K0302", "K0402", "K0503", "K0508", "K0613", "K0712", "K0715", "K0702", "K0901",
    ]  # fmt: skip


@pytest.mark.parametrize("unresolved", [("kernel", '"sumarize"', "K0701"), ("args", "[]", "K0705")])
def test_an_unresolved_dispatch_hides_no_error_of_earlier_dispatches_and_other_programs(
    unresolved: tuple[str, str, str],
) -> None:
    field, text, code = unresolved
    edits = {
        f"/programs/step/dispatches/3/{field}": text,
        "/buffers/signal/class": '"workspace"',
        "/buffers/constant": '{"dtype": "f32", "shape": [64, 128], "class": "weight"}',
        "/programs/fill/dispatches/1/args/0/buf": '"constant"',
        "/programs/fill/dispatches/2/args/0/buf": '"constant"',
    }
    manifest = read(edited(edits).encode()).manifest
    assert manifest is not None
    found = [(d.code, d.pointer) for d in check(manifest)]
    assert found[0][0] == code
    assert found[1:] == [
        ("K0801", "/programs/fill/dispatches/0/args/1"),
        ("K0803", "/programs/fill/dispatches/1/args/0"),
        ("K0801", "/programs/step/dispatches/0/args/1"),
    ]


def test_unused_names_come_in_the_order_of_the_manifest() -> None:
    names = [f"spare{index * 7 % 16}" for index in range(16)]
    edits = {f"/{section}/{name}": text for section, text in SPARE.items() for name in names}
    manifest = read(edited(edits).encode()).manifest
    assert manifest is not None
    found = [diagnostic.pointer for diagnostic in check(manifest)]
    assert found == [f"/{section}/{name}" for section in SPARE for name in names]
