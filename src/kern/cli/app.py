"""The command line: every command under its name."""

from __future__ import annotations

from typing import Annotated

import typer

from kern.cli.commands.building import build
from kern.cli.commands.machine import capture, doctor, mine
from kern.cli.commands.manifests import explain, inspect, schema, verify
from kern.cli.commands.running import bench, call, chat, run, score

app = typer.Typer(
    name="kern",
    help="Verify, inspect and run models that are shipped as a manifest, kernels and weights.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from kern import __version__

        print(f"kern {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", metavar="", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Verify, inspect and run models that are shipped as a manifest, kernels and weights."""


app.command()(verify)
app.command()(explain)
app.command()(schema)
app.command()(build)
app.command()(inspect)
app.command()(run)
app.command()(chat)
app.command()(score)
app.command()(bench)
app.command()(call)
app.command(context_settings={"allow_interspersed_args": False})(capture)
app.command()(mine)
app.command()(doctor)
