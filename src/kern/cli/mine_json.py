"""The analysis of a record as JSON, names stable: docs/mining.md tells them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kern.manifest.expressions import Expr
from kern.mining import Mined, MinedProcess, Pass
from kern.mining.abi import KernelAbi, survey
from kern.mining.mine import CallSite, FittedNumber
from kern.mining.symbols import readable
from kern.mining.token_count import Explained, Reference

Json = dict[str, Any]
_Numbers = dict[tuple[str, str], int]
"""A kernel's number in the list of kernels, by its key."""


def as_json(dump: Path, mined: Mined) -> Json:
    """All that was found."""
    return {"dump": str(dump), "processes": [_process(process) for process in mined.processes]}


def _process(process: MinedProcess) -> Json:
    recording = process.recording
    launches = recording.launches
    kernels = survey(launches)
    numbers = {abi.kernel.key: number for number, abi in enumerate(kernels)}
    return {
        "folder": str(recording.folder),
        "pid": recording.process.pid,
        "command": list(recording.process.command),
        "launches": len(launches),
        "copies": sum(event.what == "copy" for event in recording.events),
        "fills": sum(event.what == "fill" for event in recording.events),
        "modules": len(recording.modules),
        "captured": recording.captured,
        "graph_launches": recording.graph_launches,
        "lost": [{"what": loss.what, "why": loss.why} for loss in recording.losses],
        "torn": recording.torn,
        "ended": recording.ended,
        "reference": None if process.reference is None else _reference(process.reference, numbers),
        "passes": [_pass(each) for each in process.passes],
        "kernels": [_kernel(abi) for abi in kernels],
        "sites": [_site(site, numbers) for site in process.sites],
        "unaligned": [
            {"kernel": numbers[left.kernel.key], "pass": left.index, "count": left.count, "usual": left.usual}
            for left in process.unaligned
        ],
    }


def _reference(reference: Reference, numbers: _Numbers) -> Json:
    runner_up = reference.runner_up
    return {
        **_explained(reference.chosen, numbers),
        "runner_up": None if runner_up is None else _explained(runner_up, numbers),
    }


def _explained(explained: Explained, numbers: _Numbers) -> Json:
    return {
        "kernel": numbers[explained.kernel.key],
        "occurrence": explained.occurrence,
        "name": explained.name,
        "numbers": explained.numbers,
        "unfit": explained.unfit,
        "underdetermined": explained.underdetermined,
    }


def _pass(each: Pass) -> Json:
    block = each.block
    return {
        "tokens": each.tokens,
        "variant": each.variant,
        "lines": [each.events[0].line, each.events[-1].line],
        "launches": len(each.launches),
        "copies": len(each.copies),
        "duration_ns": each.duration,
        "block": None if block is None else {"first": block.first, "period": block.period, "count": block.count},
    }


def _kernel(abi: KernelAbi) -> Json:
    kernel = abi.kernel
    attributes, layout = kernel.attributes, kernel.layout
    return {
        "symbol": kernel.symbol,
        "name": readable(kernel.symbol),
        "module": kernel.module,
        "candidates": list(kernel.candidates),
        "params": None if layout is None else [list(p) for p in zip(layout.offsets, layout.sizes, strict=True)],
        "registers": attributes.registers,
        "static_shared": attributes.static_shared,
        "local": attributes.local,
        "launches": abi.launches,
        "traits": list(abi.traits),
        "replayable": abi.replayable,
        "reasons": list(abi.reasons),
    }


def _site(site: CallSite, numbers: _Numbers) -> Json:
    return {
        "kernel": numbers[site.kernel.key],
        "occurrence": site.occurrence,
        "count": site.count,
        "passes": list(site.passes),
        "numbers": [_number(number) for number in site.numbers],
        "pointers": [
            {
                "param": use.param,
                "at": use.at,
                "memory": use.memory,
                "stability": use.stability,
                "addresses": [use.address] if use.address is not None else list(use.addresses),
                "ranges": sorted(map(list, use.ranges)),
                "copied": use.copied,
            }
            for use in site.pointers
        ],
    }


def _number(number: FittedNumber) -> Json:
    fit = number.fit
    found: Json = {"name": number.name, "type": number.type, "status": fit.status}
    if number.value is not None:
        found["value"] = number.value
    elif fit.expression is not None:
        found["expression"] = _expression(fit.expression)
    if fit.status != "fit":
        found |= {"why": fit.why, "samples": [list(sample) for sample in fit.samples]}
    return found


def _expression(expression: Expr) -> Any:
    return expression if isinstance(expression, int) else expression.model_dump()
