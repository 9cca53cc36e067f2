"""JSON for `--json` and for files: always valid, so that a number JSON has no word for is null."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping


def json_text(value: object, indent: int | None = None) -> str:
    """`value` as JSON in ASCII; NaN and the infinities in it are null."""
    try:
        return json.dumps(value, allow_nan=False, indent=indent)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, indent=indent)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
