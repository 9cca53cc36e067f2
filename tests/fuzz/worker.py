"""Runs inputs in a separate process, so that a crash, an endless loop or a memory hog is seen and named."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NoReturn

import kern
from fuzz.target import Contradiction, Target, input_of
from kern.manifest.errors import KernError

KERN: Final = str(Path(kern.__file__).parent)
WAIT: Final = 60.0
"""Seconds without an answer after which a process hangs: it may sleep, which takes no processor time."""
ADDRESSES: Final = 2**30
"""Address space beyond a target's memory: libraries reserve more than they touch."""
TRACED: Final = 8
"""One input in so many is traced for the lines of kern that it reaches: tracing takes several times as long."""
SHOWN: Final = 6000

Line = tuple[str, int]


@dataclass(frozen=True)
class Batch:
    """The inputs `start` to `stop` of a run. With `seen`, what reaches a line that is not in it is noted."""

    target: Target
    corpus: Sequence[bytes]
    seed: int
    start: int
    stop: int
    seen: frozenset[Line] | None = None


@dataclass(frozen=True)
class Result:
    """How an input ended. `kind` groups findings that have one cause; None where it was accepted or refused."""

    index: int
    outcome: str
    kind: str | None = None
    details: str = ""
    lines: frozenset[Line] = field(default_factory=frozenset)


class Worker:
    """A process that runs a batch, and whose answers are read as they come. It ends at its first finding."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.next = batch.start
        self.failed = False
        self._folder = Path(tempfile.mkdtemp(prefix="kern-fuzz-"))
        self.connection, theirs = multiprocessing.Pipe(duplex=False)
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=_serve, args=(batch, theirs, self._folder), daemon=True)
        self._process.start()
        self._heard = time.monotonic()
        theirs.close()

    @property
    def done(self) -> bool:
        """Whether no more answers will come."""
        return self.failed or self.next == self.batch.stop

    def answer(self) -> Result | None:
        """The next result, None where there is none yet."""
        if self.connection.poll():
            result = self._received()
        elif time.monotonic() - self._heard > WAIT:
            self._process.kill()
            result = self._died(f"hang: no answer within {WAIT:.0f} s")
        else:
            return None
        self._heard = time.monotonic()
        self.next = result.index + 1
        self.failed = result.kind is not None
        return result

    def close(self) -> None:
        """End the process and remove its folder."""
        self._process.kill()
        self._process.join()
        self.connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _received(self) -> Result:
        try:
            result: Result = self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            return self._died(_cause(self._process.exitcode or 0, self.batch.target))
        return result

    def _died(self, cause: str) -> Result:
        """The input that was running when the process ended; what it wrote to stderr holds the stack."""
        errors = self._folder / "stderr"
        written = errors.read_text(errors="replace") if errors.exists() else ""
        inside = re.findall(rf'File "{re.escape(KERN)}/([^"]*)", line \d+ in (\w+)', written)
        where = f" in {inside[0][0]}, {inside[0][1]}" if inside else ""
        return Result(self.next, "died", cause + where, written[-SHOWN:])


def outcome_of(target: Target, data: bytes, folder: Path) -> tuple[str, str | None, str]:
    """Outcome, kind and details of one input, run in this process."""
    try:
        return target.run(data, folder), None, ""
    except KernError as error:
        if not error.message or error.exit_code not in (1, 2):
            return "nameless", f"nameless: {type(error).__name__}", f"{error!r}"
        return f"refused: {error.code}", None, ""
    except Contradiction as error:
        return "contradicted", f"contradiction: {str(error).partition(':')[0]}", str(error)
    except BaseException as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(KERN)]
        where = f"{Path(frames[-1].filename).relative_to(KERN)}:{frames[-1].lineno}" if frames else "outside kern"
        trace = "".join(traceback.format_exception(error))
        return "raised", f"{type(error).__name__} at {where}", trace[:1000] + "\n…\n" + trace[-SHOWN:]


def _cause(exitcode: int, target: Target) -> str:
    if exitcode == -signal.SIGPROF:
        return f"hang: more than {target.seconds:g} s of processor time"
    if exitcode < 0:
        return f"killed by {signal.Signals(-exitcode).name}"
    return f"ended the process with status {exitcode}"


def _serve(batch: Batch, connection: Connection, folder: Path) -> NoReturn:
    """The process: one input after another, under its own limits."""
    target = batch.target
    _limit(target, folder)
    inputs = folder / "input"
    seen = set(batch.seen or ())
    base = _peak()
    for index in range(batch.start, batch.stop):
        data = input_of(target, batch.corpus, batch.seed, index)
        inputs.mkdir()
        lines: set[Line] = set()
        traced = batch.seen is not None and index % TRACED == 0
        signal.setitimer(signal.ITIMER_PROF, target.seconds * (5 if traced else 1))
        if traced:
            sys.settrace(_tracer(lines, seen))
        try:
            outcome, kind, details = outcome_of(target, data, inputs)
        finally:
            sys.settrace(None)
            signal.setitimer(signal.ITIMER_PROF, 0)
        if kind is None and _peak() - base > target.memory:
            kind, details = f"memory: more than {target.memory >> 20} MiB", f"{(_peak() - base) >> 20} MiB, {outcome}"
        shutil.rmtree(inputs)
        connection.send(Result(index, outcome, kind, details, frozenset(lines - seen)))
        seen |= lines
        if kind is not None:
            break
    connection.close()
    os._exit(0)


def _limit(target: Target, folder: Path) -> None:
    """No output, no core, no more memory or processor time than the target may take."""
    with open(folder / "stderr", "wb") as errors:
        os.dup2(errors.fileno(), 2)
    with open(os.devnull, "r+b") as nowhere:
        os.dup2(nowhere.fileno(), 0)
        os.dup2(nowhere.fileno(), 1)
    faulthandler.enable(file=2)
    faulthandler.register(signal.SIGPROF, file=2, chain=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    most = size + target.memory + ADDRESSES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def _peak() -> int:
    """The most bytes that this process has had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _tracer(lines: set[Line], seen: set[Line]) -> Any:
    """Notes the lines of kern that run, in functions of which some line has not been seen yet."""
    wanted: dict[CodeType, bool] = {}

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        lines.add((frame.f_code.co_filename, frame.f_lineno))
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if code not in wanted:
            inside = code.co_filename.startswith(KERN)
            numbers = {number for _, _, number in code.co_lines()} - {None, code.co_firstlineno}
            wanted[code] = inside and any((code.co_filename, number) not in seen for number in numbers)
        return line if wanted[code] else None

    return call
