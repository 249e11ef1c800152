"""What a notebook shows of an answer: the price and its proof, what to deploy, where it is, what takes time."""

from __future__ import annotations

from costmodel.evaluate import Evaluation
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from rackfit.figures.chart import Chart, Series
from rackfit.figures.live import still
from rackfit.figures.palette import map_style
from rackfit.figures.rack_map import rack_map
from rackfit.quoting import markup
from rackfit.wording import amount, at_most, counted


def answer_html(
    instance: Instance, layout: Layout, evaluation: Evaluation, *, status: str, gap: float
) -> str:
    """A result as a notebook shows it: the question, the price, the proof, and what to deploy."""
    kinds: dict[tuple[object, ...], int] = {}
    for replica in layout.replicas:
        shape = replica.shape.model_dump() | ({"ep": "cut"} if replica.cuts_experts else {})
        key = (replica.role, len(replica.chips), *shape.values())
        kinds[key] = kinds.get(key, 0) + 1
    columns = ("replicas", "role", "chips", "tp", "ep", "pp", "attention dp", "batch")
    head = "".join(f"<th>{name}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{markup(str(value))}</td>" for value in (count, *key)) + "</tr>"
        for key, count in kinds.items()
    )
    return (
        f"<p><b>{markup(instance.model.name)}</b> on <b>{markup(instance.cluster.name)}</b>: "
        f"${amount(evaluation.usd_per_m_output_tokens)} per million output tokens, "
        f"{markup(status)}, at most {at_most(gap)} above the least possible cost</p>"
        f"<table><tr>{head}</tr>{body}</table>"
        f"<style>{map_style()}</style>{rack_map(instance, layout, evaluation)}"
        f"{still(_pass_times(layout, evaluation))}"
    )


def _pass_times(layout: Layout, evaluation: Evaluation) -> Chart:
    """Milliseconds of a pass by kind of work, for the largest replica of each role, the longest first."""
    pairs = zip(layout.replicas, evaluation.priced.replicas, strict=True)
    series: dict[str, Series] = {}
    for replica, price in sorted(pairs, key=lambda pair: -len(pair[0].chips)):
        parts: dict[str, float] = {}
        for stage in price.stages:
            for part, seconds in stage.parts.items():
                parts[part] = parts.get(part, 0.0) + 1e3 * float(seconds)
        taken = sorted(parts.items(), key=lambda part: -part[1])
        points = [(part.replace("_", " "), value) for part, value in taken if value > 0]
        name = f"{replica.role} on {counted(len(replica.chips), 'chip')}"
        series.setdefault(replica.role, Series(name, points))
    return Chart("Time of one pass by kind", "kind", "ms", list(series.values()), kind="bar")
