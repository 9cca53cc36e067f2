"""The report of `kern mine`, at 100 columns: passes, the block they repeat, kernels, what did not fit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from kern.cli.mine_block import block_lines, shown_blocks
from kern.cli.mine_survey import head
from kern.cli.tables import printer, safe, shown, table
from kern.manifest import expressions
from kern.manifest.counts import counted, number
from kern.mining import Kernel, MinedProcess, Pass
from kern.mining.events import WORD
from kern.mining.mine import CallSite, FittedNumber
from kern.mining.pointers import PointerUse
from kern.mining.symbols import readable, short
from kern.mining.token_count import Explained

RARE: Final = 2
"""Kernels that a pass launches no more often than this are left to the JSON."""
UNALIGNED: Final = 3
STATUS: Final = {"fit": "fit", "underdetermined": "ambiguous", "masked": "masked", "unfit": "unfit"}
STABILITY: Final = {
    "own": "fixed, each its own",
    "shared": "fixed, shared",
    "varying": "varying",
    "once": "seen once",
}
OUTCOMES: Final = 2
"""How many different outcomes of one parameter are shown; the rest are counted."""


def show(process: MinedProcess) -> None:
    """Print the analysis of a process."""
    print = printer()
    for line in head(process.recording):
        print(line)
    if not process.passes:
        print("no passes: nothing that kernels are given recurs at one distance")
        return
    print("")
    for line in _reference_lines(process):
        print(line)
    print(_passes_table(process.passes))
    blocks = shown_blocks(process.passes)
    for each, block in blocks:
        print(f"\n[bold]one of {block.count} blocks[/] of pass {each.index}, {_tokens(each.tokens)}")
        print(block_lines(each, block))
    print("\n[bold]kernels in passes[/]")
    print(_kernels_table(process))
    print(f"\n[bold]parameters of the kernels in {'these blocks' if blocks else 'passes'}[/]")
    for line in _parameters(process):
        print(line)
    print("\n[bold]numbers that follow no expression[/]")
    for line in _unfit(process):
        print(line)


def _tokens(count: int | None) -> str:
    return "token count unknown" if count is None else counted(count, "token")


def _reference_lines(process: MinedProcess) -> Iterator[str]:
    variants = len({each.variant for each in process.passes})
    yield f"[bold]{counted(len(process.passes), 'pass')}[/] in {counted(variants, 'variant')}"
    if process.reference is None:
        yield "no number varies between them, so their token count is not known"
        return
    chosen, other = process.reference.chosen, process.reference.runner_up
    yield (
        f"token count: {_named(chosen)}; of {counted(chosen.numbers, 'varying number')} it leaves "
        f"{number(chosen.unfit)} unfit and {number(chosen.underdetermined)} ambiguous"
    )
    if other is not None:
        yield (
            f"next best: {_named(other)}, which leaves {number(other.unfit)} and {number(other.underdetermined)}; "
            f"its counts would be {_some({tokens for tokens in other.tokens if tokens is not None})}"
        )


def _named(explained: Explained) -> str:
    return f"{explained.name} of {safe(readable(explained.kernel.symbol))}, launch {explained.occurrence}"


def _some(counts: Iterable[int]) -> str:
    found = sorted(counts)
    return ", ".join(map(str, found[:6])) + (", …" if len(found) > 6 else "")


def _passes_table(passes: Sequence[Pass]) -> Any:
    """Consecutive passes of equal tokens, launches and variant share a line; graphs have a column if there are any."""
    graphs = any(map(_in_graphs, passes))
    column = [" in graphs"] if graphs else []
    rows = table("passes", " tokens", " launches", *column, " variant", "blocks", " ms to launch")
    alike = groupby(passes, key=lambda each: (each.tokens, each.variant, len(each.launches), _in_graphs(each)))
    runs, more = shown([(key, list(run)) for key, run in alike], "row")
    for (_, _, launches, replayed), same in runs:
        first, last = same[0], same[-1]
        block = first.block
        rows.add_row(
            str(first.index) if first is last else f"{first.index} … {last.index}",
            "?" if first.tokens is None else number(first.tokens),
            number(launches),
            *([number(replayed)] if graphs else []),
            str(first.variant),
            "no part repeats" if block is None else f"{block.count} × {counted(block.period, 'launch')}",
            f"{sum(each.duration for each in same) / len(same) / 1e6:,.1f}",
        )
    if more:
        rows.add_row(more)
    return rows


def _in_graphs(each: Pass) -> int:
    """How many of a pass's launches are nodes of graphs."""
    return sum(launch.graph is not None for launch in each.launches)


def _by_kernel(sites: Sequence[CallSite]) -> dict[tuple[str, str], list[CallSite]]:
    found: defaultdict[tuple[str, str], list[CallSite]] = defaultdict(list)
    for site in sites:
        found[site.kernel.key].append(site)
    return found


def _kernels_table(process: MinedProcess) -> Any:
    """The kernels that passes launch more than twice; all kernels where none is."""
    rows = table("kernel", "module", " sites", "grid", "numbers")
    found = list(_by_kernel(process.sites).values())
    often = [sites for sites in found if max(site.count for site in sites) > RARE] or found
    shown_ones, more = shown(often, "kernel")
    for sites in shown_ones:
        kernel = sites[0].kernel
        states: Counter[str] = Counter(each.fit.status for site in sites for each in site.numbers)
        numbers = ", ".join(f"{number(states[status])} {word}" for status, word in STATUS.items() if states[status])
        module = (kernel.module or "?")[:8]
        rows.add_row(safe(short(kernel.symbol)), module, number(len(sites)), safe(_grid(sites)), numbers)
    if more:
        rows.add_row(more)
    if len(often) < len(found):
        rows.add_row(f"and {counted(len(found) - len(often), 'kernel')} launched once or twice in a pass")
    return rows


def _grid(sites: Sequence[CallSite]) -> str:
    """The grids of a kernel's call sites, ones at the end left out."""
    grids: Counter[str] = Counter()
    for site in sites:
        axes = [_outcome(each) for each in site.numbers if each.name.startswith("grid")]
        while len(axes) > 1 and axes[-1] == "1":
            axes.pop()
        grids[" × ".join(axes)] += 1
    shown = [grid for grid, _ in grids.most_common(OUTCOMES)]
    return " | ".join(shown) + (f" | {len(grids) - OUTCOMES} more" if len(grids) > OUTCOMES else "")


def _outcome(each: FittedNumber) -> str:
    """What a number is, in a word."""
    if each.value is not None:
        return f"{each.value:g}"
    if each.fit.expression is None:
        return "?"
    if each.fit.status == "masked":
        return f"{expressions.show(each.fit.expression)} ({each.fit.why})"
    return expressions.show(each.fit.expression)


def _parameters(process: MinedProcess) -> Iterator[Any]:
    """The parameters of kernels in the shown blocks, or of all where there is no block."""
    wanted: dict[tuple[str, str], None] = {}
    for each, block in shown_blocks(process.passes):
        for launch in each.launches[block.first : block.first + block.period]:
            wanted[launch.kernel.key] = None
    by_kernel = _by_kernel(process.sites)
    kernels, more = shown([sites for key in wanted or by_kernel if (sites := by_kernel.get(key))], "kernel")
    for sites in kernels:
        yield _named_kernel(sites[0].kernel) + f"  {counted(len(sites), 'call site')}"
        yield _indented(_kernel_parameters(sites))
    if more:
        yield more


def _named_kernel(kernel: Kernel) -> str:
    return f"{safe(readable(kernel.symbol))}  {(kernel.module or '?')[:8]}"


def _indented(pairs: Iterable[tuple[str, str]]) -> Any:
    """Lines below a kernel's name: what each is about, and its text, which wraps in its own column."""
    from rich.table import Table

    rows = Table.grid(padding=(0, 2, 0, 0), pad_edge=True)
    rows.add_column(justify="right", min_width=9, no_wrap=True)
    rows.add_column(overflow="fold")
    for about, text in pairs:
        rows.add_row(safe(about), safe(text))
    return rows


def _kernel_parameters(sites: Sequence[CallSite]) -> Iterator[tuple[str, str]]:
    """Each parameter's number, or those of several that are alike, and what it is."""
    kernel = sites[0].kernel
    if kernel.layout is None:
        yield "", "parameters unknown"
        return
    numbers: defaultdict[str, list[FittedNumber]] = defaultdict(list)
    pointers: defaultdict[int, list[PointerUse]] = defaultdict(list)
    for site in sites:
        for each in site.numbers:
            numbers[each.name].append(each)
        for use in site.pointers:
            pointers[use.param].append(use)
    texts = []
    for param, size in enumerate(kernel.layout.sizes):
        if size > WORD:
            offsets = {use.at for use in pointers[param]}
            texts.append(f"struct of {size} bytes" + (f" with {counted(len(offsets), 'address')}" if offsets else ""))
        elif pointers[param]:
            texts.append(_pointer_text(pointers[param]))
        else:
            texts.append(_number_text(numbers[f"param {param}"]))
    for text, group in groupby(enumerate(texts), key=lambda entry: entry[1]):
        params = [param for param, _ in group]
        yield str(params[0]) if len(params) == 1 else f"{params[0]} … {params[-1]}", text


def _pointer_text(uses: Sequence[PointerUse]) -> str:
    """What an address is over all call sites of a kernel."""
    kinds = Counter((use.memory, use.stability, use.copied) for use in uses)
    parts = []
    for (memory, stability, copied), count in kinds.most_common():
        same = [use for use in uses if (use.memory, use.stability, use.copied) == (memory, stability, copied)]
        addresses = len({address for use in same for address in use.addresses if address is not None})
        ranges = len({span for use in same for span in use.ranges})
        words = [
            "" if memory == "device" else f"{memory} ",
            STABILITY[stability],
            f": {counted(addresses, 'address')} in {counted(ranges, 'range')}",
            ", copied into by the host" if copied else "",
            f" ({counted(count, 'site')})" if len(kinds) > 1 else "",
        ]
        parts.append("".join(words))
    return "address  " + "; ".join(parts)


def _number_text(found: Sequence[FittedNumber]) -> str:
    if not found:
        return "never seen"
    outcomes = Counter(_outcome(each) for each in found)
    types = "/".join(sorted({each.type for each in found}))
    parts = [
        value + (f" ({counted(count, 'site')})" if len(outcomes) > 1 else "")
        for value, count in outcomes.most_common(OUTCOMES)
    ]
    more = f"; {len(outcomes) - OUTCOMES} more" if len(outcomes) > OUTCOMES else ""
    return f"{types:<7}  {'; '.join(parts)}{more}"


def _unfit(process: MinedProcess) -> Iterator[Any]:
    """The numbers that did not fit, by kernel, with the most common reasons of each."""
    found: defaultdict[tuple[str, str], defaultdict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    kernels: dict[tuple[str, str], Kernel] = {}
    for site in process.sites:
        for each in site.numbers:
            if each.fit.status == "unfit":
                kernels[site.kernel.key] = site.kernel
                found[site.kernel.key][f"{each.name} ({each.type})"][each.fit.why] += 1
    unfit, more = shown(sorted(found.items()), "kernel")
    for key, numbers in unfit:
        yield _named_kernel(kernels[key])
        yield _indented(line for name, reasons in numbers.items() for line in _reasons(name, reasons))
    if more:
        yield more
    if not found:
        yield "none"
    for left in process.unaligned[:UNALIGNED]:
        times = f"launched {counted(left.count, 'time')} in pass {left.index} and {left.usual} in others"
        yield safe(f"not compared: {short(left.kernel.symbol)}, {times}")
    if (rest := len(process.unaligned) - UNALIGNED) > 0:
        yield f"and {counted(rest, 'kernel')} more that a pass does not launch as often as the others"


def _reasons(name: str, reasons: Counter[str]) -> Iterator[tuple[str, str]]:
    """Why a number of a kernel's sites follows no expression: the most common reasons, and a count of others."""
    shown = reasons.most_common(OUTCOMES)
    for why, count in shown:
        yield f"  {name}", f"{counted(count, 'site')}: {why}"
    if rest := reasons.total() - sum(count for _, count in shown):
        yield "", f"and {counted(rest, 'site')} with other values"
