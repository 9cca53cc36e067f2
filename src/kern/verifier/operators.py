"""Rule 5, built-in operators: their interfaces, and what a step may say of one."""

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

EXTERN_UNKNOWN = Code(
    "K0517",
    "unknown extern",
    "A symbol that begins with `extern:` names an operator built into the device. There are few of them and every "
    "device has the same ones. Anything else comes as a kernel file.",
    edit(f"{_STEP}/symbol", '"extern:matmul"', '"extern:cublaslt_bf16_tn_f32"'),
)
EXTERN_INTERFACE = Code(
    "K0518",
    "parameters other than the extern's",
    "An operator built into the device has a fixed interface, and its step lists exactly these parameters. For the "
    "matrix products: C, A, W and the extents m, n, k, where C is `inout` if the product is added to it.",
    edit(f"{_STEP}/params", _PARAMS.format("out buffer<bf16>"), _PARAMS.format("out buffer<f32>")),
)
EXTERN_FILE = Code(
    "K0519",
    "kernel file or shared memory of an extern",
    "An operator built into the device comes from no file and manages its own shared memory, so `cubin`, `sha256` and "
    "`shared_mem` mean nothing here. Take them out.",
    edit(f"{_STEP}/symbol", '"extern:cublaslt_bf16_tn_f32", "cubin": "product.cubin"',
         '"extern:cublaslt_bf16_tn_f32"'),
)  # fmt: skip
EXTERN_GEOMETRY = Code(
    "K0520",
    "launch geometry of an extern",
    "The device chooses how to launch its own operators; block and grid of such a step are [1, 1, 1] and say nothing. "
    "A number here would look as if it were obeyed.",
    edit(f"{_STEP}/grid", '[{"sym": "rows"}, 1, 1]', "[1, 1, 1]"),
)
EXTERN_ATTRIBUTE = Code(
    "K0521",
    "launch attribute on an extern",
    "`pdl`, `cluster` and `cooperative` are promises about, or demands of, a kernel's own code. The device launches "
    "its operators as it sees fit.",
    edit(f"{_STEP}/pdl", "true", "false"),
)


def check(step: Step, known: Names, path: Path) -> Iterator[Diagnostic]:
    """A step whose symbol begins with `extern:`; `known` are the operators."""
    name, operator = step.extern, operator_of(step)
    if operator is None:
        message = f"no device has an operator `{name}`"
        yield EXTERN_UNKNOWN.at((*path, "symbol"), message, known.hint(str(name)))
    elif not operator.fits(step.params):
        message = f"`{name}` does not take these parameters"
        hint = f"write {', '.join(map(str, operator.params))}"
        yield EXTERN_INTERFACE.at(_first_difference(step.params, operator.params, path), message, hint)
    for field in ("cubin", "sha256"):
        if getattr(step, field) is not None:
            yield EXTERN_FILE.at((*path, field), f"`{field}` on an operator", "take it out")
    if step.shared_mem != 0:
        yield EXTERN_FILE.at((*path, "shared_mem"), "`shared_mem` on an operator", "take it out")
    for field in ("block", "grid"):
        if getattr(step, field) != (1, 1, 1):
            yield EXTERN_GEOMETRY.at((*path, field), f"the {field} of an operator", "write [1, 1, 1]")
    for field in ("pdl", "cluster", "cooperative"):
        if getattr(step, field):
            yield EXTERN_ATTRIBUTE.at((*path, field), f"`{field}` on an operator", "take it out")


def _first_difference(given: tuple[Param, ...], wanted: tuple[Param, ...], path: Path) -> Path:
    if len(given) != len(wanted):
        return (*path, "params")
    pairs = enumerate(zip(given, wanted, strict=True))
    return (*path, "params", next(i for i, (one, other) in pairs if one.unaligned != other))


CODES = (EXTERN_UNKNOWN, EXTERN_INTERFACE, EXTERN_FILE, EXTERN_GEOMETRY, EXTERN_ATTRIBUTE)
