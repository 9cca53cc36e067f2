"""`kern capture`, `mine` and `doctor`: what other programs launch, and what this machine has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kern.cli.options import Json


def capture(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND…", help="The command to record, after `--`.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DUMP", help="The folder to write, new or empty.")],
) -> None:
    """Run a command, and record every kernel that it launches on a GPU.

    Exits with the command's own status.

    Example: `kern capture -o build/dump -- python serve.py`
    """
    from kern.cli.capture import capture

    raise typer.Exit(capture(command, output))


def mine(
    dump: Annotated[Path, typer.Argument(metavar="DUMP", help="What `kern capture` wrote, or one process's folder.")],
    abi: Annotated[
        bool, typer.Option("--abi", metavar="", help="Only show which kernels a manifest could launch.")
    ] = False,
    json: Json = False,
) -> None:
    """Analyse a recording: its passes, their token counts, and what every kernel is given, as expressions.

    Example: `kern mine build/dump`
    """
    from kern.cli.mine import mine_dump

    mine_dump(dump, abi, json)


def doctor(json: Json = False) -> None:
    """Show what this machine has, and what is missing for what.

    Example: `kern doctor`
    """
    from kern.cli.doctor import doctor

    doctor(json)
