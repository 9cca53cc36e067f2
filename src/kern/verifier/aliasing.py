"""Rule 7, aliases: one address given twice to a dispatch, or an operator whose result overlaps its factors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kern.manifest.diagnostics import Code, Diagnostic, Example, Path
from kern.manifest.effects import Access


def _folded(offset: int) -> Mapping[str, str]:
    """A program that multiplies a part of a buffer into another part of it, `offset` bytes further on."""
    params = '["out buffer<bf16>", "in buffer<bf16>", "in buffer<bf16>", "i32", "i32", "i32"]'
    forwarded = ", ".join(f'{{"arg": {index}}}' for index in range(6))
    launch = f'"params": {params}, "block": [1, 1, 1], "grid": [1, 1, 1], "args": [{forwarded}]'
    step = f'{{"symbol": "extern:cublaslt_bf16_tn", {launch}}}'
    args = f'{{"buf": "pair", "offset": {offset}}}, {{"buf": "pair"}}, {{"buf": "filter"}}'
    extents = '{"sym": "rows"}, {"i32": 128}, {"i32": 64}'
    return {
        "/buffers/pair": '{"dtype": "bf16", "shape": ["rows", 256], "class": "carry"}',
        "/kernels/fold": f'{{"params": {params}, "impl": {{"steps": [{step}]}}}}',
        "/programs/fold": f'{{"dispatches": [{{"kernel": "fold", "args": [{args}, {extents}]}}]}}',
    }


SAME_ADDRESS = Code(
    "K0720",
    "one address for two parameters, and one of them is written",
    "A kernel may assume that what it writes is not passed to it a second time, and data flow is checked for each "
    "parameter alone. A kernel that works in place has one `inout` parameter, which its steps may forward to several "
    "parameters of a launch. Views of one buffer at different offsets are accepted, since the manifest does not say "
    "how many bytes a kernel accesses from each.",
    Example(
        {"/programs/fill/dispatches/1/args/0/buf": '"mixed"', "/programs/fill/dispatches/2/args/0/buf": '"mixed"'},
        {"/programs/fill/dispatches/1/args/0/buf": '"scaled"', "/programs/fill/dispatches/2/args/0/buf": '"mixed"'},
    ),
)
OPERATOR_OVERLAP = Code(
    "K0721",
    "matrix product that overlaps its own factors",
    "C has m·n elements, A m·k and W n·k, from the argument's offset on. Where C shares a byte with A or W, the "
    "operator overwrites data that it has not read yet. Write C to other memory.",
    Example(_folded(4096), _folded(8192)),
)


def check(accesses: Sequence[Access], path: Path) -> list[Diagnostic]:
    """The errors in a dispatch's accesses, which all resolve."""
    seen: dict[tuple[str, str, int], Access] = {}
    errors = []
    for access in accesses:
        key = access.kind, access.name, access.offset
        first = seen.setdefault(key, access)
        if first is access:
            continue
        if first.writes or access.writes:
            where = f"`{access.name}`" + (f" at offset {access.offset}" if access.offset else "")
            message = (
                f"{where} is already given to parameter {first.position}, and the kernel writes through one of them"
            )
            help = "give it once, to an `inout` parameter that the steps forward twice, or give another buffer"
            errors.append(SAME_ADDRESS.at((*path, "args", access.position), message, help))
        if access.writes:
            seen[key] = access._replace(position=first.position)
    return errors


def overlap(operands: Sequence[tuple[Access, int]], path: Path) -> Iterator[Diagnostic]:
    """The error that C, the first of an operator's operands, overlaps A or W; each operand comes with its size."""
    c, *factors = operands
    found = [name for name, factor in zip("AW", factors, strict=True) if _share_a_byte(*c, *factor)]
    if found:
        message = f"C overlaps {' and '.join(found)} in `{c[0].name}`"
        yield OPERATOR_OVERLAP.at(path, message, "write the product to another buffer")


def _share_a_byte(one: Access, size: int, other: Access, other_size: int) -> bool:
    same = (one.kind, one.name) == (other.kind, other.name)
    return same and one.offset < other.offset + other_size and other.offset < one.offset + size


CODES = (SAME_ADDRESS, OPERATOR_OVERLAP)
