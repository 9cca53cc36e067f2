"""Kernels' names for people: the readable part of a mangled C++ symbol.

The C++ runtime's own demangler is not used: with substitutions, a symbol of 300 bytes can expand
to gigabytes.

>>> readable("_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfEEEEvT1_")
'at::native::reduce_kernel<512, 1, …>'
>>> short("_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfEEEEvT1_")
'reduce_kernel<512, 1, …>'
"""

from __future__ import annotations

import re
from typing import Final

_BUILTIN: Final = {
    "v": "void", "b": "bool", "c": "char", "a": "i8", "h": "u8", "s": "i16", "t": "u16", "i": "int", "j": "unsigned",
    "l": "long", "m": "unsigned long", "x": "long long", "y": "unsigned long long", "f": "float", "d": "double",
}  # fmt: skip
_DIGITS: Final = frozenset("0123456789")
_MOST_PARTS: Final = 100
"""Limit on the parts of a name that are read, which may be nested."""
_ANONYMOUS: Final = "_GLOBAL__N_"


WIDTH: Final = 44


def short(symbol: str) -> str:
    """A readable name without namespaces, cut to fit a table."""
    whole = re.sub(r"\b\w++::", "", readable(symbol))
    return whole if len(whole) <= WIDTH else whole[: WIDTH - 1] + "…"


def readable(symbol: str) -> str:
    """A symbol's name with its simple template arguments: `at::native::reduce_kernel<512, 1>`; others are left out.

    Follows the Itanium C++ ABI's mangling as far as names go. What does not parse is returned unchanged.
    """
    if not symbol.startswith("_Z"):
        return symbol
    try:
        return _Mangled(symbol[2:]).name()
    except (_Unknown, IndexError):
        return symbol


class _Unknown(Exception):
    """A part of the grammar that is not read here."""


class _Mangled:
    """A mangled name, and how far it is read."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0

    def name(self) -> str:
        """A possibly nested name with its template arguments."""
        nested = self._take("N")
        parts: list[str] = []
        while True:
            if self._text[self._at] in _DIGITS:
                identifier = self._identifier()
                if not identifier.startswith(_ANONYMOUS):
                    parts.append(identifier)
            elif self._text.startswith("St", self._at):
                self._at += 2
                parts.append("std")
            else:
                break
            if not nested and parts[-1:] != ["std"]:
                break
        if not parts:
            raise _Unknown
        joined = "::".join(parts)
        if self._at < len(self._text) and self._take("I"):
            joined += f"<{', '.join(self._arguments())}>"
        if nested:
            self._take("E")
        return joined

    def _take(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) * found
        return found

    def _identifier(self) -> str:
        start = self._at
        while self._text[self._at] in _DIGITS:
            self._at += 1
        length = int(self._text[start : self._at][:6])
        self._at += length
        if not length or self._at > len(self._text):
            raise _Unknown
        return self._text[self._at - length : self._at]

    def _arguments(self) -> list[str]:
        """Template arguments up to the closing E, or to the first that is not read."""
        found = []
        while not self._take("E"):
            try:
                found.append(self._argument())
            except (_Unknown, IndexError):
                return [*found, "…"]
        return found

    def _argument(self) -> str:
        self._depth += 1
        if self._depth > _MOST_PARTS:
            raise _Unknown
        if self._take("L"):
            return self._literal()
        if self._take("S"):
            while self._text[self._at] != "_":
                self._at += 1
            self._at += 1
            return "…"
        if self._text[self._at] in _BUILTIN:
            self._at += 1
            return _BUILTIN[self._text[self._at - 1]]
        return self.name()

    def _literal(self) -> str:
        kind = self._argument()
        start = self._at
        self._at = self._text.index("E", start) + 1 if "E" in self._text[start:] else len(self._text)
        value = self._text[start : self._at - 1]
        return {"0": "false", "1": "true"}.get(value, value) if kind == "bool" else value.replace("n", "-")
