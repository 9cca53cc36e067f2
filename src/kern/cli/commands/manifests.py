"""`kern verify`, `explain`, `schema` and `inspect`: what is in a manifest, and whether it is valid."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from kern.cli.options import Artifact, Capacity, Json, Target, Weights
from kern.cli.terminal import printable


def verify(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="An artifact folder (rules 1-10) or a manifest (1-9).")],
    target: Target = None,
    weights: Weights = None,
    json: Json = False,
) -> None:
    """Check a manifest as strictly as a compiler checks source code, and show every error.

    Example: `kern verify build/smollm2`
    """
    from kern.verification.verify import verify

    report = verify(path, target, weights=weights)
    if (target is not None or weights is not None) and os.path.isfile(path):
        print("note: a bare manifest has no files, so neither --target nor --weights is applied", file=sys.stderr)
    if report.ok and not json:
        print(f"{printable(str(path))}: ok")
        return
    from kern.cli import diagnostics
    from kern.cli.outputs import json_text

    if json:
        print(json_text(diagnostics.as_dict(report), indent=1))
    else:
        diagnostics.show(report)
    raise typer.Exit(0 if report.ok else 1)


def explain(
    code: Annotated[
        str | None,
        typer.Argument(metavar="CODE", help="The code of a diagnostic or an error; without one, list all."),
    ] = None,
) -> None:
    """Say what a code means; for a diagnostic, with an example that fails and its fixed form.

    Example: `kern explain K0701`
    """
    from kern.cli import explain as codes

    if code is None:
        print(codes.overview())
        return
    text = codes.explained(code)
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


def schema() -> None:
    """Print the manifest's JSON Schema, for editors.

    Example: `kern schema > manifest.schema.json`
    """
    from kern.cli.outputs import json_text
    from kern.manifest.schema import json_schema

    print(json_text(json_schema(), indent=1))


def inspect(path: Artifact, capacity: Capacity = 4096, weights: Weights = None, json: Json = False) -> None:
    """Show what an artifact declares, the file behind each step, and the memory it takes.

    Example: `kern inspect build/smollm2`
    """
    from kern.cli.inspect import inspect

    inspect(path, capacity, weights, json)
