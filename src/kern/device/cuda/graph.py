"""Launch lists captured into a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cuda.bindings import driver

from kern.device.base import Stream
from kern.device.cuda.context import Context
from kern.device.cuda.launch import CudaPrepared, run
from kern.device.cuda.stream import CudaStream, own_stream


class CudaGraph:
    """An instantiated graph."""

    def __init__(self, context: Context, handle: Any, title: str, launches: int) -> None:
        self._context = context
        self._handle = handle
        self._title = title
        self._launches = launches

    def launch(self, stream: Stream) -> None:
        """Replay on `stream`. Does nothing after `free`. Raises LaunchError or CudaError."""
        if self._handle is not None:
            context, own = self._context, own_stream(stream, self._context)
            context.launched(own.number, self._title, self._launches)
            with context:
                context.checked(driver.cuGraphLaunch(self._handle, own.handle), "cuGraphLaunch", self._title)

    def free(self) -> None:
        """Destroy the graph; a replay in progress completes. A second call does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None and self._context.usable:
            with self._context:
                self._context.checked(driver.cuGraphExecDestroy(handle), "cuGraphExecDestroy", self._title)


def capture(context: Context, prepared: Sequence[CudaPrepared]) -> CudaGraph:
    """Record lists, in order; nothing runs. Other threads are not disturbed meanwhile.

    Raises LaunchError for a launch that the driver refuses, CudaError.
    """
    title = "; ".join(dict.fromkeys(each.title for each in prepared))
    stream = CudaStream(context)
    try:
        with context:
            recorded = _record(context, prepared, stream)
            try:
                instantiated = driver.cuGraphInstantiate(recorded, 0)
                handle = context.checked(instantiated, "cuGraphInstantiate", title)
                return CudaGraph(context, handle, title, sum(map(len, prepared)))
            finally:
                driver.cuGraphDestroy(recorded)
    finally:
        stream.close()


def _record(context: Context, prepared: Sequence[CudaPrepared], stream: CudaStream) -> Any:
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    context.checked(driver.cuStreamBeginCapture(stream.handle, mode), "cuStreamBeginCapture")
    try:
        for each in prepared:
            run(context, each, stream)
    except BaseException:
        _, unfinished = driver.cuStreamEndCapture(stream.handle)
        if unfinished is not None and int(unfinished):
            driver.cuGraphDestroy(unfinished)
        raise
    return context.checked(driver.cuStreamEndCapture(stream.handle), "cuStreamEndCapture")
