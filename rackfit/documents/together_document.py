"""Layouts of several models on one cluster as one JSON document, and each as a document of its own."""

from __future__ import annotations

import json
import re
from typing import Any

from rackfit.documents.result import SCHEMA_VERSION, for_traffic, layout_dict, versions
from rackfit.documents.schema_parts import COUNT, FIGURE, SHARE, json_object, or_null
from solver.together.divided import Divided


def together_document(found: Divided, workers: int) -> dict[str, Any]:
    """What ``rackfit solve --json`` prints of a scenario with several models."""
    judged, whole = found.judged, found.models.whole
    return {
        "schema_version": SCHEMA_VERSION,
        "status": found.status,
        "name": found.models.asked.name,
        "pay": found.models.asked.pay,
        "usd_per_hour": judged.usd_per_hour,
        "headroom": judged.headroom,
        "chips_used": judged.chips_used,
        "chips_total": judged.evaluations[0].chips_total,
        "certificate": {
            "bound_usd_per_hour": None if whole else found.bound,
            "bound_headroom": found.bound if whole else None,
            "gap": found.gap,
            "covers": list(covers(found)),
        },
        "models": [_model(found, at) for at in range(len(found.layouts))],
        "solve": {
            "wall_s": found.wall_s,
            "seed": found.seed,
            "workers": workers,
            "versions": versions(),
        },
    }


def covers(found: Divided) -> tuple[str, ...]:
    """What the bound on all models together holds for."""
    return (
        "every way to give each model usable chips of its own",
        "of each model the layouts that its own list of covers names",
        "not covered: chips that serve several models, by turns or at once",
        "not covered: what models send over the same links together; the answer is judged with it, the bound holds "
        "without it",
    )


def layout_files(found: Divided) -> dict[str, str]:
    """Each model's layout as a document that ``evaluate``, ``export`` and ``replay`` read, by file name."""
    return {
        layout_file(found, at): json.dumps(_result(found, at), indent=1, allow_nan=False) + "\n"
        for at in range(len(found.layouts))
    }


def layout_file(found: Divided, model: int) -> str:
    """Name of the file of one model's layout; unlike for names that differ only in case or odd characters."""
    names = [re.sub(r"[^A-Za-z0-9._-]", "-", name)[:100].lower() for name in found.models.names]
    own = names[model]
    number = f"{model}-" if names.count(own) > 1 or own.startswith(".") else ""
    return f"layouts/{number}{own}.json"


def _model(found: Divided, at: int) -> dict[str, Any]:
    figures, rate = found.judged.evaluations[at], found.models.rates[at]
    served = figures.priced.requests_per_s
    return {
        "name": found.models.names[at],
        "rate": rate,
        "most_requests_per_s": served,
        "usd_per_hour": figures.usd_per_hour,
        "usd_per_m_output_tokens": figures.usd_per_m_output_tokens,
        "ttft_s": figures.ttft_s,
        "tpot_s": figures.tpot_s,
        "chips_used": figures.chips_used,
        "bound_alone_usd_per_hour": found.bound_alone_usd_per_hour(at),
        "covers": list(found.alone[at].certificate.covers),
        "file": layout_file(found, at),
        "result": _result(found, at),
    }


def _result(found: Divided, at: int) -> dict[str, Any]:
    told = for_traffic(found.replayed[at]) if found.replayed else {}
    return told | {
        "schema_version": SCHEMA_VERSION,
        "status": "feasible",
        "instance": found.judged.instances[at].describe(),
        "evaluation": found.judged.evaluations[at].as_dict(),
        "layout": layout_dict(found.layouts[at]),
    }


def together_schema(result: dict[str, Any]) -> dict[str, Any]:
    """Schema of :func:`together_document`; ``result`` is that of one layout's document."""
    text, texts = {"type": "string"}, {"type": "array", "items": {"type": "string"}}
    model = json_object(
        {
            "name": text,
            **dict.fromkeys(
                (
                    "rate", "most_requests_per_s", "usd_per_hour", "usd_per_m_output_tokens", "ttft_s",
                    "tpot_s", "bound_alone_usd_per_hour",
                ),
                SHARE,
            ),
            "chips_used": COUNT,
            "covers": texts,
            "file": text,
            "result": {key: value for key, value in result.items() if key != "$defs"},
        }
    )  # fmt: skip
    certificate = json_object(
        {
            "bound_usd_per_hour": or_null(SHARE),
            "bound_headroom": or_null(SHARE),
            "gap": SHARE,
            "covers": texts,
        }
    )
    solve = {"wall_s": FIGURE, "seed": {"type": "integer"}, "workers": COUNT}
    return {
        "title": "Together",
        **json_object(
            {
                "schema_version": result["properties"]["schema_version"],
                "status": {"enum": ["optimal", "feasible"]},
                "name": text,
                "pay": {"enum": ["used", "whole"]},
                "usd_per_hour": SHARE,
                "headroom": SHARE,
                "chips_used": COUNT,
                "chips_total": COUNT,
                "certificate": certificate,
                "models": {"type": "array", "items": model, "minItems": 1},
                "solve": json_object(
                    {**solve, "versions": {"type": "object", "additionalProperties": text}}
                ),
            }
        ),
        "$defs": result["$defs"],
    }
