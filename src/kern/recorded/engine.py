"""What a recorded engine is, as tables: its kernels' signatures, the parts of a pass, bindings and assumptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kern.checkpoints.config import TransformerConfig
from kern.manifest.expressions import Expr
from kern.manifest.types import Scratch
from kern.models.unfused_layers import BlockLayout
from kern.recorded.assumptions import STRUCTURE, Assumption
from kern.recorded.compare import Check
from kern.recorded.passes import Call, Found, ParsedPass, Part
from kern.recorded.signatures import Signature

Bindings: TypeAlias = Mapping[str, str]
"""The kernel's parameter → the entry's that is given to it, or scratch, as `Entry.bind` takes them."""
Grid: TypeAlias = tuple[Expr, Expr | None, Expr | None]
"""A grid over the symbol `tokens`; an extent that is None is as it was recorded."""


def _no_scratch(call: Call, config: TransformerConfig) -> Mapping[str, Scratch]:
    return {}


@dataclass(frozen=True, slots=True)
class Source:
    """One step of `entry`, shown by the launches of `parts`.

    A parameter without a binding is a constant of the implementation: a scalar has the recorded value, and an address
    is null. `single`: the step is read from passes of one token (True) or of several (False) only; None: from both.
    `scratch` is what the entry needs besides buffers, from a launch of this step.
    """

    entry: str
    parts: tuple[str, ...]
    bindings: Bindings
    grid: Callable[[TransformerConfig], Grid]
    single: bool | None = None
    scratch: Callable[[Call, TransformerConfig], Mapping[str, Scratch]] = field(default=_no_scratch)

    def calls(self, each: ParsedPass) -> list[Call]:
        """The launches of a pass that show it."""
        if self.single not in (None, each.tokens == 1):
            return []
        return [call for part in self.parts for call in each.parts[part]]


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine whose recorded kernels can be used.

    `name` begins the names of its modules' files, `setup` is what to record with. `family` is the model family whose
    layers it runs. `head` is what a pass launches before its layers, `layer` what each layer launches. A layer launches
    the kernel `per_layer` once, and the first launch of a pass has the pass's tokens in its parameter `tokens`.
    `starts` finds the launches that begin a pass. `token_strides` are parameters that may hold anything in a pass of
    one token. `checks` are the engine's own assumptions, each with what is compared for it in every pass.
    """

    name: str
    setup: str
    family: str
    signatures: tuple[Signature, ...]
    head: tuple[Part, ...]
    layer: tuple[Part, ...]
    per_layer: str
    tokens: str
    starts: Callable[[Sequence[Found], TransformerConfig], list[int]]
    sources: tuple[Source, ...]
    token_strides: frozenset[str]
    checks: Mapping[Assumption, tuple[Check, ...]]
    block_layout: Callable[[ParsedPass, TransformerConfig], BlockLayout]

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """All that is assumed of its recordings."""
        return (*STRUCTURE, *self.checks)

    def signature(self, symbol: str) -> Signature | None:
        """The signature of a kernel, None for one that is not used."""
        return next((signature for signature in self.signatures if symbol.startswith(signature.starts)), None)

    def module_file(self, sha256: str) -> str:
        """The name of a recorded module's file in an artifact."""
        return f"{self.name}-{sha256[:16]}.cubin"

    def literals(self, source: Source, call: Call) -> list[str]:
        """The scalars that are constants of the implementation, and that the call shows."""
        hidden = self.token_strides if call.tokens == 1 else frozenset()
        return [
            name
            for name, scalar in call.signature.params
            if scalar is not None and name not in source.bindings and name not in hidden
        ]
