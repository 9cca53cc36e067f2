"""`kern mine`: analyse a record of launches, and print what it says."""

from __future__ import annotations

from pathlib import Path

from kern.cli.mine_json import as_json
from kern.cli.mine_report import show
from kern.cli.mine_survey import show_survey
from kern.cli.outputs import json_text
from kern.cli.terminal import printable
from kern.mining import mine, read_recordings
from kern.mining.layouts import complete


def mine_dump(dump: Path, abi: bool, as_json_text: bool) -> None:
    """Print the analysis of each process, or with `abi` the survey of parameter layouts."""
    if abi and not as_json_text:
        recordings, unrecorded = read_recordings(dump)
        for recording in recordings:
            show_survey(complete(recording))
    else:
        mined = mine(dump)
        unrecorded = mined.unrecorded
        if as_json_text:
            print(json_text(as_json(dump, mined)))
            return
        for process in mined.processes:
            show(process)
    for folder in unrecorded:
        print(f"{printable(str(folder))}: recording could not start; recorder.log says why")
