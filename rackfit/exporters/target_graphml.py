"""``graphml``: the annotated cluster graph as XML (yEd, Gephi, networkx, Cytoscape)."""

from __future__ import annotations

import networkx as nx

from costmodel.instance import Instance
from costmodel.layout import Layout
from rackfit.exporters.annotated_graph import annotated_graph
from rackfit.exporters.deployment import Deployment
from rackfit.exporters.registry import Limit

NAME = "graphml"
SUMMARY = "cluster graph with the layout on it, GraphML"


def limits(deployment: Deployment) -> list[Limit]:
    """None."""
    return []


def approximate(instance: Instance, layout: Layout) -> Layout:
    """The layout itself."""
    return layout


def notes(deployment: Deployment) -> list[str]:
    """None."""
    return []


def render(deployment: Deployment) -> dict[str, str]:
    """``cluster.graphml``; the XML writer escapes every name."""
    lines = nx.generate_graphml(annotated_graph(deployment), prettyprint=True)
    return {"cluster.graphml": "\n".join(lines) + "\n"}
