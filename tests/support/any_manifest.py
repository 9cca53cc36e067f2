"""Any manifest that has the right form: references that fit and that do not, sizes of any magnitude."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from kern.manifest.expressions import INT_LIMIT
from kern.manifest.types import Manifest

NAMES = ("a", "b", "c", "extern:cublaslt_bf16_tn", "/~")
DTYPES = ("bf16", "f16", "f32", "fp8e4m3", "i32", "u32", "i64", "u8")
SCALARS = ("i32", "u32", "i64", "f32", "u8")

names = st.sampled_from(NAMES)
integers = st.one_of(
    st.sampled_from((0, 1, 2, 3, 16, 64, 256, 1024, 65536, 2**31 - 1, 2**31, 2**62, INT_LIMIT - 1)),
    st.sampled_from((-1, -(2**31), -INT_LIMIT)),
    st.integers(-INT_LIMIT, INT_LIMIT - 1),
)
expressions: st.SearchStrategy[Any] = st.recursive(
    st.one_of(integers, names, names.map(lambda name: {"sym": name})),
    lambda inner: st.one_of(
        st.tuples(inner, integers).map(lambda pair: {"mul": list(pair)}),
        st.tuples(inner, integers).map(lambda pair: {"ceil_div": list(pair)}),
        st.tuples(inner, inner).map(lambda pair: {"add": list(pair)}),
    ),
    max_leaves=6,
)
pointers = st.builds(
    "{} {}{}".format,
    st.sampled_from(("in", "out", "inout")),
    st.sampled_from(("ptr", *(f"buffer<{dtype}>" for dtype in DTYPES[:4]))),
    st.sampled_from(("", "", " align 16", " align 512")),
)
params = st.lists(st.one_of(pointers, st.sampled_from(SCALARS)), max_size=6)
OPERATOR_PARAMS = ["out buffer<bf16>", "in buffer<bf16>", "in buffer<bf16>", "i32", "i32", "i32"]


def _literal(scalar: str) -> st.SearchStrategy[Any]:
    return integers.map(lambda value: {scalar: value})


literals = st.one_of(
    *(_literal(scalar) for scalar in SCALARS if scalar != "f32"),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda value: {"f32": value}),
)


def _addressed(key: str) -> st.SearchStrategy[Any]:
    return st.one_of(
        names.map(lambda name: {key: name}),
        st.tuples(names, integers).map(lambda pair: {key: pair[0], "offset": pair[1]}),
    )


step_args = st.one_of(
    st.integers(-1, 6).map(lambda index: {"arg": index}),
    st.just({"arg": INT_LIMIT - 1}),
    _addressed("scratch"),
    literals,
)
dispatch_args = st.one_of(
    _addressed("buf"),
    _addressed("buf"),
    _addressed("state"),
    names.map(lambda name: {"sym": name}),
    expressions.map(lambda expr: {"expr": expr}),
    literals,
)
arrays = {"dtype": st.sampled_from(DTYPES), "shape": st.lists(expressions, max_size=3)}
steps = st.fixed_dictionaries(
    {
        "symbol": st.one_of(st.just(""), names),
        "params": st.one_of(params, st.just(OPERATOR_PARAMS)),
        "block": st.tuples(integers, integers, integers),
        "grid": st.tuples(expressions, expressions, expressions),
        "args": st.one_of(st.lists(step_args, max_size=6), st.just([{"arg": index} for index in range(6)])),
    },
    optional={
        "shared_mem": expressions,
        "cubin": st.sampled_from(("", "a.cubin", "../a", "..")),
        "sha256": st.sampled_from(("", "0" * 64, "g" * 64)),
        "pdl": st.booleans(),
        "cluster": st.tuples(integers, integers, integers),
        "cooperative": st.booleans(),
    },
)
kernels = st.fixed_dictionaries(
    {
        "params": st.one_of(params, st.just(OPERATOR_PARAMS)),
        "impl": st.fixed_dictionaries(
            {"steps": st.lists(steps, max_size=3)},
            optional={
                "scratch": st.dictionaries(
                    names, st.fixed_dictionaries(arrays, optional={"keep": st.booleans()}), max_size=3
                )
            },
        ),
    }
)
dispatches = st.fixed_dictionaries({"kernel": names, "args": st.lists(dispatch_args, max_size=6)})
programs = st.fixed_dictionaries(
    {"dispatches": st.lists(dispatches, max_size=4)},
    optional={
        "symbols": st.dictionaries(
            names, st.fixed_dictionaries({}, optional={"min": integers, "max": integers}), max_size=3
        )
    },
)
states = st.fixed_dictionaries(
    {}, optional={"bytes_per_token": integers, "bytes": integers, "align": integers, "granule": integers}
)
classes = st.sampled_from(("input", "output", "weight", "workspace", "carry"))
documents = st.fixed_dictionaries(
    {
        "meta": st.fixed_dictionaries({"version": st.sampled_from((2, 1)), "model": st.text(max_size=3)}),
        "symbols": st.dictionaries(
            names, st.fixed_dictionaries({"max": integers}, optional={"min": integers}), max_size=3
        ),
        "states": st.dictionaries(names, states, max_size=2),
        "buffers": st.dictionaries(names, st.fixed_dictionaries({**arrays, "class": classes}), max_size=4),
        "kernels": st.dictionaries(names, kernels, max_size=3),
        "programs": st.dictionaries(names, programs, max_size=3),
    }
)


def manifest_of(document: Any) -> Manifest:
    """The manifest that a JSON value of the right form is."""
    return Manifest.model_validate_json(json.dumps(document))
