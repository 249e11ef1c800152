"""The OpenAPI document of the JSON API, made from the models that check requests and the published schemas."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Annotated, Any

from pydantic import BaseModel, Field
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
    "wrong_method": (405, "The address takes another method, which Allow names."),
    "too_large": (413, "The request, or the memory that it needs, is too large."),
    "wrong_coding": (415, "The request is packed in another way than gzip."),
    "infeasible": (422, "A valid question whose answer is that nothing fits."),
    "cannot_export": (422, "The target cannot express the layout."),
    "internal": (500, "An error of Rackfit's own."),
    "busy": (503, "Too many requests wait."),
    "time_limit": (504, "The time limit of the server came."),
    "no_layout_in_time": (504, "The time limit came before the first verified layout."),
}  # fmt: skip


#: schema of each question's answer
_ANSWERS = {
    "solve": "Result", "evaluate": "Evaluated", "replay": "Replayed", "size": "Sized", "running": "Ran",
    "compare": "Compared", "export": "Exported",
}  # fmt: skip


class ProblemFound(BaseModel):
    """One thing that is wrong: where, and what was found and would be accepted."""

    place: str
    message: str


class ErrorFound(BaseModel):
    """A kind of error with every problem."""

    kind: Annotated[str, Field(json_schema_extra={"enum": list(ERRORS)})]
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
    solved = json.loads(json.dumps(result_schema()).replace("#/$defs/", _REF))
    schemas |= solved.pop("$defs")
    schemas["Result"] = solved
    schemas |= _documents(solved["properties"])
    failures: dict[str, Any] = {}
    for code in sorted({code for code, _ in ERRORS.values()}):
        kinds = [f"{kind}: {words}" for kind, (own, words) in ERRORS.items() if own == code]
        failures[str(code)] = {"description": " ".join(kinds), "content": _content("ErrorDocument")}
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
                        "200": {
                            "description": "The document.",
                            "content": _content(_ANSWERS[name]),
                        },
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


def _documents(solved: dict[str, Any]) -> dict[str, Any]:
    """Schemas of the answers that are not that of ``solve``, whose properties are given."""
    asked = {key: solved[key] for key in ("schema_version", "instance")}
    version, evaluation, layout = (
        solved[key] for key in ("schema_version", "evaluation", "layout")
    )
    number, words = {"type": "number"}, {"type": "array", "items": {"type": "string"}}
    figure = {"type": ["number", "null"]}
    problem = {"$ref": _REF + "ProblemFound"}
    change = {
        "evaluation": evaluation, "faster": number, "expert_copies_to_load": {"type": "integer"},
        "bytes_to_load": number, "load_s": figure,
    }  # fmt: skip
    instead = {"excess": figure, "evaluation": evaluation, "layout": layout}
    instead["change"] = {"anyOf": [_object(change), {"type": "null"}]}
    figures = _object({"first": figure, "second": figure, "change": figure})
    counts = {"type": "object", "additionalProperties": {"type": "integer"}}
    return {
        "Evaluated": _object({**asked, "evaluation": evaluation}),
        "Replayed": _object({**asked, "replay": {"type": "object"}, "ttft_s": {"type": "object"}}),
        "Sized": _object({
            "wanted": {"type": "object"}, "kinds": {"type": "array", "items": {"type": "object"}},
            "left_out": {"type": "array", "items": _object({"kind": {"type": "string"}, "reason": {"type": "string"}})},
            "mix": {"type": ["object", "null"]},
        }),
        "Ran": _object(
            {**asked, "evaluation": evaluation, "layout": layout, "notes": words, "words": words},
            keep=_object({"layout": layout, **change}), fuller=_object({"layout": layout, **change}),
            instead=_object(instead),
        ),
        "Compared": _object({
            "figures": {"type": "object", "additionalProperties": figures}, "replicas": counts,
            "chips": counts, "expert_copies_to_load": {"type": "integer"}, "bytes_to_load": number,
            "load_s": figure, "asked_differently": words, "words": words,
        }),
        "Exported": _object({
            "schema_version": version, "target": {"type": "string"},
            "files": {"type": "object", "additionalProperties": {"type": "string"}}, "notes": words,
            "approximated": {"type": "array", "items": problem}, "loss": number, "evaluation": evaluation,
        }),
    }  # fmt: skip


def _object(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Of properties that are all there, and of ``more`` that may be."""
    return {"type": "object", "properties": properties | more, "required": list(properties)}


def _content(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"{_REF}{name}"}}}
