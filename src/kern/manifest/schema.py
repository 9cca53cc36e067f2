"""The manifest's JSON Schema, for editors and for tools that do not run Python."""

from __future__ import annotations

from typing import Any

from kern.manifest.diagnostics import MAX_NAME
from kern.manifest.reading import MAX_TERMS
from kern.manifest.types import VERSION, Manifest

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the wire form; it cannot express the rules of verification."""
    schema = Manifest.model_json_schema(by_alias=True)
    schema["$defs"]["Meta"]["properties"]["version"]["const"] = VERSION
    for kind in (schema, *schema["$defs"].values()):
        for name, member in kind["properties"].items():
            if "propertyNames" in member:
                member["propertyNames"]["maxLength"] = MAX_NAME
            if name == "shape":  # a dimension is one term or more
                member["maxItems"] = MAX_TERMS
    return {"$schema": DIALECT, "title": f"kern manifest, version {VERSION}", **schema}
