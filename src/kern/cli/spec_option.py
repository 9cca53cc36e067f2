"""The option `--spec`: alone it means the device; `host` or `device` may follow."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

Spec = Annotated[
    Literal["device", "host"] | None,
    typer.Option(
        "--spec",
        metavar="[host|device]",
        help="Speculate with the folder's draft model: rounds follow one another on the device, which is what "
        "`--spec` alone means, or the host judges each.",
    ),
]


class SpecCommand(TyperCommand):
    """A command whose `--spec` may stand alone."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, a `--spec` that no driver follows being given the device."""
        return super().parse_args(ctx, _completed(args))


def _completed(args: list[str]) -> list[str]:
    return [
        "--spec=device" if arg == "--spec" and args[place + 1 : place + 2] not in (["device"], ["host"]) else arg
        for place, arg in enumerate(args)
    ]
