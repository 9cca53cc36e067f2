"""The toy's manifest with some places set."""

from __future__ import annotations

import json
from typing import Any

from kern.manifest.reading import read
from kern.manifest.types import Manifest
from support.toy_speculation import Sizes, toy_manifest


def edited(edit: dict[str, Any], sizes: Sizes | None = None) -> Manifest:
    """The toy's manifest with some places set; None takes a place out."""
    manifest = toy_manifest(sizes or Sizes()).model_dump(mode="json", by_alias=True, exclude_none=True)
    for place, value in edit.items():
        *path, last = place.split("/")
        target: Any = manifest
        for key in path:
            target = target[int(key) if isinstance(target, list) else key]
        if value is None:
            del target[last]
        else:
            target[int(last) if isinstance(target, list) else last] = value
    found = read(json.dumps(manifest).encode())
    assert found.manifest is not None, found.diagnostics
    return found.manifest
