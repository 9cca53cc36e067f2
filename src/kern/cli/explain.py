"""What a diagnostic means: the codes of every rule, with a failing and a fixed example."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

import kern.artifact.codes
import kern.manifest.codes
import kern.verifier.verify
from kern.manifest.diagnostics import Code, Example
from kern.manifest.errors import KernError

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


class UnknownCode(KernError):
    """No diagnostic has that code."""

    code = "unknown-code"
    exit_code = 2


def all_codes() -> Mapping[str, Code]:
    """Every code, in order."""
    found = {**kern.manifest.codes.CODES, **kern.verifier.verify.CODES, **kern.artifact.codes.CODES}
    return dict(sorted(found.items()))


def find(name: str) -> Code:
    """The code called `name`, in any case. Raises UnknownCode."""
    codes = all_codes()
    if name.upper() in codes:
        return codes[name.upper()]
    close = difflib.get_close_matches(name.upper(), codes, n=1)
    help = f"did you mean {close[0]}? " if close else ""
    raise UnknownCode(f"no diagnostic has the code {name!r}", help + "`kern explain` lists them all")


def rule(code: Code) -> int:
    """The number of the rule that a code belongs to."""
    return int(code.id[1:3])


def overview() -> str:
    """Every code with its title, by rule."""
    lines: list[str] = []
    for number, title in RULES.items():
        lines += ["", f"{number}. {title}"]
        lines += [f"  {code.id}  {code.title}" for code in all_codes().values() if rule(code) == number]
    return "\n".join(lines[1:])


def explanation(code: Code) -> str:
    """A code's meaning as Markdown, as it stands in the diagnostics index."""
    lines = [f"### {code.id}: {code.title}", "", code.explanation, ""]
    if isinstance(code.example, Example):
        lines += [*_edits("Refused", code.example.failing), *_edits("Accepted", code.example.fixed)]
    else:
        lines += [f"Refused: {code.example.failing}", "", f"Accepted: {code.example.fixed}", ""]
    return "\n".join(lines)


def told(code: Code) -> str:
    """A code's meaning, and where the manifest is that its example edits."""
    where = "\nThese are edits of kern's example manifest: docs/diagnostics.md in kern's source has it in full.\n"
    return explanation(code) + (where if isinstance(code.example, Example) else "")


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
