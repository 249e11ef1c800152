"""Limits of an instance that can be loosened one at a time. Changes instances, never solves them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from costmodel.question.instance import Instance
from costmodel.question.what_if import cluster_of
from costmodel.question.workload import Limits, Slo
from solver.shapes.pools import pool_classes
from solver.shapes.shapes import most_domains
from topology import Cluster
from topology.quantity import figure

#: a chip with so many times its HBM holds anything
_AMPLE_HBM = 1e4

#: most sequences per rank that an instance may allow
_MOST_SEQUENCES = 65_536


@dataclass(frozen=True)
class Relaxable:
    """One limit: how to read it, how to set it, and which way it loosens.

    ``asked``: its value in the instance; ``loosest``: the value at which it no longer limits;
    ``whole``: only whole numbers make sense. ``unit`` is the unit of the values, ``show`` writes one.
    """

    key: str
    title: str
    unit: str
    asked: float
    loosest: float
    whole: bool
    with_value: Callable[[Instance, float], Instance]
    show: Callable[[float], str]

    def dropped(self, instance: Instance) -> Instance:
        """The instance without this limit."""
        return self.with_value(instance, self.loosest)

    def tighter(self, value: float) -> float:
        """The next value worth telling from ``value``: 1 % nearer to what was asked, or one less."""
        up = self.loosest > self.asked
        if self.whole:
            step = max(1.0, math.floor(value * 0.01))
            return max(self.asked, value - step) if up else min(self.asked, value + step)
        return max(self.asked, value * 0.99) if up else min(self.asked, value * 1.01)


def limits_of(instance: Instance, most_requests_per_s: float | None) -> tuple[Relaxable, ...]:
    """Every limit of an instance, targets of the user first.

    ``most_requests_per_s``: what the cluster serves without the rate asked for (``None``: nothing,
    or no rate is asked for); it says how many more chips a rate could need.
    """
    slo, rate = instance.slo, instance.scenario.rate
    found = []
    if slo.tpot is not None:
        found.append(_latency("tpot", "TPOT", slo.tpot))
    if slo.ttft is not None:
        found.append(_latency("ttft", "TTFT", slo.ttft))
    if rate is not None:
        found.append(_rate(rate))
    found += [
        _hbm(instance),
        _context(instance),
    ]
    if instance.cluster.network is not None:  # else nothing joins more of them
        found.insert(-1, _chips(instance, most_requests_per_s))
    most = instance.limits.max_sequences_per_rank
    if most < _MOST_SEQUENCES:
        found.append(
            Relaxable(
                "batch", "sequences per attention rank", "sequences", most, _MOST_SEQUENCES, True,
                _with_batch, lambda value: f"{value:,.0f}",
            )
        )  # fmt: skip
    return tuple(found)


def _latency(key: str, title: str, asked: float) -> Relaxable:
    never = max(1e3, 2 * asked)

    def with_value(instance: Instance, value: float) -> Instance:
        slo = Slo(**{**instance.slo.model_dump(), key: value if value < never else None})
        return replace(instance, scenario=instance.scenario.model_copy(update={"slo": slo}))

    return Relaxable(
        key,
        title,
        "s",
        asked,
        never,
        False,
        with_value,
        lambda value: f"{figure(value * 1e3, 4, 'up')} ms",
    )


def _rate(asked: float) -> Relaxable:
    nothing = asked * 1e-9

    def with_value(instance: Instance, value: float) -> Instance:
        rate = value if value > nothing else None
        return replace(instance, scenario=instance.scenario.model_copy(update={"rate": rate}))

    return Relaxable(
        "rate", "request rate", "requests/s", asked, nothing, False, with_value,
        lambda value: f"{figure(value, 4, 'down')} requests/s",
    )  # fmt: skip


def _with_batch(instance: Instance, value: float) -> Instance:
    kept = instance.limits.model_dump() | {"max_sequences_per_rank": int(value)}
    update = {"limits": Limits(**kept)}
    return replace(instance, scenario=instance.scenario.model_copy(update=update))


def _hbm(instance: Instance) -> Relaxable:
    least = min(placed.chip.hbm_bytes for placed in instance.cluster.usable)
    return Relaxable(
        "hbm", "HBM per chip", "bytes", least, least * _AMPLE_HBM, False,
        lambda changed, value: replace(changed, cluster=with_hbm(changed.cluster, value)),
        lambda value: f"{figure(value / 1e9, 4, 'up')} GB",
    )  # fmt: skip


def with_hbm(cluster: Cluster, least_bytes: float) -> Cluster:
    """The same cluster with more HBM on every chip, the smallest chip having ``least_bytes``."""
    factor = least_bytes / min(placed.chip.hbm_bytes for placed in cluster.usable)
    larger = {
        placed.chip: placed.chip.model_copy(update={"hbm_bytes": placed.chip.hbm_bytes * factor})
        for placed in cluster.chips
    }
    domains = []
    for domain in cluster.domains:
        chips = tuple(replace(placed, chip=larger[placed.chip]) for placed in domain.chips)
        usable = tuple(placed for placed in chips if placed.usable)
        domains.append(replace(domain, chips=chips, usable=usable))
    changed = Cluster(
        cluster.name, domains, cluster.network, title=cluster.title, sources=cluster.sources,
        notes=cluster.notes, provenance=cluster.provenance,
    )  # fmt: skip
    return changed.with_profile(cluster.profile)


def _chips(instance: Instance, most_requests_per_s: float | None) -> Relaxable:
    """Chips, in whole copies of what the cluster file describes (a node, a rack)."""
    name = instance.scenario.cluster
    text, _, number = name.rpartition("@") if "@" in name else (name, "", "1")
    copies = int(number)
    chips = len(instance.cluster.usable)
    healthy = len(instance.cluster.chips) // copies
    # what any one prefill and one decode replica could use
    most = copies + 2 * most_domains(instance, pool_classes(instance.cluster))
    if instance.scenario.rate is not None and most_requests_per_s:
        short = instance.scenario.rate / most_requests_per_s
        most = max(most, math.ceil(1.3 * short * copies) + 1)

    def with_value(changed: Instance, value: float) -> Instance:
        asked = instance.scenario.model_copy(update={"cluster": f"{text}@{int(value)}"})
        more = cluster_of(asked).with_profile(changed.cluster.profile)
        least = min(placed.chip.hbm_bytes for placed in changed.cluster.usable)
        return replace(changed, cluster=with_hbm(more, least))

    return Relaxable(
        "chips", "chips", f"copies of {text}", copies, min(most, 10_000), True, with_value,
        lambda value: f"{chips + (value - copies) * healthy:,.0f} chips ({text}@{value:.0f})",
    )  # fmt: skip


def _context(instance: Instance) -> Relaxable:
    workload = instance.workload

    def with_value(changed: Instance, value: float) -> Instance:
        share = value / workload.final_context
        given = max(1, min(int(value) - 1, round(workload.input_tokens * share)))
        shorter = workload.model_copy(
            update={
                "input_tokens": given,
                "output_tokens": int(value) - given,
                "cached_tokens": min(given - 1, round(workload.cached_tokens * share)),
            }
        )
        scenario = changed.scenario.model_copy(update={"workload": shorter})
        return replace(changed, scenario=scenario, workload=shorter)

    return Relaxable(
        "context", "context (prompt and answer in proportion)", "tokens", workload.final_context, 2, True, with_value,
        lambda value: f"{value:,.0f} tokens",
    )  # fmt: skip
