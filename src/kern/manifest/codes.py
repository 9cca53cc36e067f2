"""The codes of rule 1, the form of a manifest, and of its version, which decides what form is expected."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kern.manifest.diagnostics import Code, Example, FolderExample


def _edit(pointer: str, failing: str, fixed: str) -> Example:
    return Example({pointer: failing}, {pointer: fixed})


VERSION_UNKNOWN = Code(
    "K0201",
    "another format version",
    "`meta.version` is the version of the format that the file is written in, and this kern reads only version 2. The "
    "same fields may mean something else in another version, so nothing else in the file is checked. Generate it again "
    "with a matching generator.",
    _edit("/meta/version", "3", "2"),
)
NOT_UTF8 = Code(
    "K0101",
    "not UTF-8",
    "A manifest is JSON in UTF-8. The bytes here are not UTF-8, so no name in the file can be trusted to be what it "
    "looks like. Save it as UTF-8, without a byte-order mark.",
    _edit("/meta/model", '"caf\udce9"', '"café"'),
)
NOT_JSON = Code(
    "K0102",
    "not JSON",
    "The text is not JSON (RFC 8259) from the location shown on. JSON has no comments, trailing commas or single "
    "quotes. Manifests are generated: fix the generator, or write the file with `kern.manifest.writing.write`.",
    _edit("/meta", '{"version": 2, "model": "example",}', '{"version": 2, "model": "example"}'),
)
UNKNOWN_FIELD = Code(
    "K0103",
    "unknown field",
    "An object in a manifest has only the fields of the format. A field that nothing reads is misspelt or belongs to "
    "another version; either way the file does not say what its author meant.",
    _edit("/meta", '{"version": 2, "model": "example", "author": "me"}', '{"version": 2, "model": "example"}'),
)
MISSING_FIELD = Code(
    "K0104",
    "missing field",
    "A field that has no default is missing. The location shown is the object that lacks it.",
    _edit("/meta", '{"version": 2}', '{"version": 2, "model": "example"}'),
)
WRONG_TYPE = Code(
    "K0105",
    "wrong type",
    "A value has another JSON type than the format requires, or is not one of the allowed strings. Nothing is "
    'converted: 4.0 and true are not integers, and "4" is not a number.',
    _edit("/meta/version", "2.0", "2"),
)
BAD_PARAM = Code(
    "K0106",
    "bad parameter string",
    "A parameter is a scalar type (i32 u32 i64 f32 u8), or a direction (in, out, inout), a space, and `ptr` or "
    "`buffer<dtype>`. A pointer may end in ` align N`, where N is a power of two. No other text or spaces are allowed.",
    _edit("/kernels/scale/params/0", '"out buffer<bfloat16>"', '"out buffer<f32>"'),
)
NUMBER = Code(
    "K0107",
    "number out of range",
    "Numbers are finite, and integers fit in 64 bits. NaN, Infinity and numbers that are too large are rejected while "
    "the file is read, before any rule computes with them.",
    _edit("/meta/version", "99999999999999999999999", "2"),
)
TOO_DEEP = Code(
    "K0108",
    "nested too deeply",
    "Objects and arrays are nested more deeply than any manifest needs. The limit protects all code that walks a "
    "manifest.",
    _edit("/meta/model", "[" * 70 + "]" * 70, '"example"'),
)
EMPTY_NAME = Code(
    "K0109",
    "empty name",
    "A symbol, state, buffer, kernel or program has a name of at least one character.",
    Example({"/symbols/": '{"max": 8}'}, {}),
)
TOO_LARGE = Code(
    "K0110",
    "file too large",
    "A manifest of more than 8 MiB, or of more than 250,000 values, is not read. A manifest describes buffers and "
    "launches; it holds no data.",
    FolderExample(
        "a manifest.json of 20 MiB with a table written out as a shape or as labels",
        "the table as a tensor of weights.safetensors, and a weight that names it",
    ),
)
DUPLICATE_KEY = Code(
    "K0111",
    "duplicate key",
    "The same key appears twice in one object. JSON readers silently keep one of the two, and different readers keep "
    "different ones. The location shown is the second.",
    _edit("/meta", '{"version": 2, "model": "a", "model": "b"}', '{"version": 2, "model": "a"}'),
)
SURROGATE = Code(
    "K0112",
    "lone surrogate",
    "A string contains half of a UTF-16 surrogate pair, which is not a character: it can be neither printed nor "
    "written as UTF-8.",
    _edit("/meta/model", '"\\ud800"', '"example"'),
)
TOO_MANY = Code(
    "K0113",
    "too many errors",
    "A file with more than a thousand errors of form is probably not a manifest, or its generator is broken. The first "
    "thousand are reported, and the number of the others.",
    FolderExample("a manifest.json in which every number is written as NaN", "numbers written as numbers"),
)

NAME_TOO_LONG = Code(
    "K0114",
    "name too long",
    "A key has at most 256 characters: names appear in messages and in paths. The symbol of a step, which may be a "
    "long mangled name, is a value and not a key.",
    _edit("/symbols", '{"rows": {"max": 64}, "start": {"min": 0, "max": 4095}, "' + "n" * 257 + '": {"max": 8}}',
          '{"rows": {"max": 64}, "start": {"min": 0, "max": 4095}}'),
)  # fmt: skip
TOO_MANY_TERMS = Code(
    "K0115",
    "expression with too many terms",
    "An expression, or all dimensions of a shape together, have at most 64 numbers and symbols. Expressions are "
    "evaluated for every dispatch that uses them, so each must be short. A shape has at most 64 dimensions for the "
    "same reason.",
    _edit("/buffers/total/shape", "[" + ", ".join(["1"] * 64 + ["128"]) + "]", "[128]"),
)

CODES: Mapping[str, Code] = MappingProxyType(
    {
        code.id: code
        for code in (
            NOT_UTF8, NOT_JSON, UNKNOWN_FIELD, MISSING_FIELD, WRONG_TYPE, BAD_PARAM,
            NUMBER, TOO_DEEP, EMPTY_NAME, TOO_LARGE, DUPLICATE_KEY, SURROGATE, TOO_MANY,
            NAME_TOO_LONG, TOO_MANY_TERMS, VERSION_UNKNOWN,
        )
    }
)  # fmt: skip
