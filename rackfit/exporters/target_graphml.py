"""``graphml``: the annotated cluster graph as XML (yEd, Gephi, networkx, Cytoscape)."""

from __future__ import annotations

import networkx as nx

from rackfit.exporters.annotated_graph import annotated_graph
from rackfit.exporters.launch.deployment import Deployment
from rackfit.exporters.unlimited import approximate, limits, notes

__all__ = ["NAME", "SUMMARY", "approximate", "limits", "notes", "render"]

NAME = "graphml"
LAUNCHES = False
SUMMARY = "cluster graph with the layout on it, GraphML"


def render(deployment: Deployment) -> dict[str, str]:
    """``cluster.graphml``; the XML writer escapes every name."""
    lines = nx.generate_graphml(annotated_graph(deployment), prettyprint=True)
    return {"cluster.graphml": "\n".join(lines) + "\n"}
