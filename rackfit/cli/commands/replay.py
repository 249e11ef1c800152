"""``rackfit replay``: run requests through a written layout, one by one, and say what each met."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rackfit.cli import question

if TYPE_CHECKING:
    from costmodel.question.instance import Instance
    from costmodel.question.traffic.requests import Requests
    from costmodel.replay.met import Met

#: requests that are drawn for --rate and --concurrency where no duration is given
_COUNT = 10_000
#: requests that are drawn for each that --concurrency keeps in flight
_PER_PLACE = 10


def register(app: typer.Typer) -> None:
    """Add ``replay`` to the command line."""
    app.command("replay", no_args_is_help=True)(replay_command)


def replay_command(
    layout: Annotated[Path, typer.Argument(help="A document of rackfit solve.")],
    *,
    traffic: Annotated[
        str | None, typer.Option(help="Traffic: a catalogue name, a trace (CSV, JSONL) or YAML.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="Requests/s; alone: the workload's lengths, else the traffic rescaled."),
    ] = None,
    cv: Annotated[
        float, typer.Option(help="Coefficient of variation of the gaps; 1 is Poisson.")
    ] = 1.0,
    concurrency: Annotated[
        int | None, typer.Option(help="Closed loop: keep so many requests in flight.")
    ] = None,
    duration: Annotated[float | None, typer.Option(help="Seconds of arrivals.")] = None,
    block_tokens: Annotated[int | None, typer.Option(help="Tokens of a block of hash_ids.")] = None,
    routing: Annotated[
        Literal["least-loaded", "round-robin", "prefix-aware"],
        typer.Option(help="Which replica a request goes to."),
    ] = "least-loaded",
    prompt_order: Annotated[
        Literal["first-come", "shortest"] | None,
        typer.Option(help="Which waiting prompt is next; by default as the layout was found."),
    ] = None,
    host_tier: Annotated[
        bool, typer.Option("--host-tier", help="Prefix blocks stay in the hosts' memory too.")
    ] = False,
    seed: question.Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="Write what each request met here (CSV).")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page here.")] = None,
    json: question.AsJson = False,
) -> None:
    """Run requests through a layout over time: percentiles of TTFT and TPOT, goodput, use of the pools.

    Exit code 0, also where targets are missed: the figures say so.
    """
    import json as json_module

    from costmodel.replay.replay import Course, replay
    from rackfit.documents.output import check_writable, write_whole
    from rackfit.documents.result import SCHEMA_VERSION, read_result

    _check(traffic, rate, cv, concurrency, duration, block_tokens)
    check_writable(
        out, page=report, besides=(layout, Path(traffic) if traffic is not None else None)
    )
    instance, decision, _ = read_result(layout)
    requests = _requests(instance, traffic, rate, cv, concurrency, duration, block_tokens, seed)
    course = Course.of(instance, routing=routing, in_flight=concurrency, host_tier=host_tier)
    if prompt_order is not None:
        course = replace(course, order=prompt_order)
    met = replay(instance, decision, requests, course)
    if out is not None:
        write_whole(_table(requests, met), out)
    if report is not None:
        from rackfit.report.replay_page import replay_page

        write_whole(replay_page(instance, decision, requests, met), report)
    if json:
        document: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "instance": instance.describe(),
            "replay": met.as_dict(),
        } | met.as_dict()
        write_whole(json_module.dumps(document, indent=1, allow_nan=False) + "\n", None)
    else:
        from rackfit.report.replay_words import print_replay

        print_replay(instance, decision, requests, met)


def _check(
    traffic: str | None,
    rate: float | None,
    cv: float,
    concurrency: int | None,
    duration: float | None,
    block_tokens: int | None,
) -> None:
    """Raise ``InstanceError`` with everything wrong with the options."""
    from costmodel.question.spread import MAX_TOKENS
    from topology.errors import InstanceError, Problem, either, option

    problems = []
    if traffic is None and rate is None and concurrency is None:
        ways = either(option("traffic"), option("rate"), option("concurrency"))
        problems.append(Problem("replay", f"give {ways}"))
    if rate is not None and concurrency is not None:
        problems.append(
            Problem(
                option("concurrency"),
                f"a closed loop has no rate of arrivals; leave out {option('rate')}",
            )
        )
    if rate is not None and not 1e-6 <= rate < 1e9:
        message = f"expected 0.000001 to below 1,000,000,000 requests per second, got {rate:g}"
        problems.append(Problem(option("rate"), message))
    if not 0.01 <= cv <= 100:
        problems.append(Problem(option("cv"), f"expected a number from 0.01 to 100, got {cv:g}"))
    if block_tokens is not None and not 1 <= block_tokens <= MAX_TOKENS:
        message = f"expected 1 to {MAX_TOKENS:,} tokens, got {block_tokens}"
        problems.append(Problem(option("block-tokens"), message))
    if block_tokens is not None and traffic is None:
        problems.append(
            Problem(option("block-tokens"), f"is for {option('traffic')} with hash_ids")
        )
    if cv != 1.0 and (traffic is not None or concurrency is not None):
        problems.append(
            Problem(option("cv"), f"is for {option('rate')} alone: traffic brings its own arrivals")
        )
    if concurrency is not None and not 1 <= concurrency <= 10_000_000:
        problems.append(
            Problem(option("concurrency"), f"expected 1 to 10000000 requests, got {concurrency}")
        )
    if duration is not None and not 0 < duration < 1e9:
        problems.append(
            Problem(option("duration"), f"expected seconds above 0 and below 1e9, got {duration:g}")
        )
    if duration is not None and concurrency is not None:
        problems.append(
            Problem(
                option("duration"),
                "is for arrivals; a closed loop runs all requests of its traffic",
            )
        )
    if problems:
        raise InstanceError(problems)


def _requests(
    instance: Instance,
    traffic: str | None,
    rate: float | None,
    cv: float,
    concurrency: int | None,
    duration: float | None,
    block_tokens: int | None,
    seed: int,
) -> Requests:
    from costmodel.question.traffic.description import Arrivals, steady
    from costmodel.question.traffic.load import load_traffic
    from costmodel.question.traffic.requests import MOST_DRAWN, drawn_count
    from topology.errors import InstanceError, Problem, option

    if traffic is not None:
        return load_traffic(
            traffic, rate=rate, duration_s=duration, seed=seed, block_tokens=block_tokens
        )
    process: Literal["poisson", "gamma"] = "poisson" if cv == 1.0 else "gamma"
    arrivals = Arrivals(process=process, rate=rate or 1.0, cv=cv)
    count = _COUNT
    if duration is not None:
        count = drawn_count(arrivals.rate * duration, option("duration"))
    if concurrency is not None:
        if concurrency * _PER_PLACE > MOST_DRAWN:
            message = (
                f"{concurrency:,} in flight need {concurrency * _PER_PLACE:,} requests; "
                f"at most {MOST_DRAWN // _PER_PLACE:,} in flight are drawn for"
            )
            raise InstanceError(Problem(option("concurrency"), message))
        count = max(count, _PER_PLACE * concurrency)
    return steady(instance.workload, arrivals, count, seed)


def _table(requests: Requests, met: Met) -> str:
    """What each request met, as CSV."""
    columns = (
        met.arrival_s, requests.input_tokens, requests.output_tokens, met.ttft, met.tpot,
        met.ends_s - met.arrival_s,
    )  # fmt: skip
    rows = zip(*(column.tolist() for column in columns), strict=True)
    text = (
        f"{t:.6f},{given},{asked},{ttft:.6f},{tpot:.6f},{e2e:.6f}"
        for t, given, asked, ttft, tpot, e2e in rows
    )
    return "\n".join(("t_s,input_tokens,output_tokens,ttft_s,tpot_s,e2e_s", *text)) + "\n"
