"""`kern mine`: the analysis of a recording, as JSON with stable names (docs/mining.md lists them) or as a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kern.cli.mine_report import show
from kern.cli.mine_survey import show_survey
from kern.cli.outputs import json_text
from kern.cli.terminal import printable
from kern.mining import Mined, MinedProcess, Pass, mine, read_recordings
from kern.mining.abi import KernelAbi, survey
from kern.mining.layouts import complete
from kern.mining.mine import CallSite, FittedNumber
from kern.mining.symbols import readable
from kern.mining.token_count import Explained

Json = dict[str, Any]
_Numbers = dict[tuple[str, str], int]
"""A kernel's number in the list of kernels, by its key."""


def mine_dump(dump: Path, abi: bool, as_json: bool) -> None:
    """Print the analysis of each process, or with `abi` the survey of parameter layouts."""
    if abi and not as_json:
        recordings, unrecorded = read_recordings(dump)
        for recording in recordings:
            show_survey(complete(recording))
    else:
        mined = mine(dump)
        unrecorded = mined.unrecorded
        if as_json:
            print(json_text(_as_json(dump, mined)))
            return
        for process in mined.processes:
            show(process)
    for folder in unrecorded:
        print(f"{printable(str(folder))}: recording could not start; recorder.log says why")


def _as_json(dump: Path, mined: Mined) -> Json:
    return {"dump": str(dump), "processes": [_process(process) for process in mined.processes]}


def _fields(value: object, names: str) -> Json:
    return {name: getattr(value, name) for name in names.split()}


def _process(process: MinedProcess) -> Json:
    recording, reference = process.recording, process.reference
    kernels = survey(recording.launches)
    numbers = {abi.kernel.key: number for number, abi in enumerate(kernels)}
    return {
        "folder": str(recording.folder),
        **_fields(recording.process, "pid command"),
        "launches": len(recording.launches),
        "copies": sum(event.what == "copy" for event in recording.events),
        "fills": sum(event.what == "fill" for event in recording.events),
        "modules": len(recording.modules),
        **_fields(recording, "captured graph_launches"),
        "lost": [_fields(loss, "what why") for loss in recording.losses],
        **_fields(recording, "torn ended"),
        "reference": reference
        and _explained(reference.chosen, numbers)
        | {"runner_up": reference.runner_up and _explained(reference.runner_up, numbers)},
        "passes": [_pass(each) for each in process.passes],
        "kernels": [_kernel(abi) for abi in kernels],
        "sites": [_site(site, numbers) for site in process.sites],
        "unaligned": [
            {"kernel": numbers[left.kernel.key], "pass": left.index, **_fields(left, "count usual")}
            for left in process.unaligned
        ],
    }


def _explained(explained: Explained, numbers: _Numbers) -> Json:
    kernel = numbers[explained.kernel.key]
    return {"kernel": kernel, **_fields(explained, "occurrence name numbers unfit underdetermined")}


def _pass(each: Pass) -> Json:
    return {
        **_fields(each, "tokens variant"),
        "lines": [each.events[0].line, each.events[-1].line],
        "launches": len(each.launches),
        "copies": len(each.copies),
        "duration_ns": each.duration,
        "block": each.block and _fields(each.block, "first period count"),
    }


def _kernel(abi: KernelAbi) -> Json:
    kernel = abi.kernel
    return {
        "symbol": kernel.symbol,
        "name": readable(kernel.symbol),
        **_fields(kernel, "module candidates"),
        "params": kernel.layout and list(zip(kernel.layout.offsets, kernel.layout.sizes, strict=True)),
        **_fields(kernel.attributes, "registers static_shared local"),
        **_fields(abi, "launches traits replayable reasons"),
    }


def _site(site: CallSite, numbers: _Numbers) -> Json:
    return {
        "kernel": numbers[site.kernel.key],
        **_fields(site, "occurrence count passes"),
        "numbers": [_number(number) for number in site.numbers],
        "pointers": [
            {
                **_fields(use, "param at memory stability"),
                "addresses": use.addresses if use.address is None else [use.address],
                "ranges": sorted(use.ranges),
                "copied": use.copied,
            }
            for use in site.pointers
        ],
    }


def _number(number: FittedNumber) -> Json:
    fit, expression = number.fit, number.fit.expression
    found: Json = {**_fields(number, "name type"), "status": fit.status}
    if number.value is not None:
        found["value"] = number.value
    elif expression is not None:
        found["expression"] = expression if isinstance(expression, int) else expression.model_dump()
    return found if fit.status == "fit" else found | _fields(fit, "why samples")
