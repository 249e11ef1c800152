"""``dot``: the annotated cluster graph for Graphviz, one box per rack, coloured by replica."""

from __future__ import annotations

from typing import Any

from rackfit.exporters.annotated_graph import annotated_graph
from rackfit.exporters.launch.deployment import Deployment
from rackfit.exporters.unlimited import approximate, limits
from rackfit.quoting import dot_string

__all__ = ["NAME", "SUMMARY", "approximate", "limits", "notes", "render"]

NAME = "dot"
LAUNCHES = False
SUMMARY = "cluster graph with the layout on it, Graphviz"
#: Hues of the pools; replicas of a pool differ in lightness.
_HUES = {"prefill": 0.08, "decode": 0.58, "mixed": 0.33}


def notes(deployment: Deployment) -> list[str]:
    """How to draw it."""
    return ["draw it with: dot -Tsvg (few chips) or sfdp -Tsvg (many)"]


def render(deployment: Deployment) -> dict[str, str]:
    """``cluster.dot``: links both ways of equal speed are one undirected edge."""
    graph = annotated_graph(deployment)
    racks: dict[str, list[str]] = {}
    lines = ["graph cluster {", "  node [shape=box, style=filled, fontsize=9];"]
    for node, data in graph.nodes(data=True):
        text = f"    {dot_string(node)} [{_attributes(node, data)}];"
        racks.setdefault(str(data.get("rack", "")), []).append(text)
    for number, (rack, members) in enumerate(racks.items()):
        if rack:
            lines += [f"  subgraph cluster_{number} {{", f"    label={dot_string(rack)};"]
            lines += [*members, "  }"]
        else:
            lines += [member[2:] for member in members]
    for source, target, data in graph.edges(data=True):
        back = graph.get_edge_data(target, source)
        both = back is not None and back["bytes_per_s"] == data["bytes_per_s"]
        if both and source > target:
            continue
        label = f"{data['bytes_per_s'] / 1e9:g} GB/s"
        extra = "" if both else ", dir=forward"
        lines.append(
            f"  {dot_string(source)} -- {dot_string(target)} [tooltip={dot_string(label)}{extra}];"
        )
    return {"cluster.dot": "\n".join([*lines, "}"]) + "\n"}


def _attributes(node: str, data: dict[str, Any]) -> str:
    if data.get("kind") != "chip":
        return f'shape=ellipse, fillcolor="#eeeeee", label={dot_string(node)}'
    role = str(data["role"])
    if role not in _HUES:
        return f'fillcolor="#ffffff", label={dot_string(f"{node} idle")}'
    number = int(str(data["replica"]).rsplit("-", 1)[1])
    colour = f"{_HUES[role]:.2f} {0.25 + 0.1 * (number % 5):.2f} 0.95"
    label = f"{node} {data['replica']} stage {data['stage']}"
    return f'fillcolor="{colour}", label={dot_string(label)}'
