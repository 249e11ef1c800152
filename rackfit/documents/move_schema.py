"""JSON Schema of the document of ``rackfit move --json``."""

from __future__ import annotations

from typing import Any

from rackfit.documents.schema_parts import COUNT, FIGURE, SHARE, json_object, or_null

_NOT_BELOW_0 = or_null(SHARE)


def move_schema(result: dict[str, Any]) -> dict[str, Any]:
    """A result's question and final layout, and the way there. ``result``: the schema of results."""
    kept = ("schema_version", "instance", "evaluation", "layout")
    found = json_object(
        {
            **{key: result["properties"][key] for key in kept},
            "moved_bytes": SHARE,
            "read_bytes": SHARE,
            "seconds": _NOT_BELOW_0,
            "weights_from": {"enum": ["host", "peers", "flash", "disk"]},
            "engine_start_s": SHARE,
            "replicas_that_stay": {"type": "integer", "minimum": 0},
            "judged_by": json_object(
                dict.fromkeys(("ttft_s", "tpot_s", "requests_per_s"), _NOT_BELOW_0)
            ),
            "least_requests_per_s": SHARE,
            "one_by_one": json_object(
                {"least_requests_per_s": SHARE, "proven": {"type": "boolean"}}
            ),
            "before": _state(result),
            "steps": {"type": "array", "items": _step(result)},
            "plain_restart": json_object(
                {"read_bytes": SHARE, "seconds": _NOT_BELOW_0, "requests_per_s": SHARE}
            ),
            "candidates": {"type": "array", "items": _candidate()},
            "bound_usd_per_m_output_tokens": _NOT_BELOW_0,
        }
    )
    return {"title": "Move", **found, "$defs": result["$defs"]}


def _state(result: dict[str, Any]) -> dict[str, Any]:
    """What runs at one moment, by the evaluator."""
    judged = result["properties"]["evaluation"]["properties"]
    return json_object(
        {"requests_per_s": SHARE, "ttft_s": FIGURE, "tpot_s": FIGURE}
        | {key: judged[key] for key in ("feasible", "violations")}
    )


def _step(result: dict[str, Any]) -> dict[str, Any]:
    """One exchange of replicas."""
    replica = json_object(
        {
            "role": {"enum": ["prefill", "decode", "mixed"]},
            "shape": {"$ref": "#/$defs/Shape"},
            "chips": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        }
    )
    replicas = {"type": "array", "items": replica}
    return json_object(
        {
            "step": COUNT,
            **dict.fromkeys(("stop", "start", "change_while_running"), replicas),
            **dict.fromkeys(("moved_bytes", "read_bytes", "drain_s", "start_s"), SHARE),
            **dict.fromkeys(("load_s", "seconds"), _NOT_BELOW_0),
            **dict.fromkeys(("during", "after"), _state(result)),
        }
    )


def _candidate() -> dict[str, Any]:
    """A layout that the move was chosen from."""
    return json_object(
        {
            "name": {"type": "string"},
            "usd_per_m_output_tokens": FIGURE,
            **dict.fromkeys(("requests_per_s", "moved_bytes", "least_requests_per_s"), SHARE),
        }
    )
