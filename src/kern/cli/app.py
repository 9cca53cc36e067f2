"""The commands of `kern` and their options. Each imports what it needs when it runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="kern",
    help="Verify, inspect and run models that are shipped as a manifest, kernels and weights.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Target = Annotated[
    str | None,
    typer.Option("--target", metavar="TARGET", help="What must run it: `host`, `sm_90`, `sm_90a`, `x86-64-v3`, …"),
]


def _version(wanted: bool) -> None:
    if wanted:
        from kern import __version__

        print(f"kern {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Verify, inspect and run models that are shipped as a manifest, kernels and weights."""


@app.command()
def verify(
    path: Annotated[Path, typer.Argument(help="An artifact folder (rules 1-10) or a manifest (1-9).")],
    target: Target = None,
    json: Json = False,
) -> None:
    """Check a manifest as a compiler checks a program, and show every fault.

    Example: `kern verify smollm2/`
    """
    from kern.cli import diagnostics
    from kern.runtime.verification import verify

    report = verify(path, target)
    if json:
        print(diagnostics.as_json(report))
    elif report.ok:
        print(f"{path}: ok")
    else:
        diagnostics.show(report)
    raise typer.Exit(0 if report.ok else 1)


@app.command()
def explain(
    code: Annotated[str | None, typer.Argument(help="A diagnostic's code; without one, all are listed.")] = None,
) -> None:
    """Say what a diagnostic means, with a failing and a mended example.

    Example: `kern explain K0701`
    """
    from kern.cli import explain as codes

    if code is None:
        print(codes.overview())
        return
    text = codes.explanation(codes.find(code))
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


@app.command()
def schema() -> None:
    """Print the manifest's JSON Schema, for editors.

    Example: `kern schema > manifest.schema.json`
    """
    from json import dumps

    from kern.manifest.schema import json_schema

    print(dumps(json_schema(), indent=1))
