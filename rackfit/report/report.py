"""One layout as one HTML page that a team can discuss; every figure is recomputed by the evaluator.

Only the certificate and the search's trajectory come from the written document, and only while the
instance is the one they were written for.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from costmodel.evaluate import Evaluation
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from rackfit.documents.replica_groups import replica_groups
from rackfit.figures.chart import Chart, Series
from rackfit.figures.expert_load_plot import expert_loads
from rackfit.figures.live import figure
from rackfit.figures.palette import map_style
from rackfit.figures.rack_map import rack_map
from rackfit.figures.roofline_plot import rooflines
from rackfit.quoting import markup
from rackfit.report.page import page, table
from rackfit.report.report_figures import basis, binds, deployment, links, times
from rackfit.report.traffic_words import traffic_section
from rackfit.report.uncertainty_words import interval_words
from rackfit.wording import BASES, amount, at_least, at_most, by_how_much, counted, rate, targets
from topology.catalogue import checked

_STYLE = (
    ".track{display:inline-block;width:8.6em}"
    ".meter{display:inline-block;height:.8em;background:#0072b2;margin-right:.5em;"
    "vertical-align:middle;print-color-adjust:exact}"
    "@media (prefers-color-scheme:dark){.meter{background:#56b4e9}}"
    ".bad{color:#b3261e;font-weight:600}"
)


#: how a line of a certificate begins that tells what the proof does not cover
_LEFT_OUT = "not covered: "


class _Certificate(BaseModel):
    bound_usd_per_m_output_tokens: float = Field(gt=0)
    gap: float = Field(ge=0)
    covers: tuple[str, ...] | str


class _Moment(BaseModel):
    elapsed_s: float
    incumbent: float | None = None
    bound: float | None = None


class _Solve(BaseModel):
    wall_s: float | None = None
    shapes: int | None = None
    seed: int | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    trajectory: tuple[_Moment, ...] = ()


class _RunnerUp(BaseModel):
    usd_per_m_output_tokens: float = Field(gt=0)
    excess: float
    within_noise: bool | None = None


class _Proof(BaseModel):
    """The parts of a document that only the search knows."""

    runner_up: _RunnerUp | None = None
    certificate: _Certificate | None = None
    solve: _Solve = _Solve()


def report_page(
    instance: Instance, layout: Layout, evaluation: Evaluation, document: dict[str, Any]
) -> str:
    """The report of a layout.

    ``document`` is what ``rackfit solve`` wrote. Raises ``InstanceError`` where its certificate or
    trajectory cannot be read.
    """
    with checked("layout"):
        proof = _Proof.model_validate(document)
        replayed = traffic_section(document)
    known = document.get("instance", {}).get("digest") == instance.digest
    if not known:
        proof, replayed = _Proof(), ""
    groups = replica_groups(layout, evaluation) if evaluation.priced.replicas else []
    title = f"{instance.model.name} on {instance.cluster.name}"
    sections = [_headline(instance, evaluation, proof, known), _violations(evaluation), replayed]
    if groups:
        sections += [
            binds(instance, evaluation, groups),
            deployment(instance, evaluation, groups),
            "<h2>Where everything is</h2>",
            rack_map(instance, layout, evaluation),
            basis(evaluation, "bytes"),
            times(evaluation, groups),
            _with(rooflines(instance, layout, groups), basis(evaluation, "times")),
            expert_loads(instance, layout, groups),
            links(instance, layout, evaluation),
        ]
    sections += [_trajectory(proof.solve), _assumptions(instance, evaluation, proof)]
    return page(title, [section for section in sections if section], _STYLE)


def _with(section: str, note: str) -> str:
    """A section with a note, where there is one."""
    return section and section + note


def figure_style() -> str:
    """CSS that a map of a report needs outside the page."""
    return map_style() + _STYLE


def _headline(instance: Instance, evaluation: Evaluation, proof: _Proof, known: bool) -> str:
    e, workload, slo = evaluation, instance.workload, instance.slo
    cost = e.usd_per_m_output_tokens
    lines = [
        f"<strong>${amount(cost)} per million output tokens</strong>"
        if cost is not None
        else "<strong>This layout serves nothing.</strong>"
    ]
    if e.assumed:
        lines.append(f"Assumed: {'; '.join(e.assumed)}.")
    if e.output_tokens_per_s is not None:
        lines.append(
            f"{rate(e.output_tokens_per_s)} output tokens/s "
            f"({rate(e.output_tokens_per_s_per_gpu)} per chip) for ${e.usd_per_hour:,.2f} an hour; "
            f"{e.chips_used} of {counted(e.chips_total, 'chip')} in use"
        )
    if e.tpot_s is not None and e.ttft_s is not None:
        lines.append(
            f"{'In a steady state: first' if slo.of_replays else 'First'} token (TTFT) after {e.ttft_s * 1e3:,.0f} ms at worst, {(e.ttft_mean_s or 0) * 1e3:,.0f} ms on "
            f"average; each further token (TPOT) {e.tpot_s * 1e3:,.2f} ms"
        )
    lines.append(
        f"Asked: {workload.input_tokens:,} input and {workload.output_tokens:,} output tokens, {targets(slo)}"
    )
    found = proof.certificate
    if found is not None:
        lines.append(
            f"Proven: no layout that the proof covers costs less than "
            f"${at_least(found.bound_usd_per_m_output_tokens)}. This one costs at most {at_most(found.gap)} more."
        )
    elif not known:
        lines.append("No certificate: the instance has changed since the layout was written.")
    else:
        lines.append("No certificate came with this layout.")
    if e.intervals is not None:
        lines.append(f"{e.intervals.confidence:.0%} range: {interval_words(e.intervals)}")
    other = proof.runner_up
    if other is not None:
        noise = {
            True: " The difference is smaller than the model's error.",
            False: " The difference exceeds the model's error.",
            None: "",
        }
        lines.append(
            f"The next best layout with another main shape costs ${amount(other.usd_per_m_output_tokens)}, "
            f"{by_how_much(other.excess)}.{noise[other.within_noise]}"
        )
    rests = basis(e, *BASES)
    said = "".join(f"<p>{_text(line)}</p>" for line in lines)
    return f'<div class="headline">{said}{rests}</div>'


def _text(line: str) -> str:
    """Escape a line but for the one tag that this module puts around headlines."""
    inside = line.removeprefix("<strong>").removesuffix("</strong>")
    return f"<strong>{markup(inside)}</strong>" if inside != line else markup(line)


def _violations(evaluation: Evaluation) -> str:
    if not evaluation.violations:
        return ""
    rows = [[v.rule, v.place, v.message] for v in evaluation.violations[:100]]
    count = len(evaluation.violations)
    return f'<h2 class="bad">{count} rules broken</h2>' + table(
        ["rule", "place", "message"], rows, "violations"
    )


def _trajectory(solve: _Solve) -> str:
    series = [
        Series(name, points)
        for name, points in (
            ("incumbent", [(m.elapsed_s, m.incumbent) for m in solve.trajectory if m.incumbent]),
            ("proven bound", [(m.elapsed_s, m.bound) for m in solve.trajectory if m.bound]),
        )
        if points
    ]
    if not series:
        return ""
    if len({m.elapsed_s for m in solve.trajectory if m.incumbent}) < 2:
        last = solve.trajectory[-1].elapsed_s
        return f"<h2>How it was found</h2><p>In one round, after {last:.1f} s.</p>"
    chart = Chart("Incumbent and bound", "seconds", "$ per million output tokens", series)
    return f"<h2>How it was found</h2>{figure(chart)}"


def _assumptions(instance: Instance, evaluation: Evaluation, proof: _Proof) -> str:
    cluster, profile = instance.cluster, instance.profile
    rows = [
        [name.replace("_", " "), basis] for name, basis in (evaluation.provenance or {}).items()
    ]
    rows += [[f"cluster: {name}", basis] for name, basis in cluster.provenance.items()]
    rows += [["cluster: source", source] for source in cluster.sources]
    rows += [["cluster: note", note] for note in cluster.notes]
    rows.append(
        [f"profile {profile.name}", " ".join(filter(None, (profile.description, profile.error)))]
    )
    rows += [["profile: source", source] for source in profile.sources]
    if proof.certificate is not None:
        said = proof.certificate.covers
        for line in (said,) if isinstance(said, str) else said:
            left_out = line.startswith(_LEFT_OUT)
            name = "the proof leaves out" if left_out else "the proof covers"
            rows.append([name, line.removeprefix(_LEFT_OUT)])
    if proof.solve.wall_s is not None:
        rows.append(
            [
                "search",
                f"{proof.solve.wall_s:.1f} s, {proof.solve.shapes} shapes, seed {proof.solve.seed}",
            ]
        )
    rows += [[f"version of {name}", found] for name, found in proof.solve.versions.items()]
    rows.append(["digest of the instance", instance.digest])
    return "<h2>What it rests on</h2>" + table(["figure", "basis"], rows, "assumptions")
