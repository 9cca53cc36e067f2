"""A hypothesis strategy for valid manifests that run: random programs over the kernels of toy_kernels.c."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from kern.manifest.builder import ManifestBuilder, ProgramBuilder
from kern.manifest.expressions import Add, CeilDiv, Expr, Mul, Sym
from kern.manifest.types import I32, U32, Arg, BufferArg, Impl, Kernel, Manifest, Scratch, ScratchArg
from support.toy import single, step

INTERFACE = ("out buffer<u32>", "in buffer<u32>", "in buffer<u32>", "u32", "i32", "i32", "i32")
INTO = ("inout buffer<u32>", "in buffer<u32>", "u32", "i32", "i32")
RESULT_COLUMNS = 3


@dataclass(frozen=True)
class RandomProgram:
    """A manifest with programs `main` and `small`, an input `x` and an output `result`, both u32 [rows, …]."""

    manifest: Manifest
    rows: int
    columns: int


@dataclass(frozen=True)
class Sized:
    """A u32 buffer of shape [rows, columns]."""

    buffer: BufferArg
    columns: int

    def view(self, skipped: int) -> tuple[BufferArg, int]:
        """The buffer without its first `skipped` values, and how many values a row there still are at least."""
        return BufferArg(buf=self.buffer.buf, offset=4 * skipped), self.columns - skipped


def through_scratch(values: int, kept: bool) -> Kernel:
    """The interface's arithmetic in two steps, by way of a scratch of `values` values."""
    scratch = Scratch(dtype="u32", shape=(values,), keep=kept)
    part, count = ScratchArg(scratch="part"), I32(i32=values)
    arg = [Arg(arg=index) for index in range(7)]
    first = (
        step("mix_into_u32", INTO, (part, arg[1], U32(u32=7), count, arg[5]))
        if kept
        else step("mix_u32", INTERFACE, (part, arg[1], arg[2], U32(u32=7), count, arg[5], arg[6]))
    )
    second = step("mix_u32", INTERFACE, (arg[0], part, arg[2], arg[3], arg[4], count, arg[6]))
    return Kernel(params=INTERFACE, impl=Impl(scratch={"part": scratch}, steps=(first, second)))


def in_two_areas(values: int) -> Kernel:
    """The same by way of two areas of one scratch, `values` values each: the second begins at an offset."""
    arg = [Arg(arg=index) for index in range(7)]
    areas = [ScratchArg(scratch="areas", offset=4 * values * index) for index in range(2)]
    count, constant = I32(i32=values), U32(u32=7)
    steps = (
        step("mix_u32", INTERFACE, (areas[0], arg[1], arg[2], constant, count, arg[5], arg[6])),
        step("mix_u32", INTERFACE, (areas[1], arg[2], arg[1], constant, count, arg[6], arg[5])),
        step("mix_u32", INTERFACE, (arg[0], areas[0], areas[1], arg[3], arg[4], count, count)),
    )
    return Kernel(
        params=INTERFACE, impl=Impl(scratch={"areas": Scratch(dtype="u32", shape=(2 * values,))}, steps=steps)
    )


def kernels(builder: ManifestBuilder) -> list[str]:
    """Kernels of one interface, with and without scratch."""
    names = [builder.kernel("mix", single("mix_u32", INTERFACE))]
    names += [builder.kernel(f"scratch_{n}", through_scratch(n, kept=False)) for n in (1, 90, 2000)]
    names.append(builder.kernel("areas", in_two_areas(30)))
    return [*names, builder.kernel("kept", through_scratch(70, kept=True))]


columns = st.integers(1, 8) | st.integers(60, 900)


@st.composite
def random_programs(draw: st.DrawFn) -> RandomProgram:
    """Two programs of 1 to 12 dispatches over shared and private workspace, with views and scratch."""
    most = draw(st.integers(1, 6))
    b = ManifestBuilder("random")
    rows = b.symbol("rows", max=most)
    shift = b.symbol("shift", min=0, max=draw(st.integers(1, 100)))
    width = draw(columns)
    x = Sized(b.input("x", "u32", (rows, width)), width)
    result = Sized(b.output("result", "u32", (rows, RESULT_COLUMNS)), RESULT_COLUMNS)
    told = b.output("told", "i64", (8,))
    workspace = [
        Sized(b.workspace(f"w{index}", "u32", (rows, width)), width)
        for index, width in enumerate(draw(st.lists(columns, min_size=1, max_size=8)))
    ]
    names = kernels(b)
    scalars = b.kernel(
        "scalars",
        single(
            "scalars",
            ("out buffer<i64>", "u8", "i64", "i32", "u8", "u32", "f32"),
            (Add(add=(rows, 1)), CeilDiv(ceil_div=(Mul(mul=(rows, 5)), 3)), 1),
            Mul(mul=(rows, 64)),
        ),
    )
    unused = {sized.buffer.buf for sized in workspace}
    read: set[str] = set()
    for name, bounds in (("main", (1, most)), ("small", (1, draw(st.integers(1, most))))):
        program = b.program(name, rows=bounds)
        written = [x]
        for target in draw(st.lists(st.sampled_from(workspace), max_size=12)):
            _mix(draw, program, names, rows, target, written, read)
            unused.discard(target.buffer.buf)
            if target not in written:
                written.append(target)
        for target in [sized for sized in workspace if name == "small" and sized.buffer.buf in unused]:
            _mix(draw, program, names, rows, target, written, read)
            written.append(target)
        literal = draw(st.floats(width=32, min_value=-1000, max_value=1000))
        exact = Add(add=(Mul(mul=(shift, 2)), 1))
        program.dispatch(scalars, told, draw(st.integers(0, 255)), exact, shift, 3, rows, literal, label="told")
        for target in [sized for sized in written if sized.buffer.buf not in read | {"x"}]:
            _mix(draw, program, names, rows, result, [target], read)
        _mix(draw, program, names, rows, result, written, read)
    return RandomProgram(b.build(), most, width)


def _mix(
    draw: st.DrawFn,
    program: ProgramBuilder,
    names: list[str],
    rows: Sym,
    target: Sized,
    written: list[Sized],
    read: set[str],
) -> None:
    """All of `target` from two arrays written before, which may be views; never from itself."""
    sources = [sized for sized in written if sized != target] or written[:1]
    views = []
    counts: list[Expr] = [Mul(mul=(rows, target.columns))]
    for source in draw(st.lists(st.sampled_from(sources), min_size=2, max_size=2)):
        view, width = source.view(draw(st.integers(0, source.columns - 1)))
        views.append(view)
        read.add(view.buf)
        counts.append(Mul(mul=(rows, width)))
    constant = draw(st.integers(0, 2**32 - 1))
    program.dispatch(draw(st.sampled_from(names)), target.buffer, *views, constant, *counts)
