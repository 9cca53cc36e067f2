"""What this provider takes for granted of the recorded kernels, claim by claim, and the error that refutes one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kern.manifest.errors import KernError


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that must hold in every pass of the recording, or the wiring is wrong. `id` is stable."""

    id: str
    says: str


class Refuted(KernError, code="assumption-refuted"):
    """The recording shows that a claim does not hold; `claim` says which."""

    def __init__(self, claim: Claim, evidence: str, expected: object) -> None:
        """`evidence` says what the recording shows and where, `expected` what would have had to stand there."""
        wanted = "" if expected is None else f"; expected: {expected}"
        super().__init__(
            f"the recording refutes `{claim.id}`: {evidence}{wanted}",
            f"`{claim.id}` says: {claim.says}. Record the model that is built, with vLLM 0.24, its attention backend "
            "TRITON_ATTN, no graphs and a batch of 1",
        )
        self.claim = claim


BACKEND: Final = Claim("backend", "all seven kernels that are wired were launched")
TOKENS: Final = Claim("tokens", "passes of one token and of several were recorded")
LAYERS: Final = Claim("layers", "attention is launched once for each layer of the config")
ORDER: Final = Claim("order", "a pass launches, one by one and on one stream, a norm, then for each layer two head "
    "norms, rotation, cache write, attention (of one token: and its reduction), add and norm, activation, add and "
    "norm")  # fmt: skip
PARAMETERS: Final = Claim("parameters", "each kernel takes the parameters that its source declares")
INSTANCE: Final = Claim("instance", "each part is one kernel of one known module, launched without attributes, in all "
    "passes of its kind")  # fmt: skip
DTYPES: Final = Claim("dtypes", "activations, weights and the rotation's table are bf16, halves are rotated, and the "
    "gate stands before what it gates")  # fmt: skip
GRIDS: Final = Claim("grids", "a grid follows from tokens and heads")
SIZES: Final = Claim("sizes", "sizes and strides are those of the config, rows dense")
CONSTANTS: Final = Claim("constants", "attention is scaled by head_dim^-0.5 and nothing else, over one sequence")
LITERALS: Final = Claim("literals", "a scalar that is written into the manifest is the same in all layers and passes")
LAUNCHES: Final = Claim("launches", "shared memory, blocks and the further extents of a grid are the same in all "
    "layers and passes that they are read from")  # fmt: skip
EPSILON: Final = Claim("epsilon", "every norm adds the config's epsilon")
VIEWS: Final = Claim("views", "queries, keys and values are neighbours in the rows of one product")
APART: Final = Claim("apart", "normed queries and keys have rows of their own, which are rotated, cached and attended")
RESIDUAL: Final = Claim("residual", "one residual stream is added to in place from the first layer to the last")
IN_PLACE: Final = Claim("in-place", "a product is normed in its own place, never in the residual's")
WEIGHTS: Final = Claim("weights", "every norm of every layer has a weight of its own, the same in all passes")
ROPE_TABLE: Final = Claim("rope-table", "one table of cosines and sines serves all layers and passes, from its start")
INPUTS: Final = Claim("inputs", "positions, slots, page table and lengths are the same for all layers of a pass")
POOL: Final = Claim("pool", "each layer has blocks of its own, the values equally far behind the keys in all")
PAGE: Final = Claim("page", "keys and values of 16 tokens fill a block, without gaps")
SHARED_POOL: Final = Claim("shared-pool", "attention reads where the cache write wrote: pool, strides and scales agree")
PARTS: Final = Claim("parts", "the reduction reads the parts that attention wrote, the same memory in all layers")
INSTANCES: Final = Claim("instances", "attention of one token and of several are different kernels")

CLAIMS: Final = (
    BACKEND, TOKENS, LAYERS, ORDER, PARAMETERS, INSTANCE, DTYPES, GRIDS, SIZES, CONSTANTS, LITERALS, LAUNCHES, EPSILON,
    VIEWS, APART, RESIDUAL, IN_PLACE, WEIGHTS, ROPE_TABLE, INPUTS, POOL, PAGE, SHARED_POOL, PARTS, INSTANCES,
)  # fmt: skip
