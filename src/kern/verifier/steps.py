"""Rule 5, one step: its symbol, its pin, its arguments against its parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kern.manifest.counts import counted
from kern.manifest.diagnostics import Code, Diagnostic, Path
from kern.manifest.operators import launch_params
from kern.manifest.types import Arg, ScratchArg, Step
from kern.verifier import geometry, operators
from kern.verifier.example import edit
from kern.verifier.scope import Scope

_SCALE = "/kernels/scale/impl/steps/0"
_FINAL = "/kernels/summarize/impl/steps/1"
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_DIGEST = "0f" * 32

NO_STEPS = Code(
    "K0501",
    "kernel without steps",
    "The implementation of a kernel has at least one step; otherwise it does nothing. Remove the kernel and its "
    "dispatches, or give it a step.",
    edit(
        "/kernels/scale/impl/steps",
        "[]",
        '[{"symbol": "scale_f32", "params": ["out buffer<f32>", "in buffer<f32>", "f32"], "block": [128, 1, 1], '
        '"grid": [{"sym": "rows"}, 1, 1], "args": [{"arg": 0}, {"arg": 1}, {"arg": 2}]}]',
    ),
)
SYMBOL_EMPTY = Code(
    "K0502",
    "step without a symbol",
    "The symbol is the kernel's name in its file, mangled as in the file, or `extern:` and the name of a built-in "
    "operator. An empty symbol matches nothing.",
    edit(f"{_SCALE}/symbol", '""', '"scale_f32"'),
)
SHA256_MALFORMED = Code(
    "K0510",
    "malformed sha256",
    "The hash of a pin is the SHA-256 of the file as 64 hexadecimal digits, as `sha256sum` prints it. Anything else "
    "cannot match a file.",
    edit(f"{_FINAL}/sha256", '"0f0f"', f'"{_DIGEST}"'),
)
SHA256_ALONE = Code(
    "K0511",
    "sha256 without cubin",
    "A hash pins the content of one file, which `cubin` names. Without `cubin` the symbol is searched for in all "
    "files, and it is unclear which one the hash belongs to.",
    edit(f"{_SCALE}/symbol", f'"scale_f32", "sha256": "{_DIGEST}"',
         f'"scale_f32", "cubin": "scale.cubin", "sha256": "{_DIGEST}"'),
)  # fmt: skip
CUBIN_NAME = Code(
    "K0512",
    "kernel file name is empty or a path",
    "`cubin` is the name of a file in the artifact's `kernels` folder. Paths are rejected, so that a manifest cannot "
    "make the loader open other files.",
    edit(f"{_FINAL}/cubin", '"../summary.cubin"', '"summary.cubin"'),
)
ARGUMENT_COUNT = Code(
    "K0513",
    "wrong number of step arguments",
    "A step passes one argument for each parameter of the kernel that it launches, in the same order. Otherwise the "
    "kernel would read past its arguments, or use one as another.",
    edit(f"{_SCALE}/args", '[{"arg": 0}, {"arg": 1}, {"arg": 2}]', '[{"arg": 0}, {"arg": 1}, {"arg": 2}, {"i32": 4}]'),
)
ARGUMENT_KIND = Code(
    "K0514",
    "step argument of the wrong kind",
    "A pointer parameter takes a forwarded argument or a scratch; a scalar takes a forwarded argument or a literal. A "
    "literal is not an address, and a scratch is not a number.",
    edit(f"{_FINAL}/args/2", '{"f32": 0.0}', '{"scratch": "part"}'),
)


def check(scope: Scope) -> Iterator[Diagnostic]:
    """Everything of rule 5."""
    for name, kernel in scope.manifest.kernels.items():
        path: Path = ("kernels", name, "impl", "steps")
        if not kernel.impl.steps:
            yield NO_STEPS.at(path, f"`{name}` has no steps", "add a step")
        for index, step in enumerate(kernel.impl.steps):
            yield from _step(scope, name, step, (*path, index))


def _step(scope: Scope, kernel: str, step: Step, path: Path) -> Iterator[Diagnostic]:
    if step.operator is not None:
        yield from operators.check(step, scope.names["operator"], path)
    else:
        if not step.symbol:
            yield SYMBOL_EMPTY.at((*path, "symbol"), "the symbol is empty", "write the name of the kernel in its file")
        yield from geometry.check(scope, step, scope.ranges.kernels[kernel], path)
        yield from _pin(step, path)
    yield from _arguments(step, path)


def _pin(step: Step, path: Path) -> Iterator[Diagnostic]:
    if step.sha256 is not None and step.cubin is None:
        message = "`sha256` without `cubin`"
        yield SHA256_ALONE.at((*path, "sha256"), message, "add `cubin`, or remove `sha256`")
    elif step.sha256 is not None and not _SHA256.fullmatch(step.sha256):
        message = "the hash is not 64 hexadecimal digits"
        yield SHA256_MALFORMED.at((*path, "sha256"), message, "write what `sha256sum` prints for the file")
    if step.cubin is not None and (step.cubin in ("", ".", "..") or set(step.cubin) & set("/\\\0")):
        message = "the name is empty" if not step.cubin else "the name is a path"
        yield CUBIN_NAME.at((*path, "cubin"), message, "write the name of a file in `kernels`")


def _arguments(step: Step, path: Path) -> Iterator[Diagnostic]:
    """Arguments against the launch's own parameters: number and kind."""
    params = launch_params(step)
    if len(step.args) != len(params):
        message = f"{counted(len(step.args), 'argument')} for {counted(len(params), 'parameter')}"
        yield ARGUMENT_COUNT.at((*path, "args"), message, "pass one argument for each parameter")
        return
    for index, (arg, param) in enumerate(zip(step.args, params, strict=True)):
        if isinstance(arg, Arg) or isinstance(arg, ScratchArg) == param.is_pointer:
            continue
        given = "a scratch" if isinstance(arg, ScratchArg) else f"a literal {arg.scalar}"
        hint = "pass a scratch or an interface argument" if param.is_pointer else "pass a literal or an argument"
        yield ARGUMENT_KIND.at((*path, "args", index), f"{given} for `{param}`", hint)


CODES = (
    NO_STEPS, SYMBOL_EMPTY, SHA256_MALFORMED, SHA256_ALONE, CUBIN_NAME, ARGUMENT_COUNT, ARGUMENT_KIND,
    *geometry.CODES, *operators.CODES,
)  # fmt: skip
