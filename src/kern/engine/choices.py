"""Checks of the tokens and likelihoods that programs return: NaN and infinity in the logits are errors."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kern.manifest.errors import KernError, variant

NO_TOKEN: Final = -1
"""What a program writes if no token can be chosen: the logits contain NaN or +inf, or -inf for every id."""

_HELP: Final = "check the checkpoint's tensors for NaN and inf, and the kernels of that program"


UnusableLogits = variant(KernError, "unusable-logits", "The logits contain NaN or infinities: no token can be chosen.")


def chosen(id: int, program: str, position: int) -> int:
    """`id` itself, the token that `program` chose from the logits at `position`. Raises UnusableLogits."""
    if id == NO_TOKEN:
        raise UnusableLogits(
            f"NaN or +inf in the logits of `{program}` at position {position} (or -inf for every id)", _HELP
        )
    return id


def total(nll: NDArray[np.float32], program: str, position: int) -> float:
    """The sum of the negative log-likelihoods that `program` returned from `position` on. Raises UnusableLogits."""
    unusable = np.flatnonzero(np.isnan(nll))
    if len(unusable):
        raise UnusableLogits(f"NaN in the nll of `{program}` at position {position + unusable[0]}", _HELP)
    return float(np.sum(nll, dtype=np.float64))
