"""The repeated block of a pass, as a table: its launches, and which of them are given the same memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from string import ascii_lowercase
from typing import Any

from kern.cli.tables import safe, shown, table
from kern.mining import Launch, Pass
from kern.mining.blocks import Block
from kern.mining.events import WORD
from kern.mining.symbols import short


def shown_blocks(passes: Sequence[Pass]) -> tuple[tuple[Pass, Block], ...]:
    """The blocks to show: that of the most common variant, and that of the pass with the most tokens if it differs.

    None is shown for passes that repeat nothing.
    """
    repeating = [(each, each.block) for each in passes if each.block is not None]
    if not repeating:
        return ()
    commonest = Counter(each.variant for each, _ in repeating).most_common(1)[0][0]
    first = next(shown for shown in repeating if shown[0].variant == commonest)
    largest = max(repeating, key=lambda shown: (shown[0].tokens or 0, len(shown[0].launches)))
    return (first,) if largest[0].variant == commonest else (first, largest)


def block_lines(each: Pass, block: Block) -> Any:
    """The second repetition, as a table. A letter is an address that several launches of the pass are given."""
    rows = table("kernel", "grid", "block", "addresses by parameter (• its own)")
    letters = _letters(each, block)
    start = block.first + block.period
    launches, more = shown(each.launches[start : start + block.period], "launch")
    for launch in launches:
        rows.add_row(
            safe(short(launch.symbol)),
            "×".join(map(str, _trimmed(launch.grid))),
            "×".join(map(str, _trimmed(launch.block))),
            " ".join(_addresses(launch, letters)),
        )
    if more:
        rows.add_row(more)
    return rows


def _trimmed(sides: Sequence[int]) -> Sequence[int]:
    last = max((index for index, side in enumerate(sides) if side != 1), default=0)
    return sides[: last + 1]


def _letters(each: Pass, block: Block) -> dict[int, str]:
    """A name for each address in the second repetition that more than one launch of the pass is given."""
    uses = Counter(address for launch in each.launches for address in {p.address for p in launch.pointers})
    names: dict[int, str] = {}
    start = block.first + block.period
    for launch in each.launches[start : start + block.period]:
        for pointer in launch.pointers:
            if pointer.on_device and uses[pointer.address] > 1 and pointer.address not in names:
                names[pointer.address] = _name(len(names))
    return names


def _name(index: int) -> str:
    round, letter = divmod(index, len(ascii_lowercase))
    return ascii_lowercase[letter] + (str(round) if round else "")


def _addresses(launch: Launch, letters: dict[int, str]) -> Iterator[str]:
    """`0=a 2=•` for parameters that are addresses, `0={a b}` for those that hold several."""
    held: dict[int, list[str]] = {}
    for pointer in launch.pointers:
        if pointer.on_device:
            held.setdefault(pointer.param, []).append(letters.get(pointer.address, "•"))
    for param, names in held.items():
        size = launch.kernel.layout.sizes[param] if launch.kernel.layout else 0
        yield f"{param}={names[0]}" if size == WORD else f"{param}={{{' '.join(dict.fromkeys(names))}}}"
