"""`kern mine --abi` as tables: how kernels take their parameters, and which a manifest could launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from kern.cli.tables import printer, safe, shown, table
from kern.manifest.counts import counted, number
from kern.mining import Recording
from kern.mining.abi import TRAITS, KernelAbi, survey
from kern.mining.symbols import short


def show_survey(recording: Recording) -> None:
    """Print how a process's kernels take their parameters."""
    print = printer()
    for line in head(recording):
        print(line)
    kernels = survey(recording.launches)
    print(_survey_table(kernels))
    print("")
    print(_survey_totals(kernels))


def head(recording: Recording) -> Iterator[str]:
    """What was recorded, in a few lines."""
    launches = recording.launches
    known = sum(launch.kernel.module is not None for launch in launches)
    share = f"{known / len(launches):.2%} with their module" if launches else "none"
    kernels = len({launch.kernel.key for launch in launches})
    copies = sum(event.what == "copy" for event in recording.events)
    fills = sum(event.what == "fill" for event in recording.events)
    yield f"[bold]{safe(str(recording.folder))}[/]  {safe(' '.join(recording.process.command))}"
    yield (
        f"{counted(len(launches), 'launch')} of {counted(kernels, 'kernel')} ({share}), "
        f"{counted(len(recording.modules), 'module')}, {counted(copies, 'copy')}, "
        f"{counted(fills, 'fill')}"
    )
    if recording.graph_launches or recording.captured:
        yield (
            f"{counted(recording.graph_launches, 'launch')} of graphs, replaced by their nodes; "
            f"{counted(recording.captured, 'launch')} only captured, left out"
        )
    losses, more = shown([*Counter((loss.what, loss.why) for loss in recording.losses).items()], "reason")
    for (what, why), count in losses:
        yield f"not recorded, {counted(count, 'time')}: {safe(what)}: {safe(why)}"
    if more:
        yield more
    if recording.torn:
        yield "the last line of the recording was cut off, and is left out"
    if not recording.ended:
        yield "the process did not exit regularly, so its last launches may be missing"


def _survey_table(kernels: Sequence[KernelAbi]) -> Any:
    rows = table(" launches", "kernel", "parameters", "under a manifest")
    first, more = shown(kernels, "kernel")
    for abi in first:
        reasons = safe("no: " + "; ".join(abi.reasons))
        name = safe(short(abi.kernel.symbol))
        rows.add_row(number(abi.launches), name, ", ".join(abi.traits), "yes" if abi.replayable else reasons)
    if more:
        rows.add_row("", more)
    return rows


def _survey_totals(kernels: Sequence[KernelAbi]) -> Any:
    rows = table("parameters", " kernels", " launches", " share")
    launches = sum(abi.launches for abi in kernels) or 1
    groups: dict[str, list[KernelAbi]] = {trait: [abi for abi in kernels if trait in abi.traits] for trait in TRAITS}
    groups["launchable under a manifest"] = [abi for abi in kernels if abi.replayable]
    for name, group in groups.items():
        count = sum(abi.launches for abi in group)
        rows.add_row(name, number(len(group)), number(count), f"{count / launches:.1%}")
    return rows
