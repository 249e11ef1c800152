"""``json``: the layout itself as Rackfit's versioned document, evaluated anew."""

from __future__ import annotations

import json

from rackfit.documents.result import SCHEMA_VERSION, layout_dict, link_loads, memory_by_chip
from rackfit.exporters.launch.deployment import Deployment
from rackfit.exporters.unlimited import approximate, limits, notes

__all__ = ["NAME", "SUMMARY", "approximate", "limits", "notes", "render"]

NAME = "json"
LAUNCHES = False
SUMMARY = "layout, evaluation, memory and link loads as one versioned document"


def render(deployment: Deployment) -> dict[str, str]:
    """``layout.json``: it has no certificate and no search record, which belong to a solution."""
    instance, layout, evaluation = deployment.instance, deployment.layout, deployment.evaluation
    document = {
        "schema_version": SCHEMA_VERSION,
        "instance": instance.describe(),
        "evaluation": evaluation.as_dict(),
        "layout": layout_dict(layout),
        "memory": memory_by_chip(instance, layout, evaluation),
        "links": link_loads(instance, layout, evaluation),
        "hosts": {
            place.chip: {"host": place.host, "gpu": place.gpu, "rack": place.rack}
            for server in deployment.servers
            for place in server.places
        },
    }
    return {"layout.json": json.dumps(document, indent=1, allow_nan=False) + "\n"}
