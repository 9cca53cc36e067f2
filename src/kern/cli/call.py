"""`kern call`: one program of any artifact, its inputs and outputs in .npy files."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import TypeVar

from kern.cli.errors import UsageError
from kern.cli.loading import LoadOptions, loaded
from kern.cli.npy import as_values, read_array, write_array
from kern.cli.outputs import check_path, json_text, write_files
from kern.cli.terminal import printable
from kern.manifest.counts import counted
from kern.manifest.effects import buffers_used
from kern.manifest.errors import variant
from kern.manifest.types import Manifest
from kern.runtime.arrays import Array
from kern.runtime.errors import unknown
from kern.runtime.executable import Executable
from kern.runtime.shapes import WrongShape
from kern.runtime.symbols import SymbolMissing

Value = TypeVar("Value")


WrongCall = variant(UsageError, "wrong-call", "A program is called with other inputs, outputs or symbols than it has.")


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Options of the command line: each of `sets`, `inputs` and `outputs` is NAME=…."""

    program: str
    sets: Sequence[str]
    inputs: Sequence[str]
    outputs: Sequence[str]
    repeat: int
    timed: bool


@dataclass(frozen=True, slots=True)
class LaunchMean:
    """The mean time of one launch, measured separately."""

    label: str
    kernel: str
    step: int
    mean_us: float


@dataclass(frozen=True, slots=True)
class Times:
    """Times of whole runs, each waited for, and of each launch over as many further runs."""

    runs: int
    median_us: float
    min_us: float
    mean_us_per_launch: float | None
    launches: tuple[LaunchMean, ...]


def call(path: Path, options: LoadOptions, given: CallOptions, *, as_json: bool) -> None:
    """Load, write the inputs, run, write the outputs, print."""
    values = _named("--set", given.sets, _integer)
    inputs = _named("--in", given.inputs, Path)
    outputs = _named("--out", given.outputs, Path)
    _check_paths(outputs)
    arrays = {name: read_array(file) for name, file in inputs.items()}
    with loaded(path, options) as (executable, _):
        manifest = executable.manifest
        _check(manifest, given.program, inputs, outputs)
        try:
            for name, array in arrays.items():
                executable.write(name, as_values(name, inputs[name], array, manifest.buffers[name].dtype), values)
            seconds = [_run(executable, given.program, values) for _ in range(given.repeat)]
            results = {name: executable.read(name, values) for name in outputs}
        except SymbolMissing as error:
            raise WrongCall(error.message, "give each symbol's value, as --set NAME=N") from error
        except WrongShape as error:
            raise WrongShape(error.message, "give an array of that shape, or other symbol values with --set") from error
        times = _times(executable, given.program, values, seconds) if given.timed else None
    dtypes = {name: manifest.buffers[name].dtype for name in outputs}
    write_files(
        "an output",
        {file: partial(write_array, array=results[name], dtype=dtypes[name]) for name, file in outputs.items()},
    )
    if as_json:
        shown = {
            name: {"dtype": dtypes[name], "shape": list(array.shape), "file": str(outputs[name])}
            for name, array in results.items()
        }
        print(
            json_text({"program": given.program, "values": values, "outputs": shown, "time": times and asdict(times)})
        )
    else:
        _show(given.program, values, outputs, results, manifest, times)
        if not outputs and not given.timed:
            options.note(f"program {given.program!r} ran; --out NAME=FILE writes an output, --time times it")


def _named(option: str, texts: Sequence[str], read: Callable[[str], Value]) -> dict[str, Value]:
    """NAME=… by name. Raises WrongCall."""
    found: dict[str, Value] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise WrongCall(
                f"{option} {text!r} is not NAME={'N' if option == '--set' else 'FILE'}", f"as {_AS[option]}"
            )
        if name in found:
            raise WrongCall(f"{option} gives {name!r} twice", "give it once")
        found[name] = read(value)
    return found


_AS = {"--set": "--set n=4", "--in": "--in x=x.npy", "--out": "--out y=y.npy"}


def _integer(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,20}", text):
        raise WrongCall(f"a symbol is set to {text!r}, not an integer", f"as {_AS['--set']}")
    return int(text)


def _check_paths(outputs: Mapping[str, Path]) -> None:
    """Raises WrongCall if two outputs have the same file, Unwritable for a file that cannot be written."""
    homes: dict[Path, str] = {}
    for name, file in outputs.items():
        check_path("an output", file)
        other = homes.setdefault(file.resolve(), name)
        if other != name:
            raise WrongCall(f"outputs {other!r} and {name!r} would both be written to {file}", "give different files")


def _check(manifest: Manifest, program: str, inputs: Mapping[str, Path], outputs: Mapping[str, Path]) -> None:
    """Raises UnknownName, and WrongCall unless the program reads exactly these inputs and writes these outputs."""
    if program not in manifest.programs:
        raise unknown("program", program, manifest.programs)
    read, written = buffers_used(manifest, program)
    wanted = [name for name in manifest.buffers if name in read and manifest.buffers[name].class_ == "input"]
    for name in inputs:
        if name not in wanted:
            raise WrongCall(f"program {program!r} has no input {name!r}", f"its inputs: {', '.join(wanted) or 'none'}")
    missing = [name for name in wanted if name not in inputs]
    if missing:
        raise WrongCall(
            f"program {program!r} has no value for its inputs {', '.join(missing)}"
            if len(missing) > 1
            else f"program {program!r} has no value for its input {missing[0]}",
            f"give --in {missing[0]}=FILE{' …' * (len(missing) > 1)}; `kern inspect` lists dtypes and shapes",
        )
    made = [n for n in manifest.buffers if n in written and manifest.buffers[n].class_ in ("output", "carry")]
    for name in outputs:
        if name not in made:
            raise WrongCall(f"program {program!r} has no output {name!r}", f"its outputs: {', '.join(made) or 'none'}")


def _run(executable: Executable, program: str, values: Mapping[str, int]) -> float:
    """Run, wait, and return the seconds."""
    begun = time.perf_counter()
    executable.run(program, values)
    executable.synchronize()
    return time.perf_counter() - begun


def _times(executable: Executable, program: str, values: Mapping[str, int], seconds: Sequence[float]) -> Times:
    runs = [executable.profile(program, values) for _ in seconds]
    launches = tuple(
        LaunchMean(same[0].label, same[0].kernel, same[0].step, fmean(each.seconds for each in same) * 1e6)
        for same in zip(*runs, strict=True)
    )
    mean = fmean(launch.mean_us for launch in launches) if launches else None
    return Times(len(seconds), median(seconds) * 1e6, min(seconds) * 1e6, mean, launches)


def _show(
    program: str,
    values: Mapping[str, int],
    outputs: Mapping[str, Path],
    results: Mapping[str, Array],
    manifest: Manifest,
    times: Times | None,
) -> None:
    for name, array in results.items():
        print(printable(f"{name}: {manifest.buffers[name].dtype} {list(array.shape)} in {outputs[name]}"))
    if times is not None:
        at = "".join(f" {name}={value}" for name, value in values.items())
        launches = counted(len(times.launches), "launch")
        each = "" if times.mean_us_per_launch is None else f", {times.mean_us_per_launch:.1f} µs each on average"
        runs = f"median {times.median_us:.1f} µs, min {times.min_us:.1f} µs of {counted(times.runs, 'run')}"
        print(printable(f"{program}{at}: {runs}; {launches}{each}"))
