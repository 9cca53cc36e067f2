"""Rule 1: every error of form is reported with its location, and nothing crashes the reader."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kern.manifest.codes import CODES
from kern.manifest.diagnostics import MAX_NAME, Code, Example
from kern.manifest.reading import MAX_BYTES, MAX_ERRORS, MAX_NESTING, MAX_TERMS, MAX_VALUES, read
from kern.verifier import check
from support.edited_example import edited

SAMPLE = (Path(__file__).parents[1] / "samples" / "original-form.json").read_bytes()
MINIMAL = '{"meta": {"version": 2, "model": "m"}, "buffers": {}, "kernels": {}, "programs": {}}'


def found(text: str | bytes) -> list[tuple[str, str, int, int]]:
    reading = read(text if isinstance(text, bytes) else text.encode())
    assert (reading.manifest is None) == bool(reading.diagnostics)
    located = [(d, reading.source.locate(d)) for d in reading.diagnostics]
    return [(d.code, d.pointer, location.line, location.column) for d, location in located]


def test_the_original_form_reads() -> None:
    assert found(SAMPLE) == []
    assert found(MINIMAL) == []


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("", [("K0102", "", 1, 1)]),
        ("nul", [("K0102", "", 1, 1)]),
        ("{'meta': 1}", [("K0102", "", 1, 2)]),
        ('{"a": "\n"}', [("K0102", "", 1, 8)]),
        ('{"a": 01}', [("K0102", "", 1, 8)]),
        ("[]", [("K0105", "", 1, 1)]),
        ('"\\ud834\\udd1e"', [("K0105", "", 1, 1)]),
        ("\ufeff" + MINIMAL, [("K0102", "", 1, 1)]),
        ('{"a": "' + "\\n" * 1_000_000 + '"', [("K0102", "", 1, 2_000_008)]),
        (b'{"a": "caf\xe9"}', [("K0101", "", 1, 11)]),
        ("[" * 65 + "]" * 65, [("K0108", "", 1, 65)]),
        ("[" * 100_000, [("K0108", "", 1, 65)]),
        ('{"a": "' + "]" * 100_000 + '", "b": ' + "[" * 100_000, [("K0108", "", 1, 100_079)]),
        ('{"a": "\\"]]]\\\\", "b": ' + "[" * 64, [("K0108", "", 1, 86)]),
        (MINIMAL.replace("2", "2.0"), [("K0105", "/meta/version", 1, 22)]),
        (MINIMAL.replace("2", "true"), [("K0105", "/meta/version", 1, 22)]),
        (MINIMAL.replace("2", '"2"'), [("K0105", "/meta/version", 1, 22)]),
        (MINIMAL.replace("2", "NaN"), [("K0107", "/meta/version", 1, 22)]),
        (MINIMAL.replace("2", "-Infinity"), [("K0107", "/meta/version", 1, 22)]),
        (MINIMAL.replace("2", "1e999"), [("K0107", "/meta/version", 1, 22)]),
        (MINIMAL.replace("2", str(2**63)), [("K0107", "/meta/version", 1, 22)]),
        (MINIMAL.replace("2", "9" * 40), [("K0107", "/meta/version", 1, 22)]),
        (MINIMAL.replace("2", "9" * 5000), [("K0107", "/meta/version", 1, 22)]),
        (MINIMAL.replace('"m"', '"\\ud800"'), [("K0112", "/meta/model", 1, 35)]),
        (MINIMAL.replace('"m"', '"m", "\\udc00": 1'), [("K0112", "/meta/\udc00", 1, 40)]),
        (MINIMAL.replace('"m"', '"m", "note": 1'), [("K0103", "/meta/note", 1, 39)]),
        (MINIMAL.replace(', "model": "m"', ""), [("K0104", "/meta", 1, 10)]),
        (MINIMAL.replace('"buffers": {}', '"buffers": {"": {}}'),
         [("K0109", "/buffers/", 1, 52), ("K0104", "/buffers/", 1, 56), ("K0104", "/buffers/", 1, 56),
          ("K0104", "/buffers/", 1, 56)]),
    ],
)  # fmt: skip
def test_each_error_of_form_has_its_code_and_location(
    text: str | bytes, errors: list[tuple[str, str, int, int]]
) -> None:
    assert found(text) == errors


def test_a_trailing_comma_is_shown() -> None:
    column = 11 if sys.version_info >= (3, 13) else 12  # the comma itself; before 3.13, what comes after it
    assert found('{"meta": 1,}') == [("K0102", "", 1, column)]


def test_the_second_of_two_equal_keys_is_shown() -> None:
    text = MINIMAL.replace('"m"', '"m",\n "model": "n"')
    assert found(text) == [("K0111", "/meta/model", 2, 2)]
    assert found(MINIMAL.replace('"m"', '"m",\n "model": "n",\n "model": "o"')) == [
        ("K0111", "/meta/model", 2, 2),
        ("K0111", "/meta/model", 3, 2),
    ]


def test_all_errors_are_reported_at_once_in_the_order_of_the_text() -> None:
    text = SAMPLE.decode()
    text = text.replace('"max": 64', '"max": ' + "6" * 30).replace('"offset": 256', '"offst": 256')
    text = text.replace('"out buffer<bf16>"', '"out buffer<bf17>"', 1).replace('"class": "carry"', '"class": "carried"')
    codes = [(code, pointer) for code, pointer, _, _ in found(text)]
    assert codes == [
        ("K0107", "/symbols/tokens/max"),
        ("K0105", "/buffers/aux/class"),
        ("K0106", "/kernels/embedding/params/0"),
        ("K0103", "/programs/prefill/dispatches/3/args/0/offst"),
        ("K0103", "/programs/decode/dispatches/3/args/0/offst"),
        ("K0103", "/programs/decode/dispatches/4/args/2/offst"),
    ]


@pytest.mark.parametrize("field", ['"cubin": null,', '"cluster": null,', '"sha256": null,'])
def test_an_optional_field_is_left_out_never_null(field: str) -> None:
    assert [
        code for code, *_ in found(SAMPLE.decode().replace('"symbol": "mix_split",', '"symbol": "m",' + field))
    ] == ["K0105"]


@pytest.mark.parametrize(
    ("arg", "code", "below"),
    [
        ('{"bufs": "qkv"}', "K0105", ""),
        ('{"buf": "qkv", "state": "kv"}', "K0103", "/state"),
        ('{"arg": 0}', "K0105", ""),
        ('{"i32": 1.5}', "K0105", "/i32"),
        ('{"u8": true}', "K0105", "/u8"),
        ('{"expr": {"mul": ["tokens"]}}', "K0105", "/expr/mul"),
        ('{"expr": {"mul": ["tokens", 2], "note": 0}}', "K0103", "/expr/note"),
        ('{"expr": {"pow": ["tokens", 2]}}', "K0105", "/expr"),
        ("5", "K0105", ""),
    ],
)
def test_argument_objects_are_as_strict_as_the_rest(arg: str, code: str, below: str) -> None:
    text = SAMPLE.decode().replace('{\n       "buf": "hidden"\n      }', arg, 1)
    assert [(c, p) for c, p, _, _ in found(text)] == [(code, "/programs/prefill/dispatches/0/args/0" + below)]


def test_a_file_beyond_the_bound_is_not_read() -> None:
    assert [code for code, *_ in found(b" " * (MAX_BYTES + 1))] == ["K0110"]
    assert [code for code, *_ in found(b"[" + b"0," * (MAX_VALUES + 1) + b"0]")] == ["K0110"]
    assert [code for code, *_ in found(b'{"a": "' + b"x" * 100 * 2**20 + b'"}')] == ["K0110"]


@pytest.mark.parametrize("code", CODES.values(), ids=lambda code: code.id)
def test_the_example_of_a_code_yields_it_and_its_fixed_form_is_valid(code: Code) -> None:
    if not isinstance(code.example, Example):
        assert code.id in ("K0110", "K0113"), "other errors of form can be shown in a small file"
        return
    failing = edited(code.example.failing).encode("utf-8", "surrogateescape")
    assert {error for error, *_ in found(failing)} == {code.id}
    fixed = read(edited(code.example.fixed).encode()).manifest
    assert fixed is not None
    assert check(fixed) == ()


@pytest.mark.parametrize(
    "text",
    ['{"a": 1' + ', "a": 1' * 20_000 + "}", "[" + "NaN, " * 20_000 + "0]", '{"kernels": [' + "1, " * 20_000 + "1]}",
     '{"meta": {"version": 2, "model": "m"}, "buffers": {"x": {"shape": [' + "1.5, " * 20_000 + "1]}}}"],
)  # fmt: skip
def test_only_the_first_of_very_many_errors_are_reported(text: str) -> None:
    errors = found(text)
    assert len(errors) <= MAX_ERRORS + 1
    assert (errors[-1][0] == "K0113") == (len(errors) == MAX_ERRORS + 1)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        (MINIMAL.replace('"m"', '"m"' + "".join(f', "f{i}": 0' for i in range(1500))), "500 more errors"),
        (MINIMAL.replace('"m"', '"' + "\\ud800" * 1001 + '"'), "1 more error"),
        (
            MINIMAL.replace('"m"', '"' + "\\ud800" * 900 + '"' + "".join(f', "f{i}": 0' for i in range(300))),
            "200 more errors",
        ),
    ],
)
def test_the_errors_that_are_not_reported_are_counted(text: str, rest: str) -> None:
    errors = read(text.encode()).diagnostics
    assert len(errors) == MAX_ERRORS + 1
    assert errors[-1].code == "K0113"
    assert errors[-1].message.startswith(rest)


def test_exactly_as_many_errors_as_are_reported_are_all_reported() -> None:
    text = MINIMAL.replace('"m"', '"m"' + "".join(f', "f{i}": 0' for i in range(MAX_ERRORS)))
    assert [error.code for error in read(text.encode()).diagnostics] == ["K0103"] * MAX_ERRORS


@pytest.mark.parametrize(("version", "help"), [(1, "build the folder again"), (3, "use a newer kern")])
def test_a_manifest_of_another_version_is_one_error(version: int, help: str) -> None:
    """Whatever else it holds, which may be right in that version."""
    text = f'{{"meta": {{"version": {version}, "about": {{}}}}, "tensors": [], "symbols": {{"n": 1}}}}'
    (error,) = read(text.encode()).diagnostics
    assert (error.code, error.pointer) == ("K0201", "/meta/version")
    assert f"version {version}" in error.message
    assert help in error.help


def test_names_and_expressions_are_bounded() -> None:
    def buffer(shape: str, name: str = "b") -> str:
        return MINIMAL.replace(
            '"buffers": {', f'"buffers": {{"{name}": {{"dtype": "u8", "shape": {shape}, "class": "input"}}'
        )

    assert found(buffer("[1]", "n" * MAX_NAME)) == []
    assert [code for code, *_ in found(buffer("[1]", "n" * (MAX_NAME + 1)))] == ["K0114"]
    terms = "[" + ", ".join(["1"] * (MAX_TERMS - 2))
    assert found(buffer(terms + ', {"add": [1, 1]}]')) == []
    assert [error[:2] for error in found(buffer(terms + ', {"add": [1, {"mul": [1, 1]}]}]'))] == [
        ("K0115", "/buffers/b/shape")
    ]
    nested = '{"add": [1, 1]}'
    for _ in range(MAX_TERMS - 2):
        nested = f'{{"add": [1, 1]}}, {nested}'
    assert [code for code, *_ in found(buffer(f"[{nested}]", "add"))] == ["K0115"]


def test_brackets_in_strings_do_not_nest() -> None:
    assert found(MINIMAL.replace('"m"', json.dumps("[{" * MAX_NESTING))) == []


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_without_a_crash(data: bytes) -> None:
    assert found(data)


@settings(max_examples=200)
@given(st.data())
def test_a_damaged_manifest_never_crashes_the_reader(data: st.DataObject) -> None:
    text = bytearray(SAMPLE)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=6) | st.sampled_from(
            [b"NaN", b'"\\ud800"', b"1e400", b"9" * 40, b"[" * 80, b"null", b"{}", b'{"sym": "a"}', b"-0", b"\\u0000"]
        ))  # fmt: skip
    found(bytes(text))
