"""Tokens and likelihoods as programs give them, checked for NaN and infinity in the logits behind them."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kern.manifest.errors import KernError, variant

NO_TOKEN: Final = -1
"""A program gives it for a token where none can be chosen: NaN or +inf in the logits, or -inf for every id."""

_HELP: Final = "look for NaN or inf in the checkpoint's tensors, and at the kernels of that program"


UnusableLogits = variant(KernError, "unusable-logits", "The logits contain NaN or infinities: no token can be chosen.")


def chosen(id: int, program: str, position: int) -> int:
    """The token that `program` chose from the logits at `position`. Raises UnusableLogits."""
    if id == NO_TOKEN:
        raise UnusableLogits(
            f"NaN or +inf in the logits of `{program}` at position {position} (or -inf for every id)", _HELP
        )
    return id


def total(nll: NDArray[np.float32], program: str, position: int) -> float:
    """The sum of the negative log-likelihoods that `program` gave from `position` on. Raises UnusableLogits."""
    unusable = np.flatnonzero(np.isnan(nll))
    if len(unusable):
        raise UnusableLogits(f"NaN in the nll of `{program}` at position {position + unusable[0]}", _HELP)
    return float(np.sum(nll, dtype=np.float64))
