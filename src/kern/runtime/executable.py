"""A loaded manifest: write inputs, run programs, read outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self

import numpy as np

from kern.artifact.resolve import Resolution
from kern.artifact.types import StepKey
from kern.device.base import Device, Graph, Prepared, Stream
from kern.manifest.arrays import array_bytes
from kern.manifest.types import Buffer
from kern.runtime.arrays import Array, PendingArray
from kern.runtime.conversion import ArrayLike, as_array
from kern.runtime.errors import Closed, NotReadable, NotWritable, unknown
from kern.runtime.graph import Call, ExecutableGraph, pairs
from kern.runtime.launch_cache import LaunchCache
from kern.runtime.lowering import LinkedStep
from kern.runtime.memory.address_table import Bases, addresses, block, resident, states
from kern.runtime.memory.planner import MemoryPlan
from kern.runtime.shapes import BufferShapes, first_row
from kern.runtime.stepping import Hook, LaunchTime, launch_times, stepped_launches
from kern.runtime.symbols import Values
from kern.verifier import VerifiedManifest


class Executable:
    """A manifest in a device's memory, ready to run. Made by `kern.load`; a context manager.

    All its work is ordered on its own stream. It must not be used from several threads at once. Several executables,
    on one device or on several, are independent of each other.
    """

    def __init__(
        self,
        path: Path,
        verified: VerifiedManifest,
        resolution: Resolution,
        plan: MemoryPlan,
        bases: Bases,
        linked: Mapping[StepKey, LinkedStep],
        device: Device,
        stream: Stream,
        resources: ExitStack,
        *,
        capacity: int,
        sequences: int,
        check: bool,
    ) -> None:
        """`resources` releases everything that was allocated for it, at `close`."""
        self.path: Final = path
        """The artifact folder."""
        self.manifest: Final = verified.manifest
        """The manifest, verified."""
        self.resolution: Final = resolution
        """The files behind the manifest's steps and weights."""
        self.device: Final = device
        """The device it runs on."""
        self.memory_plan: Final = plan
        """The location of each array, and how many bytes it takes."""
        self.capacity: Final = capacity
        """The most tokens of one sequence, as requested at load. It may be more than `pool_tokens`."""
        self.sequences: Final = sequences
        """How many blocks a state with `bytes` has, as requested at load: for sequences 0 … `sequences` - 1."""
        self.pool_tokens: Final = plan.sizes.pool_tokens
        """Tokens that each state with `bytes_per_token` has room for, in total; 0 without such a state.

        A caller may use the granules 0 … `pool_tokens` / granule - 1 of each, for any sequence.
        """
        self._stream = stream
        self._resources = resources
        self._check = check
        self._closed = False
        self._addresses = addresses(verified.manifest, plan, bases)
        self._launches = LaunchCache(verified, self._addresses, linked, device, stream)
        self._shapes = BufferShapes(verified)
        self._graphs: set[ExecutableGraph] = set()
        self._buffers = resident(plan, bases)
        self._states = states(plan, bases)

    def write(self, name: str, array: ArrayLike, values: Values | None = None, *, at: int | None = None) -> None:
        """Copy `array` to input `name`. It must have the input's shape at `values`, or at the symbols' upper bounds.

        `values` are those of the call that will read it; the bytes after the array do not change. With `at`, the array
        is written to as many rows (of the first dimension) as it has, from row `at` on, and no other row changes. Its
        dtype is the buffer's; `kern.runtime.conversion.as_array` says what else is accepted. It may be strided, and
        can be reused when the call returns. Raises UnknownName, NotWritable, WrongDType, WrongValue, WrongShape, a
        SymbolError or Closed.
        """
        self._require_open()
        buffer = self._buffer(name)
        if buffer.class_ != "input":
            raise NotWritable(f"buffer {name!r} has class {buffer.class_}", "the host writes inputs only")
        whole = self._shapes.at(name, values)
        given = as_array(name, array, buffer.dtype)
        row = first_row(name, given.shape, whole, at, at_bounds=values is None)
        address = self._buffers[name] + (array_bytes(buffer.dtype, (row, *whole[1:])) if row else 0)
        dense = np.ascontiguousarray(given).reshape(-1).view(np.uint8)
        self.device.write(address, dense.data, self._stream)

    def run(self, program: str, values: Values) -> None:
        """Start running `program` at `values`, launch by launch; returns without waiting, unless loaded with `check`.

        `values` has a value for every symbol that the program uses. Raises UnknownName, SymbolMissing, SymbolUnknown,
        SymbolOutOfBounds, LaunchError or Closed.
        """
        self._require_open()
        if self._check:
            self._run_each(self._launches.single_launches(program, values))
        else:
            self.device.launch(self._launches.prepared(program, values), self._stream)

    def step(self, program: str, values: Values, *, before: Hook | None = None, after: Hook | None = None) -> None:
        """Run `program` at `values` launch by launch, and wait for each.

        `before` and `after` are called before and after each launch, with the launch and the memory that it may
        access, which they can read. What they raise ends the program there. Raises as `run` does; a LaunchError names
        the launch that failed.
        """
        self._require_open()
        named = self._launches.checked(program, values)
        launches = self._launches.single_launches(program, named)
        stepped = stepped_launches(
            self.manifest, program, MappingProxyType(named), [launch.labels[0] for launch in launches],
            self._addresses[program], self.memory_plan.sizes.states, self._read_memory,
        )  # fmt: skip
        for prepared, launch in zip(launches, stepped, strict=True):
            if before is not None:
                before(launch)
            self._run_each([prepared])
            if after is not None:
                after(launch)

    def profile(self, program: str, values: Values) -> tuple[LaunchTime, ...]:
        """Run `program` at `values` as `run` does, and wait; return the time of each launch, in order.

        Measuring prevents launches from overlapping: their sum is more than the time of a run. Raises as `run` does.
        """
        self._require_open()
        prepared = self._launches.prepared(program, values)
        seconds = self.device.profile(prepared, self._stream)
        return launch_times(self.manifest, program, prepared.labels, seconds)

    def graph(self, calls: Sequence[Call]) -> ExecutableGraph:
        """Record calls, each a program and its values, as one graph that runs them in order.

        Nothing runs here. The values are part of the recording. If the executable was loaded with `check`, the graph
        runs launch by launch, and waits for each. Raises as `run` does, and WrongCalls.
        """
        self._require_open()
        calls = pairs(calls)
        if self._check:
            launches = [each for program, values in calls for each in self._launches.single_launches(program, values)]
            graph = ExecutableGraph(calls, partial(self._run_each, launches), self._graphs.discard)
        else:
            prepared = [self._launches.prepared(program, values) for program, values in calls]
            graph = self._captured(calls, self.device.capture(prepared))
        self._graphs.add(graph)
        return graph

    def read(self, name: str, values: Values | None = None) -> Array:
        """The array in output or carry `name`, after everything submitted before has run.

        It is a copy that must not be written to. Its shape is the buffer's at `values`, or at the symbols' upper
        bounds. If sharing is off, any buffer can be read. Raises UnknownName, NotReadable, a SymbolError,
        LaunchError or Closed.
        """
        return self.read_async(name, values).wait()

    def read_async(self, name: str, values: Values | None = None) -> PendingArray:
        """As `read`, but returns at once: the values will be those at this point of the stream."""
        self._require_open()
        buffer = self._buffer(name)
        if self.memory_plan.sharing and buffer.class_ not in ("output", "carry"):
            raise NotReadable(
                f"buffer {name!r} has class {buffer.class_}",
                "the host reads outputs and carries; load with sharing=False to read every buffer",
            )
        shape = self._shapes.at(name, values)
        size = array_bytes(buffer.dtype, shape)
        return PendingArray(self.device.read(self._buffers[name], size, self._stream), buffer.dtype, shape)

    def read_state(self, state: str) -> Array:
        """The bytes of a state, u8 [bytes], after everything submitted before has run.

        It is a copy that must not be written to. Raises UnknownName, LaunchError or Closed.
        """
        address, size = self._state(state)
        return PendingArray(self.device.read(address, size, self._stream), "u8", (size,)).wait()

    def clear(self, state: str, *, sequence: int | None = None) -> None:
        """Fill a state, or the block of one sequence of a state with `bytes`, with zeros, as it was at load.

        It is ordered with what is run and read. Raises UnknownName, WrongSequence or Closed.
        """
        address, size = self._state(state)
        if sequence is not None:
            offset, size = block(self.manifest, state, sequence, self.sequences)
            address += offset
        self.device.zero(address, size, self._stream)

    def synchronize(self) -> None:
        """Wait until everything submitted has run. Raises LaunchError if any of it failed, or Closed."""
        self._require_open()
        self._stream.synchronize()

    def close(self) -> None:
        """Wait for what is running and release everything. A second call does nothing."""
        if not self._closed:
            self._closed = True
            with self._resources as resources:
                for graph in self._graphs:
                    resources.callback(graph.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _require_open(self) -> None:
        if self._closed:
            raise Closed("the executable is closed", "load it again")

    def _run_each(self, launches: Sequence[Prepared]) -> None:
        self._require_open()
        self._stream.synchronize()  # an error of what was given before is not one of these launches'
        for launch in launches:
            self.device.launch(launch, self._stream)
            self._stream.synchronize()

    def _read_memory(self, address: int, size: int) -> bytes:
        self._require_open()
        return self.device.read(address, size, self._stream).wait()

    def _captured(self, calls: Sequence[Call], recorded: Graph) -> ExecutableGraph:
        def release(graph: ExecutableGraph) -> None:
            self._graphs.discard(graph)
            recorded.free()

        return ExecutableGraph(calls, partial(recorded.launch, self._stream), release)

    def _buffer(self, name: str) -> Buffer:
        if not isinstance(name, str) or name not in self.manifest.buffers:
            raise unknown("buffer", name, self.manifest.buffers)
        return self.manifest.buffers[name]

    def _state(self, name: str) -> tuple[int, int]:
        """Its address and size in bytes."""
        self._require_open()
        if not isinstance(name, str) or name not in self._states:
            raise unknown("state", name, self._states)
        return self._states[name], self.memory_plan.sizes.states[name]
