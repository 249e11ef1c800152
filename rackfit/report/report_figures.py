"""Sections of a report that show figures of the evaluator: what binds, replicas, times, links."""

from __future__ import annotations

from costmodel.evaluate import Evaluation
from costmodel.findings import hbm_fill
from costmodel.layout.layout import Layout, Replica
from costmodel.question.instance import Instance
from rackfit.documents.replica_groups import (
    ReplicaGroup,
    chip_ranges,
    deployment_words,
    slots_words,
)
from rackfit.documents.result import link_loads
from rackfit.quoting import markup
from rackfit.report.page import table
from rackfit.wording import counted, rests_on


def binds(instance: Instance, evaluation: Evaluation, groups: list[ReplicaGroup]) -> str:
    """What presses against its limit: targets, HBM and the pools' rates."""
    rows: list[tuple[str, float, str]] = []
    for name, value, target, unit in (
        ("TPOT, against its target", evaluation.tpot_s, instance.slo.tpot, 1e3),
        ("TTFT, against its target", evaluation.ttft_s, instance.slo.ttft, 1e3),
    ):
        if value is not None and target and not instance.slo.of_replays:
            said = f"{value * unit:,.2f} of {target * unit:,g} ms"
            rows.append((name, value / target, said))
    for replica, price, _ in groups:
        fill = hbm_fill(instance, replica, price)
        name = f"HBM of the fullest chip, {replica.role} on {counted(len(replica.chips), 'chip')}"
        rows.append((name, fill, f"{fill:.1%}"))
    pools = evaluation.priced
    served = pools.prefill_per_s, pools.decode_per_s
    for name, own in zip(("prefill", "decode"), served, strict=True):
        if own:
            share = min(served) / own
            rows.append((f"{name} pool, share in use", share, f"{share:.1%} of {own:,.2f} req/s"))
    lines = "".join(
        f'<tr><th scope="row">{markup(name)}</th><td>{_meter(share)}{markup(said)}</td></tr>'
        for name, share, said in rows
    )
    return (
        f"<h2>What binds</h2><p>{markup((evaluation.bottleneck or '').replace('_', ' '))}</p>"
        + _scrolling(f"<table>{lines}</table>", "what binds")
        + '<p class="note">A bar that is nearly full is a limit that the layout presses against.</p>'
        + basis(evaluation, "times", "bytes")
    )


def basis(evaluation: Evaluation, *figures: str) -> str:
    """What the figures of a section rest on: measured, derived or assumed inputs."""
    said = rests_on(evaluation.provenance, *figures)
    return f'<p class="note basis">Basis: {markup(said)}.</p>' if said else ""


def deployment(instance: Instance, evaluation: Evaluation, groups: list[ReplicaGroup]) -> str:
    """Replicas that are alike, with their shape and the chips of the first."""
    several = len(instance.cluster.chip_names) > 1
    header = [
        "count",
        "role",
        *(["kind"] if several else []),
        "chips",
        "tp",
        "dp",
        "ep",
        "pp",
        "batch",
        "slots",
        "skew",
        "req/s",
        "chips of the first",
    ]
    rows = [
        [
            len(members), replica.role, *([kinds_of(instance, replica)] if several else []),
            len(replica.chips), replica.shape.tp,
            replica.shape.attention_dp, "cut" if replica.cuts_experts else replica.shape.ep, replica.shape.pp, f"{replica.shape.batch:,}",
            slots_words(replica), max(stage.imbalance for stage in price.stages), float(price.service.requests_per_s),
            _where(members[0]),
        ]
        for replica, price, members in groups
    ]  # fmt: skip
    meant = " ".join(deployment_words(groups))
    return (
        "<h2>What to deploy</h2>"
        + table(header, rows, "replicas to deploy")
        + f'<p class="note">{markup(meant)}</p>'
        + basis(evaluation, "times", "expert_load")
    )


def kinds_of(instance: Instance, replica: Replica) -> str:
    """The chips that a replica stands on, by name."""
    return ", ".join(sorted({instance.cluster.chip(chip).chip.name for chip in replica.chips}))


def _where(replica: Replica) -> str:
    if replica.apart is None:
        return chip_ranges(replica.chips)
    attention, experts = (chip_ranges(stage.chips) for stage in replica.groups)
    return f"attention on {attention}; experts on {experts}"


def times(evaluation: Evaluation, groups: list[ReplicaGroup]) -> str:
    """A waterfall of a pass by kind of work, in milliseconds, for each kind of replica."""
    columns = []
    for _, price, _ in groups:
        parts: dict[str, float] = {}
        for stage in price.stages:
            for part, seconds in stage.parts.items():
                parts[part] = parts.get(part, 0.0) + float(seconds)
        columns.append(parts)
    kinds = sorted(
        {part for parts in columns for part, seconds in parts.items() if seconds > 0},
        key=lambda part: -max(parts.get(part, 0.0) for parts in columns),
    )
    head = "".join(
        f'<th scope="col">{markup(replica.role)} on {counted(len(replica.chips), "chip")}, ms</th>'
        for replica, _, _ in groups
    )
    lines = []
    before = [0.0] * len(columns)
    for kind in kinds:
        cells = ""
        for place, parts in enumerate(columns):
            seconds, whole = parts.get(kind, 0.0), max(sum(parts.values()), 1e-300)
            bar = _meter(seconds / whole, before[place] / whole) if seconds > 0 else _meter(0.0)
            before[place] += seconds
            cells += f'<td><span class="track">{bar}</span>{seconds * 1e3:,.2f}</td>'
        lines.append(f'<tr><th scope="row">{markup(kind.replace("_", " "))}</th>{cells}</tr>')
    sums = "".join(
        f'<td><span class="track"></span>{sum(parts.values()) * 1e3:,.2f}</td>' for parts in columns
    )
    return (
        '<h2>Time of one pass by kind</h2><div class="wide" tabindex="0" role="region" '
        f'aria-label="time of one pass"><table><tr><th scope="col">kind</th>{head}</tr>'
        f'{"".join(lines)}<tr><th scope="row">all stages</th>{sums}</tr></table></div>'
        + basis(evaluation, "times")
    )


def links(instance: Instance, layout: Layout, evaluation: Evaluation) -> str:
    """Load of every domain's uplinks, and the busiest link."""
    loads = link_loads(instance, layout, evaluation)
    lines = "".join(
        f'<tr><th scope="row">{markup(name)}</th><td>{_meter(link["utilisation"])}'
        f"{link['utilisation']:.1%}</td><td>{link['bytes_per_s'] / 1e9:,.1f} of "
        f"{link['capacity_bytes_per_s'] / 1e9:,.1f} GB/s</td></tr>"
        for name, link in loads["uplinks"].items()
    )
    return (
        f"<h2>Link loads</h2><p>Busiest link of the widest replica's exchange: "
        f"{markup(str(loads['busiest_link']))}. Uplinks between domains:</p>"
        + _scrolling(f"<table>{lines}</table>", "uplinks")
        + basis(evaluation, "bytes", "expert_load")
    )


def _scrolling(inside: str, label: str) -> str:
    """A box that scrolls sideways by itself, also by keyboard."""
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{markup(label)}">{inside}</div>'
    )


def _meter(share: float, start: float = 0.0) -> str:
    """A bar of a share of 1 that begins at another share; more than 1 is drawn as full."""
    wide = min(1.0, max(0.0, share)) * 8
    moved = f";margin-left:{min(1.0, start) * 8:.2f}em" if start else ""
    return f'<span class="meter" style="width:{wide:.2f}em{moved}"></span>'
