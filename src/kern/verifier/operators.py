"""Rule 5, built-in operators: the steps that call them."""

from __future__ import annotations

from collections.abc import Iterator

from kern.manifest.diagnostics import Code, Diagnostic, Path
from kern.manifest.operators import operator_of
from kern.manifest.params import Param
from kern.manifest.types import Step
from kern.verifier.example import edit
from kern.verifier.suggestions import Names

_STEP = "/kernels/product/impl/steps/0"
_PARAMS = '["{}", "in buffer<bf16>", "in buffer<bf16>", "i32", "i32", "i32"]'

OPERATOR_UNKNOWN = Code(
    "K0517",
    "unknown operator",
    "A symbol that begins with `extern:` names an operator built into the device. There are only a few, the same for "
    "every device. Everything else needs a kernel file.",
    edit(f"{_STEP}/symbol", '"extern:matmul"', '"extern:cublaslt_bf16_tn_f32"'),
)
OPERATOR_PARAMS = Code(
    "K0518",
    "wrong parameters for an operator",
    "A built-in operator has a fixed interface, and its step lists exactly these parameters. Those of a matrix product "
    "are C, A, W and the extents m, n, k; C is `inout` if the product is added to it.",
    edit(f"{_STEP}/params", _PARAMS.format("out buffer<bf16>"), _PARAMS.format("out buffer<f32>")),
)
OPERATOR_FILE = Code(
    "K0519",
    "kernel file or shared memory for an operator",
    "A built-in operator has no kernel file and manages its own shared memory, so `cubin`, `sha256` and `shared_mem` "
    "have no meaning here. Remove them.",
    edit(f"{_STEP}/symbol", '"extern:cublaslt_bf16_tn_f32", "cubin": "product.cubin"',
         '"extern:cublaslt_bf16_tn_f32"'),
)  # fmt: skip
OPERATOR_GEOMETRY = Code(
    "K0520",
    "launch geometry for an operator",
    "The device chooses the launch geometry of its operators; block and grid of such a step are [1, 1, 1]. Any other "
    "number would have no effect.",
    edit(f"{_STEP}/grid", '[{"sym": "rows"}, 1, 1]', "[1, 1, 1]"),
)
OPERATOR_ATTRIBUTE = Code(
    "K0521",
    "launch attribute on an operator",
    "`pdl`, `cluster` and `cooperative` describe how the code of a kernel must be launched. The device decides how to "
    "launch its operators.",
    edit(f"{_STEP}/pdl", "true", "false"),
)


def check(step: Step, known: Names, path: Path) -> Iterator[Diagnostic]:
    """A step whose symbol begins with `extern:`; `known` are the operators."""
    name, operator = step.operator, operator_of(step)
    if operator is None:
        message = f"unknown operator `{name}`"
        yield OPERATOR_UNKNOWN.at((*path, "symbol"), message, known.hint(str(name)))
    elif not operator.fits(step.params):
        message = f"`{name}` has other parameters"
        hint = f"write {', '.join(map(str, operator.params))}"
        yield OPERATOR_PARAMS.at(_first_difference(step.params, operator.params, path), message, hint)
    for field in ("cubin", "sha256"):
        if getattr(step, field) is not None:
            yield OPERATOR_FILE.at((*path, field), f"`{field}` on an operator", "remove it")
    if step.shared_mem != 0:
        yield OPERATOR_FILE.at((*path, "shared_mem"), "`shared_mem` on an operator", "remove it")
    for field in ("block", "grid"):
        if getattr(step, field) != (1, 1, 1):
            yield OPERATOR_GEOMETRY.at((*path, field), f"`{field}` on an operator", "write [1, 1, 1]")
    for field in ("pdl", "cluster", "cooperative"):
        if getattr(step, field):
            yield OPERATOR_ATTRIBUTE.at((*path, field), f"`{field}` on an operator", "remove it")


def _first_difference(given: tuple[Param, ...], wanted: tuple[Param, ...], path: Path) -> Path:
    if len(given) != len(wanted):
        return (*path, "params")
    pairs = enumerate(zip(given, wanted, strict=True))
    return (*path, "params", next(i for i, (one, other) in pairs if one.unaligned != other))


CODES = (OPERATOR_UNKNOWN, OPERATOR_PARAMS, OPERATOR_FILE, OPERATOR_GEOMETRY, OPERATOR_ATTRIBUTE)
