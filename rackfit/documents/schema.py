"""JSON Schemas of what Rackfit reads and writes, made from the models that check it.

``python -m rackfit.documents.schema`` rewrites the published files in ``instances/schemas``.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from costmodel.layout.layout import Layout
from costmodel.question.scenario import Scenario
from costmodel.question.uncertainty import Intervals
from costmodel.together.question import Together
from rackfit.documents.data_schemas import (
    chip_schema,
    cluster_schema,
    flow_schema,
    model_schema,
    plan_schema,
    price_schema,
    profile_schema,
    tier_schema,
    traffic_schema,
    workload_schema,
)
from rackfit.documents.move_schema import move_schema
from rackfit.documents.result import SCHEMA_VERSION
from rackfit.documents.schema_parts import COUNT, FIGURE, SHARE, json_object, or_null
from rackfit.documents.together_document import together_schema
from topology.catalogue import data_dir

FOLDER = data_dir("schemas")
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def scenario_schema() -> dict[str, Any]:
    """Schema of a scenario file: of one model, or where it has ``models``, of several."""
    one, several = Scenario.model_json_schema(), Together.model_json_schema()
    definitions = {**one.pop("$defs"), **several.pop("$defs")}
    return {"if": {"required": ["models"]}, "then": several, "else": one, "$defs": definitions}


def result_schema() -> dict[str, Any]:
    """Schema of the document of ``rackfit solve --json`` and of ``rackfit export --to json``."""
    layout = Layout.model_json_schema()
    scenario = Scenario.model_json_schema()
    definitions = {**layout.pop("$defs"), **scenario.pop("$defs")}
    definitions |= {"Layout": layout, "Scenario": scenario}
    violation = json_object({key: {"type": "string"} for key in ("rule", "place", "message")})
    evaluation = json_object(
        {
            **dict.fromkeys(
                (
                    "usd_per_m_output_tokens", "usd_per_m_tokens", "output_tokens_per_s",
                    "output_tokens_per_s_per_gpu", "requests_per_s", "ttft_s", "tpot_s",
                    "joules_per_output_token",
                ),
                FIGURE,
            ),
            "chips_used": {"type": "integer", "minimum": 0},
            "chips_total": {"type": "integer", "minimum": 1},
            "bottleneck": {"type": ["string", "null"]},
            "provenance": {
                "type": ["object", "null"],
                "additionalProperties": {"type": "string"},
            },
            "assumed": {"type": "array", "items": {"type": "string"}},
            "feasible": {"type": "boolean"},
            "intervals": or_null(_intervals()),
            "violations": {"type": "array", "items": violation},
        }
    )  # fmt: skip
    memory = json_object(
        dict.fromkeys(("weights", "experts", "kv", "activations", "runtime", "capacity"), SHARE)
    )
    uplink = json_object(
        dict.fromkeys(("bytes_per_s", "capacity_bytes_per_s", "utilisation"), SHARE)
    )
    solve = json_object(
        {
            **dict.fromkeys(("wall_s", "first_layout_s", "proof_s"), FIGURE),
            "shapes": {"type": "integer"},
            "seed": {"type": "integer"},
            "workers": {"type": "integer"},
            "versions": {"type": "object", "additionalProperties": {"type": "string"}},
        }
    )
    certificate = json_object(
        {
            "bound_usd_per_m_output_tokens": {"type": "number"},
            "gap": {"type": "number"},
            "covers": {"type": "array", "items": {"type": "string"}},
        }
    )
    return {
        "title": "Result",
        "type": "object",
        "properties": {
            "schema_version": {"type": "string", "pattern": rf"^{SCHEMA_VERSION.split('.')[0]}\."},
            "status": {"enum": ["optimal", "feasible", "infeasible", "time_limit"]},
            "instance": json_object(
                {"scenario": {"$ref": "#/$defs/Scenario"}, "digest": {"type": "string"}}
            ),
            "certificate": certificate,
            "evaluation": evaluation,
            "layout": {"$ref": "#/$defs/Layout"},
            "runner_up": or_null(_runner_up()),
            "engines": {"type": "array", "items": _alone()},
            "choices": {"type": "array", "items": _chosen()},
            "measured_distance": _measured_distance(),
            "within_measured_usd_per_m_output_tokens": FIGURE,
            "worlds": or_null(_worlds()),
            "memory": {"type": "object", "additionalProperties": memory},
            "links": json_object(
                {
                    "uplinks": {"type": "object", "additionalProperties": uplink},
                    "busiest_link": {"type": "string"},
                }
            ),
            "solve": solve,
            "traffic": _traffic(),
            "replay": {"type": "object"},
        },
        "required": ["schema_version", "instance", "evaluation", "layout"],
        "$defs": definitions,
    }


def _intervals() -> dict[str, Any]:
    """Low and high end of each figure at one confidence."""
    ends = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
    names = (one.name for one in fields(Intervals) if one.name != "confidence")
    return json_object({"confidence": SHARE} | {name: or_null(ends) for name in names})


def _measured_distance() -> dict[str, Any]:
    """What of a layout no measured run had, and the nearest runs."""
    names = {"type": "array", "items": {"type": "string"}}
    words = {key: {"type": "string"} for key in ("chip", "role")}
    widths = dict.fromkeys(("tp", "attention_dp", "pp"), COUNT)
    span = {"type": "array", "items": SHARE, "minItems": 2, "maxItems": 2}
    near = words | widths | {key: {"type": "string"} for key in ("engine", "weights")}
    near |= {"distance": SHARE, "sequences_per_rank": span, "runs": COUNT, "error": SHARE}
    own = {"count": COUNT, "sequences_per_rank": SHARE, "not_measured": names}
    replica = words | widths | own | {"nearest": {"type": "array", "items": json_object(near)}}
    return json_object(
        {"not_measured": names, "replicas": {"type": "array", "items": json_object(replica)}}
    )


def _worlds() -> dict[str, Any]:
    """An answer over the parameter sets that measurements allow."""
    at = "usd_per_m_output_tokens"
    names = (
        "confidence",
        f"{at}_at_confidence",
        f"bound_{at}_at_confidence",
        f"{at}_without_confidence",
    )
    shares = ("share_within_1_percent_of_best", "share_meeting_targets")
    quantiles = json_object(dict.fromkeys(("p10", "p50", "p90"), FIGURE))
    return json_object(
        {"parameter_sets": COUNT, at: quantiles}
        | dict.fromkeys(shares, SHARE)
        | dict.fromkeys(names, FIGURE)
    )


def _alone() -> dict[str, Any]:
    """What one engine alone costs, where the engine was a choice."""
    words = {key: {"type": "string"} for key in ("engine", "label", "reason")}
    figures = dict.fromkeys(("usd_per_m_output_tokens", "bound_usd_per_m_output_tokens"), FIGURE)
    return json_object({**words, **figures, "wall_s": SHARE})


def _chosen() -> dict[str, Any]:
    """What one combination of values of the choices costs."""
    figures = dict.fromkeys(("usd_per_m_output_tokens", "bound_usd_per_m_output_tokens"), FIGURE)
    return json_object({"values": {"type": "object"}, **figures, "reason": {"type": "string"}})


def _runner_up() -> dict[str, Any]:
    """The best layout found that is built differently, and what its cost's excess is worth."""
    without = {"role": {"type": "string"}} | dict.fromkeys(("tp", "pp", "stage_chips"), COUNT)
    replica = {"count": COUNT, "role": {"type": "string"}, "shape": {"$ref": "#/$defs/Shape"}}
    return json_object(
        {
            "without": json_object(without),
            **dict.fromkeys(
                (
                    "usd_per_m_output_tokens", "least_usd_per_m_output_tokens", "excess", "noise",
                    "confidence", "turned", "output_tokens_per_s", "ttft_s", "tpot_s",
                ),
                FIGURE,
            ),
            "within_noise": {"type": ["boolean", "null"]},
            "replicas": {"type": "array", "items": json_object(replica)},
        }
    )  # fmt: skip


def _traffic() -> dict[str, Any]:
    """What replays said of an answer for traffic, and what steady answers cost beside it."""
    names = ("peak", "usd_per_hour", "usd_per_m_output_tokens")
    may_be_none = (
        "ttft_p99_s", "tpot_p99_s", "goodput", "mean_usd_per_hour", "spread_usd_per_hour",
    )  # fmt: skip
    found = json_object(
        {
            **dict.fromkeys(names, SHARE),
            **dict.fromkeys(may_be_none, FIGURE),
            "runs": COUNT,
            "losses": {"type": "integer", "minimum": 0},
            "confirmed": {"type": "boolean"},
            "under_way": {"type": "boolean"},
            "loads": {"type": "object", "additionalProperties": SHARE},
            "prefill_chunk_tokens": COUNT,
            "chunks_tried": {"type": "array", "items": COUNT},
        }
    )
    shares = dict.fromkeys(("host_bytes", "hit_rate", "most_hit_rate"), SHARE)
    found["properties"]["draws"] = {"type": "array", "items": COUNT, "minItems": 2, "maxItems": 2}
    found["properties"]["put_off"] = json_object(
        {"tokens": COUNT, "ttft_p50_s": SHARE, "late": SHARE}
    )
    found["properties"]["prefixes"] = json_object(
        {"tier": {"enum": ["hbm", "host"]}, **shares, "hbm_usd_per_m_output_tokens": FIGURE}
    )
    return found


def published() -> dict[str, dict[str, Any]]:
    """Every generated schema by file name."""
    found = {
        "chip": chip_schema(),
        "cluster": cluster_schema(),
        "flow": flow_schema(),
        "plan": plan_schema(),
        "model": model_schema(),
        "move": move_schema(result_schema()),
        "price": price_schema(),
        "profile": profile_schema(),
        "result": result_schema(),
        "scenario": scenario_schema(),
        "tier": tier_schema(),
        "together": together_schema(result_schema()),
        "workload": workload_schema(),
        "traffic": traffic_schema(),
    }
    return {
        f"{kind}.schema.json": {
            "$schema": DIALECT,
            "$id": f"rackfit-{kind}.schema.json",
            **schema,
        }
        for kind, schema in found.items()
    }


def schema_text(schema: dict[str, Any]) -> str:
    """A schema as it is published."""
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"


def main() -> None:
    """Rewrite the published files."""
    for name, schema in published().items():
        (FOLDER / name).write_text(schema_text(schema), encoding="utf-8")


if __name__ == "__main__":
    main()
