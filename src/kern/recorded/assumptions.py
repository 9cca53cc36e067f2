"""What is assumed of every recorded engine's kernels, and the error for a recording that shows otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kern.manifest.errors import KernError


@dataclass(frozen=True, slots=True)
class Assumption:
    """Something that must hold in every pass of the recording, or the manifest is wrong. `id` is stable."""

    id: str
    says: str


class Refuted(KernError, code="assumption-refuted"):
    """The recording shows that an assumption does not hold; `assumption` says which."""

    def __init__(self, assumption: Assumption, evidence: str, expected: object) -> None:
        """`evidence` says what the recording shows and where, `expected` what it would have to show."""
        wanted = "" if expected is None else f"; expected: {expected}"
        super().__init__(
            f"the recording refutes `{assumption.id}`: {evidence}{wanted}", f"`{assumption.id}` says: {assumption.says}"
        )
        self.assumption = assumption


BACKEND: Final = Assumption("backend", "all kernels that are used were launched")
TOKENS: Final = Assumption("tokens", "passes of one token and of several were recorded")
LAYERS: Final = Assumption("layers", "attention is launched once for each layer of the config")
ORDER: Final = Assumption("order", "a pass launches the parts of each layer in order, one by one and on one stream")
PARAMETERS: Final = Assumption("parameters", "each kernel takes the parameters that its source declares")
INSTANCE: Final = Assumption(
    "instance",
    "each part is one kernel of one known module, launched without attributes, in all passes of its kind",
)
GRIDS: Final = Assumption("grids", "a grid follows from tokens and heads")
LITERALS: Final = Assumption(
    "literals", "a scalar that is written into the manifest is the same in all layers and passes"
)
LAUNCHES: Final = Assumption(
    "launches",
    "shared memory, blocks and the other extents of a grid are the same in all layers and passes that they are read "
    "from",
)
STRUCTURE: Final = (BACKEND, TOKENS, LAYERS, ORDER, PARAMETERS, INSTANCE, GRIDS, LITERALS, LAUNCHES)
"""The assumptions that hold for every engine; each has others too."""
