"""A result for people: what to deploy, what it costs, what binds, how good it can be."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.table import Table
from rich.text import Text

from costmodel.evaluate import Evaluation
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.replica.replica import MEMORY_KINDS
from costmodel.replica.tier_use import TierUse
from rackfit.console import make_console, print_sentence, print_table
from rackfit.documents.replica_groups import (
    ReplicaGroup,
    chip_ranges,
    deployment_words,
    replica_groups,
    slots_words,
)
from rackfit.documents.result import Result
from rackfit.quoting import plain
from rackfit.report.uncertainty_words import interval_words, lines_beside
from rackfit.wording import amount, at_least, at_most, counted, rate, targets


def print_result(result: Result, console: Console | None = None) -> None:
    """Print an answer of ``solve``."""
    console = console or make_console()
    instance, found = result.instance, result.search
    _print_question(console, instance)
    _print_figures(console, result.evaluation)
    certificate = result.certificate
    proven = (
        f"proven: at most {at_most(certificate.gap, 3)} above the least possible cost"
        if result.status == "optimal"
        else f"best found: at most {at_most(certificate.gap)} above the least possible cost"
    )
    if found.worlds is not None and found.worlds.confidence is not None:
        proven = f"at a confidence of {found.worlds.confidence:.0%} {proven}"
    told = Text(proven, style="bold").append(
        ". No layout that the proof covers costs less than "
        f"${at_least(certificate.bound_usd_per_m_output_tokens)} per million output tokens "
        f"({counted(found.shapes, 'shape')} searched in {found.wall_s:.1f} s).",
        style="not bold",
    )
    print_sentence(console, told)
    if instance.operations.moe is not None:
        print_sentence(
            console,
            f"the busiest chips cost {found.skew_cost:.2%} more than if each stage spread the same expert load "
            "evenly over its chips",
        )
    for line in lines_beside(result):
        print_sentence(console, plain(line))
    _print_tables(console, instance, result.layout, result.evaluation)


def print_instead(result: Result) -> None:
    """Print what an answer would deploy in place of something else, and how fast that is."""
    console = make_console()
    groups = replica_groups(result.layout, result.evaluation)
    _print_deployment(console, groups, "What to deploy instead")
    _print_figures(console, result.evaluation)


def print_evaluation(
    instance: Instance, layout: Layout, evaluation: Evaluation, title: str = "What to deploy"
) -> None:
    """Print what the evaluator says of a layout."""
    console = make_console()
    _print_question(console, instance)
    if evaluation.violations:
        console.print(f"[bold red]{len(evaluation.violations)} violations[/bold red]")
        for violation in evaluation.violations[:20]:
            print_sentence(console, plain(violation), indent="  ")
    if evaluation.priced.replicas:
        _print_figures(console, evaluation)
        _print_tables(console, instance, layout, evaluation, title)


def _print_question(console: Console, instance: Instance) -> None:
    workload, slo = instance.workload, instance.slo
    cached = f" ({workload.cached_tokens:,} cached)" if workload.cached_tokens else ""
    charged = " (its one token is charged a decode step)" if workload.output_tokens == 1 else ""
    if workload.hold_s is not None:
        cached = (
            f" ({workload.return_rate:.0%} of conversations continue after {workload.hold_s:,.3g} s "
            f"and reuse the KV of {workload.cached_tokens:,} of these)"
        )
    print_sentence(
        console,
        plain(
            f"{instance.model.name} ({instance.model.native_dtype}) on {instance.cluster.name}: "
            f"{workload.input_tokens:,} input{cached} + {workload.output_tokens:,} output tokens{charged}, {targets(slo)}"
        ),
    )
    for warning in instance.model.named_warnings:
        print_sentence(console, plain(warning))


def _print_figures(console: Console, evaluation: Evaluation) -> None:
    e = evaluation
    if e.usd_per_m_output_tokens is None:
        return
    assert e.output_tokens_per_s is not None
    assert e.output_tokens_per_s_per_gpu is not None
    assert e.requests_per_s is not None
    assert e.ttft_s is not None
    assert e.tpot_s is not None
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    paid = (
        "all working chips are paid"
        if e.chips_paid != e.chips_used
        else "all of them in use"
        if e.chips_paid > 1
        else "in use"
    )
    table.add_row(
        "cost",
        f"${amount(e.usd_per_m_output_tokens)} per million output tokens; ${amount(e.usd_per_m_tokens)} per "
        f"million tokens of input and output; ${e.usd_per_hour:,.2f}/h for {counted(e.chips_paid, 'chip')}, {paid}",
    )
    if e.assumed:
        table.add_row("assumed", plain("; ".join(e.assumed)))
    table.add_row(
        "throughput",
        f"{rate(e.output_tokens_per_s)} output tokens/s ({rate(e.output_tokens_per_s_per_gpu)} per chip), "
        f"{rate(e.requests_per_s, 1)} requests/s",
    )
    table.add_row(
        "latency",
        f"first token (TTFT) after {e.ttft_s * 1e3:,.0f} ms at worst, {(e.ttft_mean_s or 0) * 1e3:,.0f} ms "
        f"on average; each further token (TPOT) {e.tpot_s * 1e3:.2f} ms",
    )
    if e.intervals is not None:
        table.add_row(f"{e.intervals.confidence:.0%} range", interval_words(e.intervals))
    table.add_row("energy", f"{e.joules_per_output_token:,.2f} J per output token at rated power")
    table.add_row("chips", f"{e.chips_used} of {e.chips_total} in use")
    for use in e.kv_tiers:
        table.add_row(*_tier_words(use))
    table.add_row("limited by", plain(e.bottleneck or ""))
    for figure, basis in (e.provenance or {}).items():
        if figure in ("acceptance", "times", "expert_load", "money"):
            table.add_row(plain(f"basis of {figure.replace('_', ' ')}"), plain(basis))
    console.print(table, highlight=False)


def _tier_words(use: TierUse) -> tuple[str, str]:
    """A line about KV that waits or lies outside HBM."""
    what = "waiting conversations" if use.idle else "running sequences"
    place = {"hbm": "HBM", "host": "host memory"}.get(use.tier, use.tier)
    text = f"{use.sequences:,.0f} {what} keep {use.bytes / 1e12:.3g} TB in {place} of {use.role} replicas"
    if not use.idle:
        return "running KV", f"{text}; every pass reads it from there"
    if use.tier != "hbm":
        text += (
            f"; reloading one takes {use.reload_s * 1e3:,.0f} ms; the memory costs "
            f"${use.usd_per_hour:,.2f}/h"
        )
    return "idle KV", f"{text}; each return saves {use.saved_chip_s:.3g} chip-seconds"


def _print_tables(
    console: Console,
    instance: Instance,
    layout: Layout,
    evaluation: Evaluation,
    title: str = "What to deploy",
) -> None:
    groups = replica_groups(layout, evaluation)
    _print_deployment(console, groups, title)
    _print_memory(console, instance, groups)
    _print_time(console, groups)


def _print_deployment(console: Console, groups: list[ReplicaGroup], title: str) -> None:
    table = Table(title=title, title_justify="left", title_style="bold", box=None)
    for column in (
        "count", "role", "chips", "tp", "dp", "ep", "pp", "batch", "slots", "skew", "req/s",
    ):  # fmt: skip
        table.add_column(column, justify="left" if column == "role" else "right", no_wrap=True)
    for replica, price, members in groups:
        shape = replica.shape
        table.add_row(
            str(len(members)), replica.role, str(len(replica.chips)), str(shape.tp),
            str(shape.attention_dp), str(shape.ep), str(shape.pp), f"{shape.batch:,}",
            slots_words(replica),
            f"{max(stage.imbalance for stage in price.stages):.3f}",
            rate(float(price.service.requests_per_s), 2),
        )  # fmt: skip
    console.print()
    print_table(console, table)
    for replica, _, members in groups:
        places = "; ".join(chip_ranges(member.chips) for member in members[:4])
        more = f"; and {len(members) - 4} more" if len(members) > 4 else ""
        chips = counted(len(replica.chips), "chip")
        print_sentence(console, plain(f"{replica.role} on {chips}: {places}{more}"), indent="  ")
        if replica.apart is not None:
            own = [chip_ranges(stage.chips) for stage in replica.groups]
            batches = counted(replica.apart.microbatches, "microbatch", "microbatches")
            said = f"attention on {own[0]}; experts on {own[1]}; {batches}"
            print_sentence(console, plain(said), indent="    ")
        if len(replica.stages) > 1:
            stages = ", ".join(f"{stage.layers[0]}-{stage.layers[1]}" for stage in replica.stages)
            print_sentence(console, f"layers by stage: {stages}", indent="    ")
    for line in deployment_words(groups):
        print_sentence(console, line, indent="  ", style="dim")


def _print_memory(console: Console, instance: Instance, groups: list[ReplicaGroup]) -> None:
    table = Table(
        title="HBM used on the fullest chip, GB", title_justify="left", title_style="bold", box=None
    )
    for column in ("role", "chips", *MEMORY_KINDS, "used", "capacity"):
        table.add_column(column, justify="left" if column == "role" else "right")
    for replica, price, _ in groups:
        rows = []
        for stage, stage_price in zip(replica.groups, price.stages, strict=True):
            for place, chip in enumerate(stage.chips):
                kinds = [float(stage_price.memory[kind][place]) for kind in MEMORY_KINDS]
                rows.append((sum(kinds), kinds, instance.cluster.chip(chip).chip.hbm_bytes))
        used, kinds, capacity = max(rows, key=lambda row: row[0])
        table.add_row(
            replica.role, str(len(replica.chips)), *(f"{kind / 1e9:.1f}" for kind in kinds),
            f"{used / 1e9:.1f}", f"{capacity / 1e9:.1f}",
        )  # fmt: skip
    console.print()
    print_table(console, table)


def _print_time(console: Console, groups: list[ReplicaGroup]) -> None:
    parts: Counter[str] = Counter()
    per_group = []
    for _, price, _ in groups:
        own: Counter[str] = Counter()
        for stage in price.stages:
            own.update(stage.parts)
        per_group.append(own)
        parts.update(own)
    table = Table(
        title="Time of one pass by operation, ms", title_justify="left", title_style="bold", box=None,
    )  # fmt: skip
    table.add_column("operation")
    for replica, _, _ in groups:
        table.add_column(f"{replica.role} {len(replica.chips)}", justify="right")
    for part, total in parts.most_common():
        if total > 0:
            table.add_row(part.replace("_", " "), *(f"{own[part] * 1e3:.2f}" for own in per_group))
    table.add_row("whole pass", *(f"{sum(own.values()) * 1e3:.2f}" for own in per_group))
    console.print()
    print_table(console, table)
