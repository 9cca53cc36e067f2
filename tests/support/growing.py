"""Manifests that grow with n in one or two of their counts: what takes the product of two shows in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

Document = dict[str, Any]


def copy(**parts: Any) -> Document:
    """A valid manifest of one kernel `k` (out f32, in f32), with some of its sections replaced."""
    return {
        "meta": {"version": 2, "model": "m"},
        "symbols": {"n": {"max": 64}},
        "buffers": {"x": array("input"), "y": array("output")},
        "kernels": {"k": kernel()},
        "programs": {"run": program(call())},
        **parts,
    }


def array(class_: str, shape: tuple[Any, ...] = ("n",)) -> Document:
    return {"dtype": "f32", "shape": list(shape), "class": class_}


def step(**fields: Any) -> Document:
    return {
        "symbol": "copy_f32", "params": ["out buffer<f32>", "in buffer<f32>"], "block": [64, 1, 1],
        "grid": [{"sym": "n"}, 1, 1], "args": [{"arg": 0}, {"arg": 1}], **fields,
    }  # fmt: skip


def kernel(*steps: Document, scratch: Document | None = None, params: list[str] | None = None) -> Document:
    return {
        "params": params or ["out buffer<f32>", "in buffer<f32>"],
        "impl": {"steps": list(steps) or [step()], "scratch": scratch or {}},
    }


def call(to: str = "y", of: str = "x", name: str = "k") -> Document:
    return {"kernel": name, "args": [{"buf": to}, {"buf": of}]}


def program(*dispatches: Document, **symbols: Any) -> Document:
    return {"dispatches": list(dispatches), "symbols": symbols}


def narrowing(symbols: int, programs: int) -> Document:
    """Symbols that every kernel could have, and programs that narrow one each."""
    names = [f"s{index}" for index in range(symbols)]
    shape = (names[0], "n")
    return copy(
        symbols={"n": {"max": 64}, **{name: {"max": 8} for name in names}},
        buffers={"x": array("input", shape), "y": array("output")},
        programs={f"p{i}": program(call(), **{names[i % symbols]: {"max": 4}}) for i in range(programs)},
    )


def buffers_and_programs(n: int) -> Document:
    """Each program uses its own two of many buffers."""
    buffers = {f"b{i}": array("carry" if i % 2 else "workspace") for i in range(n)}
    programs = {f"p{i}": program(call(f"b{i}"), call("y", f"b{i}")) for i in range(n)}
    return copy(buffers={"x": array("input"), "y": array("output"), **buffers}, programs=programs)


def missing_arguments(n: int) -> Document:
    """A kernel of many parameters, and many dispatches that give it none."""
    params = ["out buffer<f32>", *["i32"] * n]
    args = [{"arg": index} for index in range(n + 1)]
    wide = kernel(step(params=params, args=args), params=params)
    calls = [{"kernel": "wide", "args": []} for _ in range(n)]
    return copy(kernels={"k": kernel(), "wide": wide}, programs={"run": program(call(), *calls)})


def unknown_names(kernels: int, names: int, unknown: int, letters: int) -> Document:
    """Kernels with scratch of long names, and steps that misspell some of them."""
    known = [f"{'s' * (letters - 4)}{number:04}" for number in range(names)]
    args = [{"scratch": name} for name in known] + [{"scratch": f"{name[:-5]}x{name[-4:]}"} for name in known[:unknown]]
    scratch = {name: {"dtype": "f32", "shape": [1]} for name in known}
    one = kernel(step(params=["out buffer<f32>"] * len(args), args=args), scratch=scratch)
    return copy(kernels={"k": kernel(), **{f"k{i}": one for i in range(kernels)}})


def unknown_operators(n: int) -> Document:
    """Steps that name operators of long names that no device has."""
    steps = [step(symbol=f"extern:{'cublaslt' * 20}{i}", grid=[1, 1, 1], block=[1, 1, 1]) for i in range(n)]
    return copy(kernels={"k": kernel(*steps)})


def kernels_and_dispatches(n: int) -> Document:
    """Many kernels with scratch, each called by its own program."""

    def of() -> Document:
        return kernel(
            step(args=[{"scratch": "s"}, {"arg": 1}]), step(args=[{"arg": 0}, {"scratch": "s"}]),
            scratch={"s": {"dtype": "f32", "shape": ["n"]}},
        )  # fmt: skip

    programs = {f"p{i}": program(call(name=f"k{i}")) for i in range(n)}
    return copy(kernels={f"k{i}": of() for i in range(n)}, programs=programs)


def symbols_and_steps(n: int) -> Document:
    """Many symbols, and many steps whose shared memory depends on one."""
    names = [f"s{i}" for i in range(n)]
    steps = [step(shared_mem={"sym": name}) for name in names]
    shape = {f"b{i}": array("workspace", (name,)) for i, name in enumerate(names)}
    return copy(
        symbols={"n": {"max": 64}, **{name: {"max": 8} for name in names}},
        buffers={"x": array("input"), "y": array("output"), **shape},
        kernels={"k": kernel(*steps), "one": kernel()},
        programs={"run": program(call(), *(c for b in shape for c in (call(b, name="one"), call("y", b, "one"))))},
    )


def surrogates(n: int) -> Document:
    """A string of halves of characters."""
    return copy(meta={"version": 2, "model": "\ud800" * n})


def wrong_everywhere(n: int) -> Document:
    """Dispatches and buffers that lack every field, and fields that there are none of."""
    return copy(
        buffers={f"b{i}": {} for i in range(n)}, programs={"run": {"dispatches": [{f"f{i}": 0} for i in range(n)]}}
    )


def long_names(n: int) -> Document:
    """A name of many letters, and many faults below it."""
    return copy(buffers={"x" * (300 * n): {f"f{i}": 0 for i in range(n)}})


def long_expressions(n: int) -> Document:
    """Expressions of many terms, and shapes of many dimensions."""
    expr: Any = "n"
    for _ in range(6):
        expr = {"add": [expr, expr]}
    return copy(buffers={f"b{i}": array("workspace", (expr, expr)) for i in range(n)})


def large_numbers(n: int) -> Document:
    """Numbers beyond 64 bits."""
    return copy(symbols={f"s{i}": {"max": 10**30} for i in range(n)})


def unpinned(steps: int) -> Document:
    """Steps that pin no file, and may mean any of a folder."""
    return copy(kernels={"k": kernel(*(step() for _ in range(steps)))})


def unused_names(n: int) -> Document:
    """Symbols, states, buffers and kernels that nothing uses."""
    return copy(
        symbols={"n": {"max": 64}, **{f"s{i}": {"max": 8} for i in range(n)}},
        states={f"t{i}": {"bytes": 64} for i in range(n)},
        buffers={"x": array("input"), "y": array("output"), **{f"b{i}": array("workspace") for i in range(n)}},
        kernels={"k": kernel(), **{f"k{i}": kernel() for i in range(n)}},
    )


GROWING: Final[Mapping[str, Callable[[int], Document]]] = MappingProxyType({
    "symbols and programs that narrow one": lambda n: narrowing(n, n),
    "buffers and programs": buffers_and_programs,
    "parameters and dispatches without arguments": missing_arguments,
    "unknown operators": unknown_operators,
    "kernels and programs": kernels_and_dispatches,
    "symbols and steps": symbols_and_steps,
    "unused names": unused_names,
})  # fmt: skip
"""Documents whose counts all grow with n. What is verified of one must grow with n, too."""


READ: Final[Mapping[str, Callable[[int], Document]]] = MappingProxyType({
    "halves of characters": surrogates,
    "missing and unknown fields": wrong_everywhere,
    "a long name and faults below it": long_names,
    "long expressions": long_expressions,
    "numbers beyond 64 bits": large_numbers,
})  # fmt: skip
"""Documents that reading refuses, growing with n."""


def text(document: Document) -> bytes:
    """A document as a file."""
    return json.dumps(document, separators=(",", ":")).encode()
