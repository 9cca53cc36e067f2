"""The recording of one process: its folder, what ran, and its modules by their hash."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from kern.files.regular_file import open_regular
from kern.mining.errors import BadRecord, ModuleMissing, RecordMissing, RecordTooLarge
from kern.mining.events import Event, Kernel, Launch
from kern.mining.limits import MAX_LINE, Budget, Excess
from kern.mining.parser import LineError, Reader
from kern.mining.schema import LostRecord, ProcessRecord

LAUNCHES: Final = "launches.jsonl"
MODULES: Final = "modules"
LOG: Final = "recorder.log"
MAX_MODULE: Final = 2**28
"""Bytes of a module: what a folder's kernel file may have, too."""
_SHOWN_LOG: Final = 500
"""How much of a log is shown where recording could not start."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What one process did. `events` are in the order in which their calls returned, without what was only captured.

    `modules` are the hashes of the loaded modules and their bytes, `captured` counts launches recorded into graphs,
    `graph_launches` the launches of graphs. `torn`: the last line was cut off. `ended`: the process exited regularly.
    """

    folder: Path
    process: ProcessRecord
    kernels: tuple[Kernel, ...]
    modules: Mapping[str, int]
    events: tuple[Event, ...]
    losses: tuple[LostRecord, ...]
    captured: int
    graph_launches: int
    torn: bool
    ended: bool

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches that ran, in order."""
        return tuple(event for event in self.events if isinstance(event, Launch))

    def module(self, sha256: str) -> bytes:
        """The bytes of a recorded module. Raises ModuleMissing if its file is absent or has another hash."""
        path = self.folder / MODULES / f"{sha256}.cubin"
        try:
            with open(open_regular(path), "rb") as file:
                image = file.read(MAX_MODULE + 1)
        except OSError as error:
            raise ModuleMissing(f"{path}: {error.strerror or error}", "record again") from None
        if hashlib.sha256(image).hexdigest() != sha256:
            raise ModuleMissing(f"{path}: its bytes are not those that were recorded", "record again")
        return image


def read_recording(folder: Path, budget: Budget | None = None) -> Recording:
    """Read a process's folder; what it holds is taken from `budget`, which the processes of one recording share.

    Raises RecordMissing where there is no readable file, BadRecord, with file and line, for anything but the
    recorder's format, and RecordTooLarge. A last line that was cut off is left out, and `torn` is set. Of a file
    that grows meanwhile, what it held when it was opened is read.
    """
    path = folder / LAUNCHES
    reader = Reader(budget or Budget())
    number = 0
    try:
        with open(open_regular(path), "rb") as file:
            for number, line in enumerate(_lines(file), 1):
                reader.read(number, line)
    except OSError as error:
        raise RecordMissing(f"{path}: {error.strerror or error}", "name a folder that `kern capture` wrote") from None
    except LineError as error:
        raise BadRecord(f"{path}:{number}: {error}", "record again, or use the kern that recorded it") from None
    except Excess as excess:
        raise RecordTooLarge(
            f"{path}:{number}: the recording has more than {excess}, and no more is read", "record a shorter run"
        ) from None
    if reader.process is None:
        raise BadRecord(f"{path}: it has no whole line", "record again")
    return Recording(
        folder,
        reader.process,
        tuple(reader.kernels.values()),
        reader.modules,
        tuple(reader.events),
        tuple(reader.losses),
        reader.captured,
        reader.graph_launches,
        reader.torn,
        reader.ended,
    )


def read_recordings(dump: Path) -> tuple[tuple[Recording, ...], tuple[Path, ...]]:
    """The recordings of all processes, and the folders of those in which recording could not start.

    Raises RecordMissing where no process was recorded, BadRecord, and RecordTooLarge for all of them together.
    """
    folders = process_folders(dump)
    recorded = [folder for folder in folders if os.path.lexists(folder / LAUNCHES)]
    if not recorded:
        raise RecordMissing(f"{dump}: recording could not start: {_log_text(folders[0] / LOG)}", "record again")
    budget = Budget()
    recordings = tuple(read_recording(folder, budget) for folder in recorded)
    return recordings, tuple(folder for folder in folders if folder not in recorded)


def process_folders(dump: Path) -> tuple[Path, ...]:
    """The folders of a recording's processes, or the one process's folder that was named.

    Those in which recording could not start have no launches. Raises RecordMissing where there is none.
    """
    help = "name a folder that `kern capture` wrote"
    try:
        names = sorted(os.listdir(dump))
    except OSError as error:
        raise RecordMissing(f"{dump}: {error.strerror or error}", help) from None
    if LAUNCHES in names:
        return (dump,)
    folders = tuple(dump / name for name in names if name.startswith("pid-") and (dump / name).is_dir())
    if not folders:
        raise RecordMissing(f"{dump}: no process was recorded in it", help)
    return folders


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines that a file holds now, those longer than MAX_LINE in parts."""
    left = os.fstat(file.fileno()).st_size
    while line := file.readline(min(left, MAX_LINE)):
        left -= len(line)
        yield line


def _log_text(log: Path) -> str:
    """The beginning of a recorder's log."""
    try:
        with open(open_regular(log), "rb") as file:
            text = file.read(_SHOWN_LOG).decode(errors="replace").strip()
    except OSError as error:
        return f"{log}: {error.strerror or error}"
    return text or "no reason given"
