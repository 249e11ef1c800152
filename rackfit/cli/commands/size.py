"""``rackfit size``: how many whole racks or nodes, of which kind, carry a rate with its peak and a loss."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackfit.cli import percentiles, question

if TYPE_CHECKING:
    from costmodel.question.scenario import Scenario
    from solver.plan.sizing.mix import Mix
    from solver.plan.sizing.mix_replay import MixReplay, PartReplay
    from solver.plan.sizing.size import Sized, Wanted

#: what each kind takes, what was wanted, the cheapest mix of several kinds, and kinds left out with the reason
Answer = tuple["list[Sized]", "Wanted", "Mix | None", dict[str, str]]

#: chips that may be lost, at most
_MOST_SPARE = 100_000


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
        str,
        typer.Option(
            help="node or rack: one unit may be lost; or a number of chips: as many units as hold them."
        ),
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
        from solver.clock import Clock
        from solver.plan.sizing.carried import Units
        from solver.plan.sizing.mix import mix
        from solver.plan.sizing.mix_judged import mix_at_random, mix_for_traffic
        from solver.plan.sizing.size import Wanted, size

        scenario, kinds = _checked(
            asked, buy, None if traffic is not None and not rate else rate, peak, spare, gap, seed, time_limit,
        )  # fmt: skip
        given = percentiles.Percentiles(traffic, ttft_p99, tpot_p99, goodput, peak=1.0, spare="0")
        requests = given.read(scenario.model_copy(update={"rate": rate or None}), seed)
        mean = requests.requests.rate if requests is not None and not rate else rate
        units = spare in ("node", "rack")
        wanted = Wanted(mean, peak, int(units), 0 if units else int(spare))
        clock = stop.clock = Clock(time_limit, started=stop.started)

        searched: dict[str, Units] = {}
        left_out: dict[str, str] = {}
        together: list[Mix | None] = [None]

        def keep(sized: list[Sized]) -> None:
            stop.kept = lambda: (
                sized,
                wanted,
                together[0],
                left_out | _unsized(kinds, sized, left_out),
            )
            if 1 < len(sized) == len(kinds) - len(left_out) and requests is None:
                together[0] = mix(searched, sized, wanted, clock=clock, seed=seed)

        def better(one: Mix) -> None:
            together[0] = one

        found = size(
            scenario, kinds, wanted, clock=clock, gap=gap, seed=seed, replays=replay, on_sized=keep, searched=searched,
            asked=requests, left_out=left_out,
        )  # fmt: skip
        stop.kept = lambda: (found, wanted, together[0], left_out)
        if len(found) > 1 and requests is not None:
            together[0] = mix_for_traffic(
                searched, found, wanted, clock=clock, seed=seed, on_better=better
            )
        elif replay and together[0] is not None:
            together[0] = mix_at_random(
                searched, found, wanted, together[0], clock=clock, seed=seed, on_better=better
            )
        return found, wanted, together[0], left_out

    stop.run(work, lambda found: _write(*found, as_json=json, replays=replay))


def _unsized(kinds: list[str], sized: list[Sized], left_out: dict[str, str]) -> dict[str, str]:
    """Kinds that the time limit kept from being looked at, with that reason."""
    from solver.plan.sizing.size import NO_TIME

    seen = {one.kind for one in sized} | left_out.keys()
    return {kind: NO_TIME for kind in kinds if kind not in seen}


def _write(
    found: list[Sized],
    wanted: Wanted,
    together: Mix | None,
    left_out: dict[str, str],
    *,
    as_json: bool,
    replays: bool,
) -> None:
    """Print the answer."""
    from rackfit.documents.output import write_whole
    from rackfit.report.size_words import print_sizes

    if not as_json:
        print_sizes(found, wanted, together, left_out, replays=replays)
        return
    document = {
        "wanted": asdict(wanted),
        "kinds": [_as_dict(one) for one in found],
        "left_out": [{"kind": kind, "reason": reason} for kind, reason in left_out.items()],
        "mix": None if together is None else _mix_as_dict(together),
    }
    write_whole(json_module.dumps(document, indent=1, allow_nan=False) + "\n", None)


def _checked(
    asked: question.Asked,
    buy: str,
    rate: float | None,
    peak: float,
    spare: str,
    gap: float,
    seed: int,
    time_limit: float | None,
) -> tuple[Scenario, list[str]]:
    """The question on the first kind that can be asked about, and the kinds; raises ``InstanceError`` with everything wrong.

    ``rate``: ``None`` where traffic has one.
    """
    from costmodel.question.instance import resolve_instance
    from solver.clock import check_seed, check_time_limit
    from solver.plan.sizing.size import check_kinds
    from topology.errors import InstanceError, Problem, noted, option

    problems: list[Problem] = []
    kinds = list(dict.fromkeys(name.strip() for name in buy.split(",") if name.strip()))
    known = []
    for kind in kinds:
        with noted(problems):
            check_kinds([kind])
            known.append(kind)
    if not kinds:
        problems.append(Problem(option("buy"), "is missing: name one or more clusters of one unit"))
    if rate == 0:
        problems.append(
            Problem(option("rate"), "is missing or 0: give the requests per second to serve")
        )
    elif rate is not None and not 1e-6 <= rate < 1e9:
        message = f"expected 0.000001 to below 1,000,000,000 requests per second, got {rate:g}"
        problems.append(Problem(option("rate"), message))
    if not 1 <= peak <= 1000:
        problems.append(Problem(option("peak"), f"expected 1 to 1000 times the mean, got {peak:g}"))
    digits = spare.isascii() and spare.isdecimal() and len(spare) < 7
    if spare not in ("node", "rack") and not (digits and int(spare) <= _MOST_SPARE):
        message = f"expected node, rack or a number of chips, got {spare[:40]!r}"
        problems.append(Problem(option("spare"), message))
    if not 0 <= gap < 1:
        problems.append(Problem(option("gap"), f"must be at least 0 and below 1, got {gap:g}"))
    with noted(problems):
        check_seed(seed)
    with noted(problems):
        check_time_limit(time_limit)
    refused: list[Problem] = []
    for kind in known or kinds[:1]:
        with noted(refused):
            scenario = replace(asked, cluster=kind).build()
            resolve_instance(scenario)
            break
    else:
        problems += refused
    if problems:
        raise InstanceError(dict.fromkeys(problems))
    return scenario, kinds


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
