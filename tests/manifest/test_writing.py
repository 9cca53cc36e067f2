"""Writing: reading what was written gives the same manifest, in a stable, readable form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kern.manifest.builder import BuilderError, ManifestBuilder
from kern.manifest.reading import read
from kern.manifest.schema import json_schema
from kern.manifest.types import F32, I32, I64, BufferArg, Kernel, Manifest, Sym
from kern.manifest.writing import write

SAMPLE = (Path(__file__).parents[1] / "samples" / "original-form.json").read_bytes()

SCALE = Kernel.model_validate_json("""
{"params": ["out buffer<f32>", "in buffer<f32>", "f32", "i64"],
 "impl": {"scratch": {"part": {"dtype": "f32", "shape": ["n", 4], "keep": true}},
          "steps": [{"symbol": "scale", "params": ["out buffer<f32>", "in buffer<f32> align 16", "f32", "i64"],
                     "block": [256, 1, 1], "grid": [{"ceil_div": ["n", 256]}, 1, 1], "shared_mem": {"mul": ["n", 4]},
                     "cubin": "a.cubin", "sha256": "00", "pdl": true, "cluster": [2, 1, 1], "cooperative": true,
                     "args": [{"arg": 0}, {"scratch": "part", "offset": 16}, {"arg": 2}, {"i64": -1}]}]}}
""")


def built() -> Manifest:
    builder = ManifestBuilder("naïve ‐ model")
    n = builder.symbol("n", max=64)
    pool = builder.state("pool", bytes_per_token=64, granule=16)
    builder.sequence_state("memory", bytes=1024)
    x = builder.input("x", "f32", [n + 1, 4])
    y = builder.output("y", "f32", [n])
    builder.kernel("scale", SCALE)
    builder.kernel("uncalled", SCALE)
    step = builder.program("step", n=(1, 8))
    step.dispatch("scale", y, x.at(16), 0.5, 3, label="first")
    step.dispatch("scale", y, pool.at(32), 2, n * 2)
    return builder.build()


def parsed(text: str) -> Manifest:
    reading = read(text.encode())
    assert reading.diagnostics == ()
    assert reading.manifest is not None
    return reading.manifest


@pytest.mark.parametrize("manifest", [built(), parsed(SAMPLE.decode())], ids=["built", "sample"])
def test_what_is_written_reads_as_the_same_manifest(manifest: Manifest) -> None:
    text = write(manifest)
    assert parsed(text) == manifest
    assert write(parsed(text)) == text


def test_one_dispatch_stands_on_one_line_and_defaults_are_left_out() -> None:
    lines = write(built()).splitlines()
    assert (
        '    {"label": "first", "kernel": "scale", "args": '
        '[{"buf": "y"}, {"buf": "x", "offset": 16}, {"f32": 0.5}, {"i64": 3}]},'
    ) in lines
    assert '  "x": {"dtype": "f32", "shape": [{"add": [{"sym": "n"}, 1]}, 4], "class": "input"},' in lines
    assert '  "y": {"dtype": "f32", "shape": ["n"], "class": "output"}' in lines


def test_the_builder_types_literals_by_the_interface() -> None:
    first, second = built().programs["step"].dispatches
    assert first.args == (BufferArg(buf="y"), BufferArg(buf="x", offset=16), F32(f32=0.5), I64(i64=3))
    assert second.args[2] == F32(f32=2.0)
    assert list(built().kernels) == ["scale"]


def test_the_builder_refuses_what_no_manifest_can_say() -> None:
    builder = ManifestBuilder("m")
    n = builder.symbol("n", max=4)
    x = builder.workspace("x", "f32", [n])
    builder.kernel("scale", SCALE)
    program = builder.program("p")
    with pytest.raises(BuilderError, match="two buffers are called `x`"):
        builder.input("x", "f32", [n])
    with pytest.raises(BuilderError, match="unknown kernel `scales`"):
        program.dispatch("scales", x)
    with pytest.raises(BuilderError, match="takes 4 arguments, not 1"):
        program.dispatch("scale", x)
    with pytest.raises(BuilderError, match="for the pointer"):
        program.dispatch("scale", x, 7, 1.0, 1)
    with pytest.raises(BuilderError, match="is of type i64"):
        program.dispatch("scale", x, x, 1.0, 1.5)


def test_parameters_with_names_are_given_by_keyword() -> None:
    builder = ManifestBuilder("m")
    x = builder.workspace("x", "f32", [1])
    builder.kernel("scale", SCALE, ["y", "x", "factor", "n"])
    builder.kernel("unnamed", SCALE)
    program = builder.program("p")
    program.dispatch("scale", n=1, y=x, factor=0.5, x=x.at(4), label="first")
    program.dispatch("scale", x, x.at(4), n=1, factor=0.5)
    first, second = program.build().dispatches

    assert first.args == second.args == (x, x.at(4), F32(f32=0.5), I64(i64=1))
    with pytest.raises(BuilderError, match="program p, dispatch 2: `scale` has no parameter `fcator`"):
        program.dispatch("scale", y=x, x=x, fcator=0.5, n=1)
    with pytest.raises(BuilderError, match="dispatch last: no argument for the parameter `n` of `scale`"):
        program.dispatch("scale", y=x, x=x, factor=0.5, label="last")
    with pytest.raises(BuilderError, match="two arguments for the parameter `y` of `scale`"):
        program.dispatch("scale", x, y=x, x=x, factor=0.5, n=1)
    with pytest.raises(BuilderError, match="`unnamed` has no parameter `y`"):
        program.dispatch("unnamed", y=x, x=x, factor=0.5, n=1)
    with pytest.raises(BuilderError, match="two parameters of `repeated` have the same name: y, y, factor, n"):
        builder.kernel("repeated", SCALE, ["y", "y", "factor", "n"])
    with pytest.raises(BuilderError, match="`short` has 4 parameters, and 2 names"):
        builder.kernel("short", SCALE, ["y", "x"])


def test_the_schema_accepts_what_the_reader_accepts() -> None:
    validator = jsonschema.Draft202012Validator(json_schema())
    jsonschema.Draft202012Validator.check_schema(json_schema())
    validator.validate(json.loads(SAMPLE))
    validator.validate(json.loads(write(built())))
    for bad in ['{"meta": {"version": 2, "model": "m"}}', write(built()).replace('"in buffer', '"into buffer')]:
        assert list(validator.iter_errors(json.loads(bad)))


def test_the_schema_has_the_bounds_of_names_and_shapes() -> None:
    validator = jsonschema.Draft202012Validator(json_schema())

    def renamed(section: str, length: int) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(write(built()))
        document[section]["k" * length] = next(iter(document[section].values()))
        return document

    def shaped(dimensions: int) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(write(built()))
        next(iter(document["buffers"].values()))["shape"] = [1] * dimensions
        return document

    for section in ("symbols", "states", "buffers", "kernels", "programs"):
        validator.validate(renamed(section, 256))
        assert [error.validator for error in validator.iter_errors(renamed(section, 257))] == ["maxLength"]
    validator.validate(shaped(64))
    assert [error.validator for error in validator.iter_errors(shaped(65))] == ["maxItems"]
    later = json.loads(write(built()).replace('"version": 2', '"version": 3'))
    assert [error.validator for error in validator.iter_errors(later)] == ["const"]


def test_symbols_and_literals_keep_their_types() -> None:
    assert Sym(sym="n") != I32(i32=1)
