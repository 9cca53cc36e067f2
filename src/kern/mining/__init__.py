"""Reading and analysing a recording of another program's launches: passes, call sites, pointers and expressions."""

from kern.mining.events import Copy, Fill, Kernel, Launch, Pointer
from kern.mining.mine import Mined, MinedProcess, mine
from kern.mining.passes import Pass
from kern.mining.recording import Recording, read_recording, read_recordings

__all__ = [
    "Copy",
    "Fill",
    "Kernel",
    "Launch",
    "Mined",
    "MinedProcess",
    "Pass",
    "Pointer",
    "Recording",
    "mine",
    "read_recording",
    "read_recordings",
]
