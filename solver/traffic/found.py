"""A layout found for traffic, and the answer that it makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from costmodel.evaluate import SECONDS_PER_HOUR, Evaluation, evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.replay.met import Met
from costmodel.replay.targets import BEYOND_P99
from solver.answer import ForTraffic, PutOff, SearchResult
from solver.certificate import Certificate
from solver.clock import Clock
from solver.fleet.asked import Fleet
from solver.place.assemble import assemble
from solver.place.mend import mended
from solver.rounds import Search
from solver.search import search
from solver.shapes.shapes import ROLES
from solver.traffic.apart import dealt, hosts_apart
from solver.traffic.asked import Asked
from solver.traffic.fleets import Fleets
from solver.traffic.judge import Verdict
from solver.traffic.ways import Looking, Way
from solver.verify import ROUNDING, verify
from topology.errors import NoFeasibleLayout

#: layouts that missed the targets on a fresh draw, of which one may be the answer
_NEARLY = 2


@dataclass(frozen=True)
class Found:
    """A layout with its verdict; ``has``: capacity over the rate of its fleet, by role (0: none); how it was found."""

    fleet: Fleet
    layout: Layout
    evaluation: Evaluation
    verdict: Verdict
    has: dict[str, float]
    fleets: Fleets
    way: Way


@dataclass(frozen=True)
class Steady:
    """Steady answers at the mean lengths and at their spread, of the first way.

    ``mean``: that of the other where all lengths are alike; ``None`` where no steady answer meets the targets, for
    what ``failed`` says, so that ``spread`` is one without them.
    """

    mean: SearchResult | None
    spread: SearchResult
    failed: NoFeasibleLayout | None = None

    @classmethod
    def of(cls, way: Way, how: Looking) -> Steady:
        """Those of a way; raises what searches raise."""
        if way.failed is not None or way.own.mean.scenario == way.own.spread.scenario:
            return cls(None if way.failed is not None else way.spread, way.spread, way.failed)
        mean = search(
            way.own.mean, clock=how.clock.follower(), gap=how.gap, seed=how.seed, workers=how.workers,
            brief=True,
        )  # fmt: skip
        return cls(mean, way.spread)


def answered(
    asked: Asked,
    steady: Steady,
    chunks: tuple[int, ...],
    found: Found,
    certificate: Certificate,
    target: float,
    wall_s: float,
) -> SearchResult:
    """The answer that a layout makes, proven to a gap of ``target`` or not. ``chunks``: those that were looked at."""
    met = found.verdict.met
    assert met is not None  # what is found has met the targets
    usd = found.evaluation.usd_per_hour or 0.0
    requests = asked.requests
    served = requests.rate * float(requests.output_tokens.mean())
    proven = certificate.gap <= max(target, ROUNDING)
    return replace(
        steady.spread,
        status="optimal" if proven else "feasible",
        layout=found.layout,
        evaluation=found.evaluation,
        certificate=certificate,
        wall_s=wall_s,
        proof_s=wall_s if proven else None,
        instance=_judged(found.way.own.spread, found.layout),
        traffic=ForTraffic(
            met=met,
            targets=asked.targets,
            runs=len(found.verdict.runs),
            losses=found.verdict.after,
            confirmed=found.verdict.confirmed,
            draws=found.verdict.draws,
            peak=asked.peak,
            mean_usd_per_hour=steady.mean.evaluation.usd_per_hour if steady.mean else None,
            spread_usd_per_hour=steady.spread.evaluation.usd_per_hour if steady.mean else None,
            usd_per_hour=usd,
            usd_per_m_output_tokens=usd / SECONDS_PER_HOUR / served * 1e6,
            loads={role: 1.0 / has for role, has in found.has.items() if has},
            prefill_chunk_tokens=found.way.chunk,
            chunks_tried=chunks,
            under_way=found.way.judge.course.under_way is not None,
            put_off=_put_off(asked, met) if found.way.order == "shortest" else None,
        ),
    )


def _put_off(asked: Asked, met: Met) -> PutOff:
    """What the longest hundredth of the prompts met."""
    tokens = asked.requests.input_tokens
    least = int(np.quantile(tokens, 1.0 - BEYOND_P99, method="higher"))
    ttft = met.ttft[tokens >= least]
    late = float((ttft > (asked.targets.ttft_p99_s or inf)).mean())
    return PutOff(least, float(np.median(ttft)), late)


def _judged(instance: Instance, layout: Layout) -> Instance:
    """The question of an answer; its targets are told to be those of replays where a steady state misses them."""
    if not evaluate(instance, layout).violations:
        return instance
    slo = instance.slo.model_copy(update={"of_replays": True})
    return replace(instance, scenario=instance.scenario.model_copy(update={"slo": slo}))


def capacities(fleet: Fleet, needs: Mapping[str, float], rate: float) -> dict[str, float]:
    """Capacity over the rate by role, beside what mixed replicas serve (0: the fleet has none); ``needs``: was asked for."""
    counted: dict[str, float] = dict.fromkeys(ROLES, 0.0)
    for item, _ in fleet.stands:
        counted[ROLES[item.role]] += item.requests_per_s
    pooled = min(counted["prefill"], counted["decode"])
    return {
        role: needs[role] * ((pooled if role == "mixed" else own) + counted["mixed"]) / rate
        if own
        else 0.0
        for role, own in counted.items()
    }


def as_they_come(found: Found | None, ways: Sequence[Way], clock: Clock) -> Found | None:
    """The same layout with prompts in the order in which they come, where it meets all targets like that, too: no prompt is put off."""
    for way in ways:
        if clock.over or found is None or way.shortest is not found.way:
            continue
        if way.judge.judge(found.layout).meets:
            verdict = way.judge.confirm(found.layout, lambda: clock.over)
            if verdict.meets and verdict.confirmed:
                return replace(found, way=way, verdict=verdict)
    return found


def nothing_found(
    asked: Asked, last: Verdict | None, failed: NoFeasibleLayout | None, *, clock: Clock
) -> Exception:
    """Why no layout was found; ``last``: the verdict on the last one, ``failed``: why none is steady, ``clock``: of the search."""
    if clock.over:
        return clock.late("a layout whose replay meets the targets")
    if failed is not None:
        return NoFeasibleLayout(
            f"{failed}; of small fleets of equal mixed replicas none meets the percentiles when it is replayed",
            proven=False,
        )
    carried = f"layouts carry {asked.peak_rate:,.4g} requests/s in a steady state"
    more = "fewer requests/s, looser targets or more chips would do"
    if last is None:
        return NoFeasibleLayout(
            f"{carried}, but none was replayed: the chips do not allow as much as queues ask for, or a long prompt is late even "
            f"alone; {more}",
            proven=False,
        )
    worst = last.runs[-1]
    return NoFeasibleLayout(
        f"{carried}, but of those found none meets the percentiles when it is replayed: with the last one "
        f"{worst.late_first:.1%} of first tokens and {worst.slow_tokens:.1%} of answers were too slow; {more}",
        proven=False,
    )


def nearly_met(nearly: Sequence[Found], clock: Clock) -> Found | None:
    """The cheapest layout that missed the targets on one fresh draw and meets them on 19 of 20 others."""
    for found in sorted(nearly, key=lambda one: one.fleet.usd_per_hour)[:_NEARLY]:
        draws = found.way.judge.counted(found.layout, lambda: clock.over)
        if draws is not None:
            return replace(found, verdict=replace(found.verdict, draws=draws))
    return None


def standing(
    instance: Instance, fleet: Fleet, search: Search, spare: str | int, seed: int
) -> tuple[Layout, Evaluation] | None:
    """A fleet on its chips, with the evaluator's word; ``None`` where it cannot stand.

    Where a unit may be lost (``spare``), replicas of a role are dealt over the units if that is feasible.
    """
    layout = assemble(instance, fleet, search.placed)
    evaluation = evaluate(instance, layout)
    if spare:
        apart_fleet = dealt(fleet, search.classes, search.clock, seed)
        given = hosts_apart(instance, apart_fleet, spare)
        wide = assemble(instance, apart_fleet, search.placed, given)
        if (apart := evaluate(instance, wide)).feasible:
            layout, evaluation = wide, apart
    if evaluation.violations:
        left = mended(instance, layout, evaluation)
        if left is None and not search.regular:
            return None
        layout, evaluation = left or (layout, evaluation)
    verify(instance, float("inf"), evaluation)
    return layout, evaluation
