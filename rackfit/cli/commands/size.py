"""``rackfit size``: how many whole racks or nodes, of which kind, carry a rate with its peak and a loss."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackfit.cli import percentiles, question

if TYPE_CHECKING:
    from solver.plan.sizing.mix import Mix
    from solver.plan.sizing.mix_replay import MixReplay, PartReplay
    from solver.plan.sizing.size import Sized, Wanted

#: what each kind takes, what was wanted, and the cheapest mix of several kinds
Answer = tuple["list[Sized]", "Wanted", "Mix | None"]


def register(app: typer.Typer) -> None:
    """Add ``size`` to the command line."""
    app.command("size", no_args_is_help=True)(size_command)


@question.asking("cluster", "rate", "pay", "choose", "layer_slots")
def size_command(
    asked: question.Asked,
    *,
    buy: Annotated[str, typer.Option(help="Kinds to buy: cluster names, joined by commas.")] = "",
    rate: Annotated[
        float, typer.Option(help="Mean requests/s; with --traffic, that of the trace unless given.")
    ] = 0.0,
    traffic: percentiles.Traffic = None,
    ttft_p99: percentiles.TtftP99 = None,
    tpot_p99: percentiles.TpotP99 = None,
    goodput: percentiles.Goodput = None,
    peak: Annotated[float, typer.Option(help="The peak as a multiple of the mean rate.")] = 1.0,
    spare: Annotated[
        str, typer.Option(help="node or rack: one unit may be lost; or a number of chips.")
    ] = "0",
    replay: Annotated[
        bool, typer.Option("--replay", help="Buy what random arrivals at the peak need, too.")
    ] = False,
    time_limit: question.TimeLimit = None,
    gap: Annotated[float, typer.Option(help="Gap of each search.")] = 0.01,
    seed: question.Seed = 0,
    json: question.AsJson = False,
) -> None:
    """Find the fewest whole units of each kind that carry the rate's peak after a loss, and the cheapest mix of kinds.

    Every unit is paid at the mean rate. A smaller number than `least` is proven too few. With `--replay`, Poisson
    arrivals at the peak run through what a loss leaves, and the number grows until 99 % of them meet the targets. With
    `--traffic`, requests have unlike lengths, and units carry the peak where replays meet the percentiles. A mix is replayed
    then, after every loss, each kind with its share of the requests.
    """
    from rackfit.cli.interrupts import Stop

    limit = time_limit if time_limit is not None and 0 < time_limit < 1e9 else None
    stop: Stop[Answer] = Stop("the first kind was sized", limit)

    def work() -> Answer:
        from solver.clock import Clock, check_seed, check_time_limit
        from solver.plan.sizing.carried import Units
        from solver.plan.sizing.mix import mix
        from solver.plan.sizing.mix_judged import mix_at_random, mix_for_traffic
        from solver.plan.sizing.size import Wanted, size

        kinds = _checked(buy, None if traffic is not None and not rate else rate, peak, gap)
        check_seed(seed)
        check_time_limit(time_limit)
        scenario = replace(asked, cluster=kinds[0]).build()
        given = percentiles.Percentiles(traffic, ttft_p99, tpot_p99, goodput, peak=1.0, spare="0")
        requests = given.read(scenario.model_copy(update={"rate": rate or None}), seed)
        mean = requests.requests.rate if requests is not None and not rate else rate
        wanted = Wanted(mean, peak, _spare_units(spare, kinds))
        clock = stop.clock = Clock(time_limit, started=stop.started)

        searched: dict[str, Units] = {}
        together: list[Mix | None] = [None]

        def keep(sized: list[Sized]) -> None:
            stop.kept = lambda: (sized, wanted, together[0])
            if len(sized) > 1 and requests is None:
                together[0] = mix(searched, sized, wanted, clock=clock, seed=seed)

        def better(one: Mix) -> None:
            together[0] = one

        found = size(
            scenario, kinds, wanted, clock=clock, gap=gap, seed=seed, replays=replay, on_sized=keep, searched=searched, asked=requests
        )  # fmt: skip
        stop.kept = lambda: (found, wanted, together[0])
        if len(found) > 1 and requests is not None:
            together[0] = mix_for_traffic(
                searched, found, wanted, clock=clock, seed=seed, on_better=better
            )
        elif replay and together[0] is not None:
            together[0] = mix_at_random(
                searched, found, wanted, together[0], clock=clock, seed=seed, on_better=better
            )
        return found, wanted, together[0]

    stop.run(work, lambda found: _write(*found, as_json=json, replays=replay))


def _write(
    found: list[Sized], wanted: Wanted, together: Mix | None, *, as_json: bool, replays: bool
) -> None:
    """Print the answer."""
    from rackfit.documents.output import write_whole

    if not as_json:
        _print(found, wanted, together, replays=replays)
        return
    document = {
        "wanted": asdict(wanted),
        "kinds": [_as_dict(one) for one in found],
        "mix": None if together is None else _mix_as_dict(together),
    }
    write_whole(json_module.dumps(document, indent=1, allow_nan=False) + "\n", None)


def _checked(buy: str, rate: float | None, peak: float, gap: float) -> list[str]:
    """The kinds; raises ``InstanceError`` with everything wrong with the options. ``rate``: ``None`` where traffic has one."""
    from topology.errors import InstanceError, Problem

    problems = []
    kinds = list(dict.fromkeys(name.strip() for name in buy.split(",") if name.strip()))
    if not kinds:
        problems.append(Problem("--buy", "is missing: name one or more clusters of one unit"))
    if rate == 0:
        problems.append(Problem("--rate", "is missing: give the requests per second to serve"))
    elif rate is not None and not 1e-6 <= rate < 1e9:
        message = f"expected requests per second from 0.000001, got {rate:g}"
        problems.append(Problem("--rate", message))
    if not 1 <= peak <= 1000:
        problems.append(Problem("--peak", f"expected 1 to 1000 times the mean, got {peak:g}"))
    if not 0 <= gap < 1:
        problems.append(Problem("--gap", f"must be at least 0 and below 1, got {gap:g}"))
    if problems:
        raise InstanceError(problems)
    return kinds


def _spare_units(text: str, kinds: list[str]) -> int:
    """Whole units that may be lost: one for a node or a rack, as many as hold the chips for a number."""
    from topology import load_cluster
    from topology.errors import InstanceError, Problem

    if text in ("node", "rack"):
        return 1
    if not text.isascii() or not text.isdecimal() or int(text) > 100_000:
        raise InstanceError(
            Problem("--spare", f"expected node, rack or a number of chips, got {text[:40]!r}")
        )
    smallest = min(len(load_cluster(kind).chips) for kind in kinds)
    return -(-int(text) // smallest)


def _as_dict(one: Sized) -> dict[str, Any]:
    found = asdict(one)
    found["tried"] = [
        {"units": t.units, "requests_per_s": t.requests_per_s, "most": t.most_requests_per_s}
        for t in one.tried
    ]
    return found | {"met": one.met}


def _mix_as_dict(one: Mix) -> dict[str, Any]:
    found = asdict(replace(one, replays=())) | {"gap": one.gap}
    found["replays"] = [
        {
            "lost": seen.lost,
            **_figures(seen),
            "parts": [
                {
                    "kind": part.part.kind, "units": part.part.units, "share": part.share,
                    "requests_per_s": part.part.requests_per_s, **_figures(part),
                }
                for part in seen.parts
            ],
        }
        for seen in one.replays
    ]  # fmt: skip
    return found


def _figures(seen: MixReplay | PartReplay) -> dict[str, Any]:
    named = ("requests", "ttft_p99_s", "tpot_p99_s", "goodput")
    return {name: getattr(seen, name) for name in named}


def _replay_line(one: Sized) -> str:
    """What random arrivals at the peak said of one kind."""
    if not one.replays:
        return f"{one.kind}: random arrivals were not replayed, the time was over"
    last = one.replays[-1]
    words = (
        f"{one.kind}: {last.requests:,} random requests at the peak on {last.units} units: "
        f"TTFT P99 {last.ttft_p99_s:.2f} s, TPOT P99 {last.tpot_p99_s * 1e3:.1f} ms, "
        f"{'meets' if last.meets else 'misses a target'}"
    )
    first = one.replays[0]
    if first.units < last.units:
        words += f"; {first.units}, enough for even arrivals, miss"
    return f"{words}; {one.reason}" if one.reason else words


def _mix_line(one: Mix, *, replays: bool) -> str:
    """The cheapest mix in words."""
    from solver.verify import ROUNDING

    proven = "not proven" if one.gap is None else f"proven within {one.gap:.1%}"
    sure = one.gap is not None and one.gap <= ROUNDING
    if len(one.units) == 1:
        alone = f"${one.one_kind_usd_per_hour:,.2f}/h"
        if sure:
            return f"no mix of these kinds costs less than {alone}"
        return f"no mix was found that costs less than {alone} ({proven})"
    units = " and ".join(f"{number} {kind}" for kind, number in one.units.items())
    less = 1.0 - one.usd_per_hour / one.one_kind_usd_per_hour
    words = (
        f"the cheapest mix{'' if sure else ' found'}: {units}, ${one.usd_per_hour:,.2f}/h, {less:.1%} less than one kind ({proven}), "
        f"{one.headroom:.1%} over the peak after the worst loss"
    )
    if one.replays:
        return f"{words}\n{_mix_replay_line(one)}"
    return f"{words}; not replayed" if replays else words


def _mix_replay_line(one: Mix) -> str:
    """What the requests of a mix met, all together."""
    first, tokens = (
        max(getattr(seen, name) for seen in one.replays) for name in ("ttft_p99_s", "tpot_p99_s")
    )
    count = sum(seen.requests for seen in one.replays)
    losses = "after every loss: " if any(seen.lost for seen in one.replays) else ""
    return (
        f"its {count:,} replayed requests, {losses}TTFT P99 {first:.2f} s, TPOT P99 {tokens * 1e3:.1f} ms; "
        "each kind's share meets the targets"
    )


def _print(found: list[Sized], wanted: Wanted, together: Mix | None, *, replays: bool) -> None:
    from rich.table import Table

    from rackfit.report.render import make_console

    console = make_console()
    loss = f", {wanted.spare} unit{'s' * (wanted.spare > 1)} lost" if wanted.spare else ""
    console.print(
        f"{wanted.rate:g} requests/s on average, {wanted.peak_rate:g} at the peak{loss}",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (
        "kind",
        "units",
        "proven least",
        "chips",
        "$/h",
        "$/M output at the mean",
        "headroom",
    ):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for one in found:
        if one.count is None:
            continue
        table.add_row(
            one.kind, str(one.count), str(one.least), f"{one.count * one.chips_per_unit:,}",
            f"{one.usd_per_hour:,.2f}", f"{one.usd_per_m_output_tokens:.4f}", f"{one.headroom:.1%}",
        )  # fmt: skip
    console.print(table)
    if together is not None:
        words = _mix_line(together, replays=replays)
        console.print(words, highlight=False, markup=False, soft_wrap=True)
    for one in found:
        if one.count is None:
            console.print(
                f"{one.kind}: {one.reason}", highlight=False, markup=False, soft_wrap=True
            )
    for one in found if replays else ():
        if one.count is not None:
            console.print(_replay_line(one), highlight=False, markup=False, soft_wrap=True)
