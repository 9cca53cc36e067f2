"""What a code means: the diagnostics of every rule, with a refused and an accepted example, and every other error."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import suppress

import kern
import kern.artifact.codes
import kern.manifest.codes
import kern.verifier.verify
from kern.cli.errors import UsageError
from kern.manifest.diagnostics import Code, Example
from kern.manifest.errors import KernError, variant

RULES = {
    1: "Reading",
    2: "Header and symbols",
    3: "States",
    4: "Buffers",
    5: "Kernel steps",
    6: "Step against interface",
    7: "Dispatches",
    8: "Data flow",
    9: "Unused",
    10: "Artifacts",
}

UnknownCode = variant(UsageError, "unknown-code", "No diagnostic or error has this code.")


def all_codes() -> Mapping[str, Code]:
    """The code of every diagnostic, in order."""
    found = {**kern.manifest.codes.CODES, **kern.verifier.verify.CODES, **kern.artifact.codes.CODES}
    return dict(sorted(found.items()))


def all_errors() -> list[type[KernError]]:
    """Every error that has a code, in the order of their packages. Imports all of kern to find them."""
    for module in pkgutil.walk_packages(kern.__path__, "kern."):
        if module.name != "kern.__main__":
            with suppress(ImportError):  # what needs an extra that is not installed defines none
                importlib.import_module(module.name)
    found = [error for error in _below(KernError) if "code" in vars(error) and error.__module__.startswith("kern.")]
    return sorted(found, key=lambda error: (area(error), error.code))


def area(error: type[KernError]) -> str:
    """The package of kern that raises it: `artifact`."""
    return error.__module__.split(".")[1]


def _below(family: type[KernError]) -> Iterator[type[KernError]]:
    for error in family.__subclasses__():
        yield error
        yield from _below(error)


def explained(name: str) -> str:
    """What the code `name`, in any case, means, as Markdown. Raises UnknownCode."""
    codes = all_codes()
    if (code := codes.get(name.upper())) is not None:
        where = "\nThese are edits of kern's example manifest: docs/diagnostics.md in kern's source has it in full.\n"
        return explanation(code) + (where if isinstance(code.example, Example) else "")
    errors = {error.code: error for error in all_errors()}
    if (error := errors.get(name.lower())) is not None:
        return f"### {error.code}\n\n{error.__doc__}\n\nExit status: {error.exit_code}\n"
    close = difflib.get_close_matches(name.upper(), codes, n=1) or difflib.get_close_matches(name.lower(), errors, n=1)
    help = f"did you mean {close[0]}? " if close else ""
    raise UnknownCode(f"unknown code {name!r}", help + "`kern explain` lists all of them")


def rule(code: Code) -> int:
    """The number of the rule that a code belongs to."""
    return int(code.id[1:3])


def overview() -> str:
    """Every code with its title: diagnostics by rule, then errors."""
    lines: list[str] = []
    for number, title in RULES.items():
        lines += ["", f"{number}. {title}"]
        lines += [f"  {code.id}  {code.title}" for code in all_codes().values() if rule(code) == number]
    errors = all_errors()
    width = max(len(error.code) for error in errors)
    return "\n".join([*lines[1:], "", "Other errors", *(f"  {e.code:{width}}  {e.__doc__}" for e in errors)])


def explanation(code: Code) -> str:
    """A diagnostic's meaning as Markdown, as docs/diagnostics.md has it."""
    lines = [f"### {code.id}: {code.title}", "", code.explanation, ""]
    if isinstance(code.example, Example):
        lines += [*_edits("Refused", code.example.failing), *_edits("Accepted", code.example.fixed)]
    else:
        lines += [f"Refused: {code.example.failing}", "", f"Accepted: {code.example.fixed}", ""]
    return "\n".join(lines)


def _edits(title: str, edits: Mapping[str, str]) -> Iterator[str]:
    if not edits:
        yield from (f"{title}: the same manifest without it.", "")
        return
    yield from (f"{title}:", "", "```json")
    for pointer, text in edits.items():
        shown = text if len(text) <= 400 else f"{text[:60]}…{text[-20:]}"
        yield f"// at {pointer or 'the top'}"
        yield shown.encode("utf-8", "backslashreplace").decode()
    yield from ("```", "")
