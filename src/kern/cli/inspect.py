"""`kern inspect`: what an artifact declares, the files behind it, and the memory it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kern.artifact import Resolution, open_folder
from kern.cli.outputs import json_text
from kern.cli.terminal import binary, printable
from kern.contracts.text import call_limits
from kern.manifest.counts import counted
from kern.manifest.expressions import Expr, show
from kern.manifest.params import layout
from kern.manifest.types import Buffer, Manifest, Program, Step
from kern.runtime.memory.planner import MemoryPlan, plan
from kern.runtime.occupancy import Occupancies, occupancies
from kern.verification.report import InvalidArtifact
from kern.verification.verify_folder import verify_folder


def inspect(path: Path, capacity: int, weights: Path | None, as_json: bool) -> None:
    """Print the sections of an artifact folder, with or without weights. Raises InvalidArtifact."""
    with open_folder(path) as folder:
        found = verify_folder(folder, weights=weights, require_weights=False)
        if found.verified is None or found.resolution is None:
            raise InvalidArtifact(found.report, weights)
        planned = plan(found.verified, capacity=capacity)
        manifest, filled = found.verified.manifest, occupancies(found.verified, found.resolution)
        if as_json:
            print(json_text(_as_json(manifest, found.resolution, planned, filled), indent=1))
        else:
            print(printable_lines(_text(manifest, found.resolution, planned, filled, capacity)))


def printable_lines(lines: list[str]) -> str:
    """Lines that hold names from a file, made safe to show."""
    return "\n".join(printable(line) for line in lines)


def _text(
    manifest: Manifest, resolution: Resolution, planned: MemoryPlan, filled: Occupancies, capacity: int
) -> list[str]:
    lines = [
        f"{manifest.meta.model}  (manifest version {manifest.meta.version})",
        *_section("symbols", {name: f"{symbol.min}…{symbol.max}" for name, symbol in manifest.symbols.items()}),
        *_section("calls", {name: f"up to {count}" for name, count in call_limits(manifest).items()}),
        *_section("states", {name: binary(planned.sizes.states[name]) for name in manifest.states}),
        *_section(_buffers_title(manifest), {name: _buffer_text(buffer) for name, buffer in manifest.buffers.items()}),
        *_section("programs", {name: _program_text(program) for name, program in manifest.programs.items()}),
        "",
        "kernels",
    ]
    uses = Counter(dispatch.kernel for program in manifest.programs.values() for dispatch in program.dispatches)
    for name, kernel in manifest.kernels.items():
        lines.append(f"  {name}  ({', '.join(map(str, kernel.params))})  dispatched {counted(uses[name], 'time')}")
        lines += [f"    {_step_text(name, i, step, resolution, filled)}" for i, step in enumerate(kernel.impl.steps)]
        lines += [
            f"    scratch {n}: {s.dtype} [{', '.join(map(show, s.shape))}]" for n, s in kernel.impl.scratch.items()
        ]
    return [*lines, "", f"memory for one sequence at capacity {capacity}", *_memory_text(planned, resolution)]


def _section(title: str, entries: Mapping[str, str]) -> list[str]:
    """A heading and its entries in two columns; nothing without entries."""
    width = max(map(len, entries), default=0)
    return ["", title, *(f"  {name:<{width}}  {text}" for name, text in entries.items())] if entries else []


def _buffers_title(manifest: Manifest) -> str:
    classes = Counter(buffer.class_ for buffer in manifest.buffers.values())
    return f"buffers  ({', '.join(f'{count} {class_}' for class_, count in classes.items())})"


def _buffer_text(buffer: Buffer) -> str:
    return f"{buffer.class_:<9}  {buffer.dtype:<7}  [{', '.join(map(show, buffer.shape))}]"


def _program_text(program: Program) -> str:
    narrowed = ", ".join(f"{s} {_bound(b.min)}…{_bound(b.max)}" for s, b in program.symbols.items())
    return counted(len(program.dispatches), "dispatch") + (f"  ({narrowed})" if narrowed else "")


def _bound(bound: int | None) -> str:
    return "" if bound is None else str(bound)


def _step_text(kernel: str, index: int, step: Step, resolution: Resolution, filled: Occupancies) -> str:
    if step.operator is not None:
        return f"{step.symbol}  built into the device"
    found = resolution.steps[kernel, index]
    info = found.kernel
    grid = " × ".join(map(show, step.grid))
    text = f"{step.symbol}  grid {grid}  block {' × '.join(map(str, step.block))}  params {layout(step.params)}"
    if info.registers is not None:
        text += f"  {counted(info.registers, 'register')}  {info.static_shared_mem} B static shared"
    if (occupancy := filled.get((kernel, index))) is not None:
        text += f"  occupancy {occupancy.share:.0%} ({counted(occupancy.blocks, 'block')} a multiprocessor)"
    return f"{text}  kernels/{found.module.name} ({found.module.target})"


def _memory_text(planned: MemoryPlan, resolution: Resolution) -> list[str]:
    absent = "  none in the folder" if planned.weights and resolution.weights is None else ""
    space = planned.workspace
    ratio = f" ({space.size / space.lower_bound:.3f} ×)" if space.lower_bound else ""
    return [
        f"  weights             {binary(planned.weights):>12}{absent}",
        f"  states              {binary(planned.states.size):>12}",
        f"  inputs and outputs  {binary(planned.io.size):>12}",
        f"  workspace           {binary(space.size):>12}  planned; {binary(space.unshared)} without sharing, "
        f"lower bound {binary(space.lower_bound)}{ratio}",
    ]


def _as_json(manifest: Manifest, resolution: Resolution, planned: MemoryPlan, filled: Occupancies) -> dict[str, Any]:
    return {
        "model": manifest.meta.model,
        "symbols": {name: {"min": s.min, "max": s.max} for name, s in manifest.symbols.items()},
        "calls": call_limits(manifest),
        "states": dict(planned.sizes.states),
        "buffers": {
            name: {"class": buffer.class_, "dtype": buffer.dtype, "shape": [_extent(e) for e in buffer.shape]}
            for name, buffer in manifest.buffers.items()
        },
        "programs": {name: len(program.dispatches) for name, program in manifest.programs.items()},
        "kernels": {
            name: [_step_json(name, index, step, resolution, filled) for index, step in enumerate(kernel.impl.steps)]
            for name, kernel in manifest.kernels.items()
        },
        "memory": {
            "weights": planned.weights,
            "weights_found": not planned.weights or resolution.weights is not None,
            "states": planned.states.size,
            "io": planned.io.size,
            "workspace": planned.workspace.size,
            "workspace_unshared": planned.workspace.unshared,
            "workspace_lower_bound": planned.workspace.lower_bound,
        },
    }


def _extent(extent: Expr) -> int | str:
    """A constant as a number, anything else as text."""
    return extent if isinstance(extent, int) else show(extent)


def _step_json(kernel: str, index: int, step: Step, resolution: Resolution, filled: Occupancies) -> dict[str, Any]:
    if step.operator is not None:
        return {"symbol": step.symbol, "file": None}
    found = resolution.steps[kernel, index]
    occupancy = filled.get((kernel, index))
    return {
        "symbol": step.symbol,
        "layout": [list(pair) for pair in zip(found.kernel.layout.offsets, found.kernel.layout.sizes, strict=True)],
        "file": found.module.name,
        "target": found.module.target,
        "sha256": found.module.sha256,
        "registers": found.kernel.registers,
        "static_shared_mem": found.kernel.static_shared_mem,
        **({} if occupancy is None else {"occupancy": asdict(occupancy)}),
    }
