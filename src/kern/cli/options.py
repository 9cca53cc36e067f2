"""Options and arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def _json(ctx: typer.Context, wanted: bool) -> bool:
    """Note that errors are wanted as JSON too."""
    if wanted and ctx.obj is not None:
        ctx.obj.add("json")
    return wanted


Json = Annotated[
    bool,
    typer.Option("--json", metavar="", help="Print one JSON object on stdout.", callback=_json, is_eager=True),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="TARGET",
        help="What the kernels must run on: `host` for this machine, `sm_90`, `x86-64-v3`, …",
    ),
]
Artifact = Annotated[Path, typer.Argument(metavar="DIR", help="An artifact folder.")]
Device = Annotated[
    str,
    typer.Option(
        "--device", metavar="DEVICE", help="`host`, `cuda`, `cuda:N`, or `auto`: what the kernels were built for."
    ),
]
Capacity = Annotated[
    int, typer.Option(min=1, max=2**31, metavar="N", help="Tokens per sequence that the states can hold.")
]
Chunk = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Maximum number of prompt tokens per call: 512, or the folder's limit if lower.",
    ),
]
Weights = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A weights file to use instead of the folder's own.")
]
Stop = Annotated[
    list[str] | None,
    typer.Option("--stop", metavar="TEXT", help="End before this text; can be repeated."),
]
Spec = Annotated[
    bool,
    typer.Option(
        "--spec",
        metavar="",
        help="Speculative decoding with the folder's draft model: the same text, faster.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", metavar="", help="Print only the text, and errors on stderr.")]
Eager = Annotated[bool, typer.Option("--eager", metavar="", help="Launch kernels one by one, without graphs.")]
Tune = Annotated[
    bool,
    typer.Option(
        "--tune", metavar="", help="Choose the algorithms of a GPU's built-in operators again, and save them."
    ),
]
