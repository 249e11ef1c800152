"""A replay for people: percentiles, use of the pools, whether the queue grows."""

from __future__ import annotations

from rich.table import Table

from costmodel.findings import provenance
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.question.traffic.requests import Requests
from costmodel.question.traffic.reuse import reuse
from costmodel.replay.met import PERCENTILES, Met, Spread
from rackfit.console import make_console, print_sentence, print_table
from rackfit.quoting import plain
from rackfit.wording import BASES, amount, rate, rests_on

MEASURES = (
    ("TTFT", "ttft_s", 1.0, "s"),
    ("TPOT", "tpot_s", 1e3, "ms"),
    ("gap between tokens", "itl_s", 1e3, "ms"),
    ("whole request", "e2e_s", 1.0, "s"),
    ("wait for a pass", "queue_s", 1.0, "s"),
)


def print_replay(instance: Instance, layout: Layout, requests: Requests, met: Met) -> None:
    """Print what requests met."""
    console = make_console()
    for line in lines(instance, requests, met):
        print_sentence(console, plain(line))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "mean", *(f"P{p}" for p in PERCENTILES)):
        table.add_column(column, justify="left" if not column else "right")
    for name, field, factor, unit in MEASURES:
        spread: Spread = getattr(met, field)
        values = (spread.mean, spread.p50, spread.p90, spread.p95, spread.p99)
        table.add_row(name, *(f"{factor * value:,.4g} {unit}" for value in values))
    print_table(console, table)
    print_sentence(console, plain(f"basis: {rests_on(provenance(instance, layout), *BASES)}"))
    print_sentence(console, f"simulated in {met.wall_s:.1f} s")


def lines(instance: Instance, requests: Requests, met: Met) -> list[str]:
    """What a replay says, one claim a line."""
    given, asked = requests.input_tokens.mean(), requests.output_tokens.mean()
    found = [
        f"{instance.model.name} on {instance.cluster.name}: {met.requests:,} requests, "
        f"{met.rate:,.4g} per second, mean {given:,.0f} input and {asked:,.0f} output tokens",
        f"served: {rate(met.output_tokens_per_s)} output tokens/s over {met.duration_s:,.0f} s; "
        f"${amount(met.usd_per_m_output_tokens)} per million output tokens served",
    ]
    came_s = float(met.arrival_s.max())  # of a closed loop: when the last one began
    if 0 < came_s < met.e2e_s.p50:
        found.append(
            f"short: requests come for {came_s:,.3g} s, and half of them take longer than {met.e2e_s.p50:,.3g} s: the fleet may "
            "never fill; a longer run says more (--duration, where requests are drawn)"
        )
    if not met.stable:
        found.append(
            "overloaded: the queue grows, so that the percentiles depend on the length of this run"
        )
    if met.goodput is not None:
        slo = instance.slo
        targets = [f"TTFT {slo.ttft:g} s"] if slo.ttft is not None else []
        targets += [f"TPOT {slo.tpot * 1e3:g} ms"] if slo.tpot is not None else []
        found.append(f"goodput: {met.goodput:.2%} of requests meet {' and '.join(targets)}")
    use = ", ".join(f"{role} {share:.1%}" for role, share in met.utilisation.items())
    found.append(
        f"in use: {use}; KV filled to {met.kv_fill.mean:.1%} on average, P99 {met.kv_fill.p99:.0%}"
    )
    if met.prefix_hit_rate or len(requests.blocks):
        most = f"; one cache that never forgets would have {reuse(requests).most:.1%}"
        found.append(
            f"prefix hits: {met.prefix_hit_rate:.1%} of prompt tokens{most if len(requests.blocks) else ''}"
        )
    if met.put_back:
        found.append(f"{met.put_back:,} times a request was put back because KV was full")
    return found
