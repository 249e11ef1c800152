"""Layouts for traffic whose prompts share prefixes: with blocks in HBM alone, and in the hosts' memory where that pays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from costmodel.question.scenario import Scenario
from costmodel.replay.fleet import host_room
from solver.answer import PrefixUse, Progress, SearchResult
from solver.clock import Clock
from solver.traffic.asked import Asked, Kept, questions
from solver.traffic.search import search_traffic
from solver.traffic.ways import first_of
from solver.verify import ROUNDING
from topology.errors import InstanceError, NoFeasibleLayout, NoLayoutInTime, Problem, option


def search_prefixes(
    scenario: Scenario,
    asked: Asked,
    *,
    clock: Clock,
    gap: float = 0.01,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
    workers: int = 1,
) -> SearchResult:
    """The cheapest answer of those that keep blocks where ``asked.prefixes`` says; the first of those that cost as much.

    Each search gets an equal part of the time that is left. Raises what :func:`solver.traffic.search.search_traffic` raises
    where no kind has an answer, and ``InstanceError`` where requests have no blocks or no chip has a host tier.
    """
    kinds: tuple[Kept, ...] = ("hbm", "host") if asked.prefixes == "any" else (asked.prefixes,)
    if asked.prefixes == "any" and not _hosts(scenario, asked):
        kinds = ("hbm",)
    _check(scenario, asked, kinds)
    found: dict[Kept, SearchResult] = {}
    failed: Exception | None = None
    for number, kind in enumerate(kinds):
        own = clock.follower()
        if own.limit_s is not None:
            own.limit_s /= len(kinds) - number
        clock.kept = partial(_so_far, asked, found, kind, own)
        try:
            found[kind] = search_traffic(
                scenario, replace(asked, prefixes=kind), clock=own, gap=gap, seed=seed,
                on_progress=on_progress, workers=workers,
            )  # fmt: skip
        except (NoFeasibleLayout, NoLayoutInTime) as error:
            failed = error
    best = _best(asked, found)
    if best is None:
        assert failed is not None
        raise failed
    return best


def _check(scenario: Scenario, asked: Asked, kinds: Sequence[Kept]) -> None:
    if not len(asked.requests.blocks):
        raise InstanceError(
            Problem(
                option("prefixes"),
                "the traffic has no hash_ids: nothing is known of what prompts share",
            )
        )
    if "host" in kinds and not _hosts(scenario, asked):
        raise InstanceError(
            Problem(
                option("prefixes"), "not every chip of the cluster has a host tier: ask for hbm"
            )
        )


def _hosts(scenario: Scenario, asked: Asked) -> bool:
    """Whether every chip has a tier in its host's memory."""
    chips = questions(first_of(scenario, asked), asked).mean.cluster.usable
    return all(placed.chip.tier("host") is not None for placed in chips)


def _so_far(
    asked: Asked, found: Mapping[Kept, SearchResult], kind: Kept, clock: Clock
) -> SearchResult | None:
    return _best(asked, {**found, kind: clock.kept()})


def _best(asked: Asked, found: Mapping[Kept, SearchResult | None]) -> SearchResult | None:
    """The cheapest, with what blocks do for it."""
    best: tuple[float, Kept, SearchResult] | None = None
    usd: dict[Kept, float] = {}
    for kind, one in found.items():
        if one is None:
            continue
        usd[kind] = one.evaluation.usd_per_m_output_tokens or 0.0
        if best is None or usd[kind] < best[0] * (1 - ROUNDING):
            best = usd[kind], kind, one
    if best is None:
        return None
    _, kind, chosen = best
    assert chosen.traffic is not None
    assert chosen.instance is not None
    per_token = chosen.instance.request_kv_bytes / chosen.instance.workload.input_tokens
    rooms = [
        host_room(chosen.instance, replica)
        for replica in chosen.layout.replicas
        if kind == "host" and replica.role != "decode"
    ]
    steady = replace(asked, prefixes=kind).steady
    use = PrefixUse(
        tier=kind,
        host_bytes=sum(room.tokens * per_token for room in rooms if room is not None),
        hit_rate=chosen.traffic.met.prefix_hit_rate,
        most_hit_rate=float(steady.cached_tokens.sum() / steady.input_tokens.sum()),
        hbm_usd_per_m_output_tokens=usd.get("hbm"),
    )
    return replace(chosen, traffic=replace(chosen.traffic, prefixes=use))
