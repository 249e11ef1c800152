"""The OpenAPI document of the JSON API, made from the models that check requests and the published schemas."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from rackfit.documents.schema import result_schema
from rackfit.serve.asked import QUESTIONS

_REF = "#/components/schemas/"
#: HTTP status of each kind of error, with its words
ERRORS: dict[str, tuple[int, str]] = {
    "bad_input": (400, "The request is wrong: each problem has its place, what was found and what is accepted."),
    "no_token": (401, "The token is missing or wrong."),
    "not_allowed": (403, "The request comes from another site."),
    "not_found": (404, "There is nothing here."),
    "too_large": (413, "The request, or the memory that it needs, is too large."),
    "infeasible": (422, "A valid question whose answer is that nothing fits."),
    "internal": (500, "An error of Rackfit's own."),
    "busy": (503, "Too many requests wait."),
    "time_limit": (504, "The time limit of the server came."),
    "no_layout_in_time": (504, "The time limit came before the first verified layout."),
}  # fmt: skip


class ProblemFound(BaseModel):
    """One thing that is wrong: where, and what was found and would be accepted."""

    place: str
    message: str


class ErrorFound(BaseModel):
    """A kind of error with every problem."""

    kind: str
    problems: list[ProblemFound]


class ErrorDocument(BaseModel):
    """The answer to a request that has none."""

    error: ErrorFound


def openapi() -> dict[str, Any]:
    """The document."""
    models: list[tuple[type[BaseModel], Any]] = [
        (model, "validation") for model in QUESTIONS.values()
    ]
    models.append((ErrorDocument, "serialization"))
    _, made = models_json_schema(models, ref_template=_REF + "{model}")
    schemas: dict[str, Any] = dict(made["$defs"])
    solved = json.loads(json.dumps(result_schema()).replace("#/$defs/", _REF + "Result"))
    schemas |= {f"Result{name}": schema for name, schema in solved.pop("$defs").items()}
    schemas["Result"] = solved
    schemas["Evaluated"] = {
        "type": "object",
        "properties": {key: solved["properties"][key] for key in ("schema_version", "instance", "evaluation")},
        "required": ["schema_version", "instance", "evaluation"],
    }  # fmt: skip
    schemas["Replayed"] = {
        "type": "object",
        "required": ["schema_version", "instance", "replay", "ttft_s"],
    }
    schemas["Sized"] = {
        "type": "object",
        "properties": {"wanted": {"type": "object"}, "kinds": {"type": "array", "items": {"type": "object"}}},
        "required": ["wanted", "kinds"],
    }  # fmt: skip
    found = {"solve": "Result", "evaluate": "Evaluated", "replay": "Replayed", "size": "Sized"}
    failures: dict[str, Any] = {}
    for code, words in ERRORS.values():
        failures.setdefault(str(code), {"description": words, "content": _content("ErrorDocument")})
    return {
        "openapi": "3.1.0",
        "info": {"title": "Rackfit", "version": version("rackfit")},
        "paths": {
            f"/api/{name}": {
                "post": {
                    "operationId": name,
                    "summary": (model.__doc__ or "").split("\n")[0],
                    "requestBody": {"required": True, "content": _content(model.__name__)},
                    "responses": {
                        "200": {"description": "The document.", "content": _content(found[name])},
                        **failures,
                    },
                    "security": [{}, {"token": []}],
                }
            }
            for name, model in QUESTIONS.items()
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _content(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"{_REF}{name}"}}}
