"""The OpenAPI document: schemas that are valid, found and named once, so that generators can make a client of it."""

from __future__ import annotations

import json
import re
from collections import Counter

import jsonschema

from rackfit.importers.files import ENGINES
from rackfit.serve.openapi import openapi


def test_every_schema_is_valid_and_there() -> None:
    document = openapi()
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    named = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document))
    assert set(named) <= schemas.keys()


def test_no_two_schemas_have_one_title() -> None:
    """A generator names a class by it."""
    schemas = openapi()["components"]["schemas"]
    titles = Counter(schema.get("title", name) for name, schema in schemas.items())
    assert [title for title, count in titles.items() if count > 1] == []


def test_it_offers_every_engine_that_is_read() -> None:
    engines = openapi()["components"]["schemas"]["Running"]["properties"]["engine"]["enum"]
    assert engines == list(ENGINES)
