"""``rackfit flow``: which layers each of many unlike machines holds, so that most tokens flow through all of them."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackfit.cli import question
from rackfit.wording import amount

if TYPE_CHECKING:
    from costmodel.flow.question import FlowQuestion
    from solver.flow.search import FlowFound


def register(app: typer.Typer) -> None:
    """Add ``flow`` to the command line."""
    app.command("flow", no_args_is_help=True)(flow_command)


def flow_command(
    name: Annotated[
        str, typer.Argument(help="Machines, links and model: a shipped name or a file.")
    ],
    *,
    placement: Annotated[
        Path | None,
        typer.Option(help='Judge this placement ({"0": [first, last], ..}) instead of searching.'),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Rates from the cost model for this model (name or config.json) instead of those of the file; "
            "machines must name their chip."
        ),
    ] = None,
    workload: Annotated[
        str | None, typer.Option(help="Workload of these rates: name or file (default chat).")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Profile of these rates: physics, calibrated or a file.")
    ] = None,
    gap: Annotated[float, typer.Option(help="Stop when this gap is proven.")] = 0.0,
    time_limit: question.TimeLimit = None,
    seed: question.Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Write the placement here, as JSON.")] = None,
    json: question.AsJson = False,
) -> None:
    """Give each machine a range of layers so that most tokens flow from machine to machine, with a bound.

    Machines may be unlike, and links slow. The next machine of a request starts at the layer after the last
    one of the machine before; requests take every path there is. Rates are measured ones, from the file, or with
    --model those of the cost model. The value is the greatest flow, in tokens/s
    of prompts and answers together; no placement lets more flow than the bound.
    """
    from rackfit.cli.interrupts import Stop
    from rackfit.documents.output import check_writable, write_whole

    check_writable(out, besides=(Path(name), placement))
    limit = time_limit if time_limit is not None and 0 < time_limit < 1e9 else None
    stop: Stop[tuple[FlowQuestion, FlowFound]] = Stop("the first placement", limit)

    def work() -> tuple[FlowQuestion, FlowFound]:
        from costmodel.flow.judge import load_placement
        from costmodel.flow.question import load_flow
        from costmodel.flow.rates import priced
        from solver.clock import Clock, check_time_limit
        from solver.flow.search import FlowSearch, judged
        from topology.errors import InstanceError, Problem, noted

        problems: list[Problem] = []
        with noted(problems):
            check_time_limit(time_limit)
        if not 0 <= gap < 1e6:
            problems.append(Problem("--gap", f"must be at least 0, got {gap:g}"))
        for option, given in (("--workload", workload), ("--profile", profile)):
            if given is not None and model is None:
                message = "is for rates of the cost model: give --model too"
                problems.append(Problem(option, message))
        with noted(problems):
            asked = load_flow(name)
            if model is not None:
                asked = priced(asked, model, workload or "chat", profile or "calibrated")
        if problems:
            raise InstanceError(problems)
        clock = stop.clock = Clock(time_limit, started=stop.started)
        if placement is not None:
            return asked, judged(asked, load_placement(placement), clock=clock, seed=seed)
        search = FlowSearch(asked, clock=clock, seed=seed, gap=gap)
        stop.kept = lambda: (asked, search.best())
        return asked, search.run()

    def finish(answer: tuple[FlowQuestion, FlowFound]) -> None:
        asked, found = answer
        if out is not None:
            ranges = {str(node): list(held) for node, held in sorted(found.placement.items())}
            write_whole(json_module.dumps(ranges) + "\n", out)
        if json:
            document = json_module.dumps(_document(asked, found, seed), indent=1, allow_nan=False)
            write_whole(document + "\n", None)
        else:
            write_whole(_text(asked, found), None)

    stop.run(work, finish)


def _document(asked: FlowQuestion, found: FlowFound, seed: int) -> dict[str, Any]:
    from costmodel.flow.judge import usd_per_m_tokens

    return {
        "schema_version": 1,
        "status": "optimal" if found.optimal else "feasible",
        "question": asked.name,
        "model": asked.model.model_dump(),
        "rates_tokens_per_s": {
            kind: list(machine.tokens_per_s) for kind, machine in asked.machines.items()
        },
        "tokens_per_s": found.tokens_per_s,
        "bound_tokens_per_s": found.bound_tokens_per_s,
        "plain_bound_tokens_per_s": found.plain_bound_tokens_per_s,
        "gap": found.gap,
        "usd_per_hour": asked.usd_per_hour,
        "usd_per_m_tokens": usd_per_m_tokens(asked, found.tokens_per_s),
        "bound_usd_per_m_tokens": usd_per_m_tokens(asked, found.bound_tokens_per_s),
        "placement": {
            str(node): {"machine": asked.nodes[node], "layers": list(held)}
            for node, held in sorted(found.placement.items())
        },
        "unused": [node for node in range(len(asked.nodes)) if node not in found.placement],
        "seed": seed,
        "wall_s": found.wall_s,
    }


def _text(asked: FlowQuestion, found: FlowFound) -> str:
    from costmodel.flow.judge import usd_per_m_tokens

    layers, model = asked.model.layers, asked.model.name
    lines = [f"{asked.name}: {layers} layers of {model} on {len(asked.nodes)} machines", ""]
    lines.append(f"  flow   {found.tokens_per_s:12,.2f} tokens/s, prompts and answers together")
    gap = "no gap" if found.gap is None else f"gap {found.gap:.2%}"
    said = "proven optimal" if found.optimal else f"proven: no placement passes more; {gap}"
    lines.append(f"  bound  {found.bound_tokens_per_s:12,.2f} tokens/s, {said}")
    cost = usd_per_m_tokens(asked, found.tokens_per_s)
    if cost is not None:
        lines.append(
            f"  cost   {amount(cost):>12} USD per million tokens; all machines {asked.usd_per_hour:,.2f} USD/h"
        )
    lines.append(f"  time   {found.wall_s:12,.1f} s")
    by_range: dict[tuple[int, int], dict[str, list[int]]] = {}
    for node, held in sorted(found.placement.items()):
        by_range.setdefault(held, {}).setdefault(asked.nodes[node], []).append(node)
    lines += ["", "  layers    machines (numbers of nodes)"]
    for (first, last), kinds in sorted(by_range.items()):
        names = "; ".join(f"{kind} {', '.join(map(str, nodes))}" for kind, nodes in kinds.items())
        lines.append(f"  {f'{first}-{last}':<9} {names}")
    idle = [node for node in range(len(asked.nodes)) if node not in found.placement]
    if idle:
        lines.append(f"  {'none':<9} {', '.join(f'{asked.nodes[n]} {n}' for n in idle)}")
    return "\n".join(lines) + "\n"
