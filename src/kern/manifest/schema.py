"""The manifest's JSON Schema, for editors and for tools that do not run Python."""

from __future__ import annotations

from typing import Any

from kern.manifest.types import Manifest

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the wire form; what the rules of verification add cannot be said in it."""
    return {
        "$schema": DIALECT,
        "title": "kern manifest, version 2",
        **Manifest.model_json_schema(by_alias=True),
    }
