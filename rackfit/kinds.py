"""Whether values have the kinds that a JSON Schema names: pydantic alone takes text for the number in it, and 1 for true."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from topology.errors import Problem
from topology.names import brief, shown

Schema = Mapping[str, Any]
#: what a value of each kind is called
_WORDS = {"number": "a number", "boolean": "true or false", "string": "text"}


def misfits(schema: Schema, value: object, place: str = "") -> Iterator[Problem]:
    """Every number, text and truth value inside ``value`` of a kind that ``schema`` has no room for, with its place.

    Nothing else of a schema is looked at: what a value may be is for the model that the schema was made of.
    """
    yield from _misfits(schema.get("$defs", {}), [schema], value, place)


def _misfits(
    named: Schema, schemas: Sequence[Schema], value: object, place: str
) -> Iterator[Problem]:
    ways = [way for schema in schemas for way in _ways(named, schema)]
    if isinstance(value, dict):
        for key, inner in value.items():
            inside = [
                way.get("properties", {}).get(key, way.get("additionalProperties"))
                for way in ways
                if way.get("type") == "object"
            ]
            below = f"{place}.{shown(str(key), 60)}".lstrip(".")
            yield from _misfits(
                named, [one for one in inside if isinstance(one, dict)], inner, below
            )
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            inside = [_item(way, number) for way in ways if way.get("type") == "array"]
            found = [one for one in inside if isinstance(one, dict)]
            yield from _misfits(named, found, inner, f"{place}[{number}]")
    elif value is not None and ways and all("type" in way for way in ways):
        kinds = {_kind(way["type"]) for way in ways}
        if _kind_of(value) not in kinds and (expected := [_WORDS[k] for k in _WORDS if k in kinds]):
            yield Problem(place, f"expected {' or '.join(expected)}, got {brief(value)}")


def _ways(named: Schema, schema: Schema) -> Iterator[Schema]:
    """The schemas without alternatives that one stands for."""
    if "$ref" in schema:
        yield from _ways(named, named[schema["$ref"].rpartition("/")[2]])
    elif alternatives := (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        for one in alternatives:
            yield from _ways(named, one)
    elif schema.get("type") != "null":
        yield schema


def _item(way: Schema, number: int) -> Any:
    first = way.get("prefixItems", ())
    return first[number] if number < len(first) else way.get("items")


def _kind(name: str) -> str:
    return "number" if name == "integer" else name


def _kind_of(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else "string"
