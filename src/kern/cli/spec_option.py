"""The option `--spec`: alone it means the device; `host` or `device` may follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal

import typer
from typer.core import TyperCommand

Spec = Annotated[
    Literal["device", "host"] | None,
    typer.Option(
        "--spec",
        metavar="[host|device]",
        help="Guess tokens ahead with the folder's draft model; the text stays the model's own. Alone, it means "
        "`device`, which counts the right guesses itself; with `host` the host counts them, slowly, as a check.",
    ),
]
_OPTION: Final = "--spec"
_DRIVERS: Final = ("device", "host")


class SpecCommand(TyperCommand):
    """A command whose `--spec` may stand alone."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, a `--spec` that no driver follows being given the device.

        A word after it for which the command has no other use was meant as a driver. Raises BadParameter.
        """
        alone = list(_alone(args, self._valued()))
        completed = [f"{_OPTION}=device" if place in alone else arg for place, arg in enumerate(args)]
        _, extra, _ = self.make_parser(ctx).parse_args(list(completed))
        for word in (args[place + 1] for place in alone if place + 1 < len(args)):
            if word in extra:
                raise typer.BadParameter(f"{word!r} is not one of 'device', 'host'.", param_hint=f"'{_OPTION}'")
        return super().parse_args(ctx, completed)

    def _valued(self) -> frozenset[str]:
        """Options that take the next word for their value, whatever it looks like."""
        options = (param for param in self.params if param.param_type_name == "option")
        return frozenset(
            name for option in options if not getattr(option, "is_flag", False) for name in option.opts
        ) - {_OPTION}


def _alone(args: Sequence[str], valued: frozenset[str]) -> Iterator[int]:
    """The places of a `--spec` that no driver follows; the value of an option is none, nor is what follows `--`."""
    place = 0
    while place < len(args) and args[place] != "--":
        if args[place] == _OPTION and not any(word in _DRIVERS for word in args[place + 1 : place + 2]):
            yield place
        place += 2 if args[place] in valued else 1
