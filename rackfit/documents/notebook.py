"""What a notebook shows of an answer."""

from __future__ import annotations

from costmodel.evaluate import Evaluation
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from rackfit.quoting import markup


def answer_html(
    instance: Instance, layout: Layout, evaluation: Evaluation, *, status: str, gap: float
) -> str:
    """A result as a notebook shows it: the question, the price, the proof, and what to deploy."""
    kinds: dict[tuple[object, ...], int] = {}
    for replica in layout.replicas:
        key = (replica.role, len(replica.chips), *replica.shape.model_dump().values())
        kinds[key] = kinds.get(key, 0) + 1
    columns = ("replicas", "role", "chips", "tp", "ep", "pp", "attention dp", "batch")
    head = "".join(f"<th>{name}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{markup(str(value))}</td>" for value in (count, *key)) + "</tr>"
        for key, count in kinds.items()
    )
    return (
        f"<p><b>{markup(instance.model.name)}</b> on <b>{markup(instance.cluster.name)}</b>: "
        f"${evaluation.usd_per_m_output_tokens:.4f} per million output tokens, "
        f"{markup(status)}, at most {gap:.2%} above the least possible cost</p>"
        f"<table><tr>{head}</tr>{body}</table>"
    )
