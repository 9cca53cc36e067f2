"""A recorded run: programs at fixed symbol values, replayed as one launch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kern.manifest.errors import variant
from kern.runtime.errors import CallError, Closed
from kern.runtime.symbols import Values

Call = tuple[str, Values]
"""A program and its symbol values."""


WrongCalls = variant(CallError, "wrong-graph-calls", "A graph records a list of calls, and this is not one.")


def pairs(calls: Iterable[Call]) -> tuple[Call, ...]:
    """The calls, each a program and its values. Raises WrongCalls."""
    try:
        return tuple((program, values) for program, values in calls)
    except (TypeError, ValueError):
        raise WrongCalls(
            f"a graph records a list of calls, but {calls!r:.60} was given", 'give pairs such as [("step", {"n": 4})]'
        ) from None


class ExecutableGraph:
    """Made by `Executable.graph`. Runs its calls, in order, at the values they were recorded with."""

    def __init__(
        self, calls: Sequence[Call], replay: Callable[[], None], release: Callable[[ExecutableGraph], None]
    ) -> None:
        self.calls = tuple((program, dict(values)) for program, values in calls)
        self._replay: Callable[[], None] | None = replay
        self._release = release

    def launch(self) -> None:
        """Start running; returns without waiting. Raises LaunchError, or Closed after `close`."""
        if self._replay is None:
            raise Closed("the graph is closed", "record it again, from an open executable")
        self._replay()

    def close(self) -> None:
        """Discard the recording. A second call does nothing; closing the executable closes its graphs."""
        if self._replay is not None:
            self._replay = None
            self._release(self)
