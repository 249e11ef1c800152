"""What the schemas of written documents are made of."""

from __future__ import annotations

from typing import Any

#: What the ends of the published figures must be; ``None`` where a layout cannot be priced.
FIGURE = {"type": ["number", "null"]}
COUNT = {"type": "integer", "minimum": 1}
SHARE = {"type": "number", "minimum": 0}


def or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, or nothing."""
    return {"anyOf": [schema, {"type": "null"}]}


def json_object(properties: dict[str, Any]) -> dict[str, Any]:
    """An object with these keys at least; later versions may add keys."""
    return {"type": "object", "properties": properties, "required": list(properties)}
