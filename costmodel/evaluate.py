"""``evaluate(instance, layout)``: the judge. Recomputes everything from the graph and the placements.

Takes any layout: the solver's, one written by hand, one from another tool. Never imports the solver.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from costmodel.findings import assumptions, bottleneck, provenance, unfitted
from costmodel.layout.layout import Layout, Replica
from costmodel.question.instance import Instance
from costmodel.question.uncertainty import Figures, Intervals, intervals_of
from costmodel.replica.fleet import NOTHING, PricedLayout, price_fleet
from costmodel.replica.held import idle_by_rank, place_in_flight, price_all_placed
from costmodel.replica.replica import ReplicaPrice
from costmodel.replica.tier_use import TierUse, tier_uses
from costmodel.rules import Violation, rules

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Evaluation:
    """What the cost model says of a layout.

    Money is for the chips that are paid: all healthy ones (``pay: whole``) or those in replicas, and
    for the rent of tiers beside HBM (``tiers_usd_per_hour``, part of ``usd_per_hour``). ``kv_tiers`` says
    what lies outside HBM or waits, and what that costs (nothing of either: empty).
    ``ttft_s`` is the worst case over replicas and arrival moments, ``ttft_mean_s`` the mean of the
    slowest replica; ``tpot_s`` is the slowest replica's. ``intervals`` hold the figures' ends by the
    profile's held-out errors (``None``: it was not cross-validated). Figures are ``None`` where violations of
    structure make the layout impossible to price.
    """

    violations: tuple[Violation, ...]
    usd_per_m_output_tokens: float | None = None
    usd_per_m_tokens: float | None = None
    usd_per_m_input_tokens: float | None = None
    usd_per_hour: float | None = None
    tiers_usd_per_hour: float = 0.0
    output_tokens_per_s: float | None = None
    output_tokens_per_s_per_gpu: float | None = None
    requests_per_s: float | None = None
    ttft_s: float | None = None
    ttft_mean_s: float | None = None
    tpot_s: float | None = None
    chips_used: int = 0
    chips_paid: int = 0
    chips_total: int = 0
    joules_per_output_token: float | None = None
    bottleneck: str | None = None
    provenance: dict[str, str] | None = None
    assumed: tuple[str, ...] = ()
    kv_tiers: tuple[TierUse, ...] = ()
    intervals: Intervals | None = None
    priced: PricedLayout = NOTHING

    @property
    def feasible(self) -> bool:
        """Whether no rule is broken."""
        return not self.violations

    def as_dict(self) -> dict[str, Any]:
        """The published figures as plain data."""
        data: dict[str, Any] = {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if name not in ("violations", "priced", "kv_tiers", "tiers_usd_per_hour", "intervals")
        }
        data["intervals"] = None if self.intervals is None else self.intervals.as_dict()
        if self.kv_tiers:
            data["tiers_usd_per_hour"] = self.tiers_usd_per_hour
            data["kv_tiers"] = [asdict(use) for use in self.kv_tiers]
        data["feasible"] = self.feasible
        data["violations"] = [
            {"rule": v.rule, "place": v.place, "message": v.message} for v in self.violations
        ]
        return data


def evaluate(instance: Instance, layout: Layout, *, structure_holds: bool = False) -> Evaluation:
    """Price a layout and list every rule it breaks.

    Parameters
    ----------
    instance
        The resolved question (model, cluster, workload, targets, prices).
    layout
        Any layout; nothing in it is trusted.
    structure_holds
        Rules of structure were checked before, by the same question with other constants of its profile: they are
        not checked again.

    Returns
    -------
    Evaluation
        Figures in SI units and dollars, and violations (none for a valid layout).
    """
    usable = [placed for domain in instance.cluster.domains for placed in domain.usable]
    total = len(instance.cluster.chips)
    broken = [
        violation
        for check in ({} if structure_holds else rules(structure=True)).values()
        for violation in check(instance, layout, NOTHING)
    ]
    used = {chip for replica in layout.replicas for chip in replica.chips}
    if broken:
        return Evaluation(tuple(broken), chips_used=len(used), chips_total=total)
    priced = price_fleet(instance, layout, _price_all(instance, layout))
    violations = [
        violation
        for check in rules(structure=False).values()
        for violation in check(instance, layout, priced)
    ]
    whole = instance.scenario.pay == "whole" and instance.scenario.rate is None
    paid = [placed for placed in usable if whole or placed.id in used]
    prices = instance.scenario.prices
    hourly = sum(placed.chip.usd_per_hour for placed in paid) * prices.chip_price_factor
    watts = sum(placed.chip.power_w for placed in paid) * prices.power_overhead
    served = priced.requests_per_s
    if instance.scenario.rate is not None:
        served = min(served, instance.scenario.rate)
    uses = tier_uses(instance, layout, priced, served)
    tiers_usd = sum(use.usd_per_hour for use in uses)
    hourly += tiers_usd
    workload = instance.workload
    figures: dict[str, Any] = {}
    if served > 0:
        output = served * workload.output_tokens
        tokens = served * (workload.output_tokens + workload.input_tokens)
        usd_per_s = hourly / SECONDS_PER_HOUR
        figures = {
            "usd_per_m_output_tokens": usd_per_s / output * 1e6,
            "usd_per_m_tokens": usd_per_s / tokens * 1e6,
            "usd_per_m_input_tokens": _input_price(instance, layout, priced, usd_per_s, served),
            "output_tokens_per_s": output,
            "output_tokens_per_s_per_gpu": output / len(paid),
            "joules_per_output_token": watts / output,
        }
    ttft = [priced.ttft_s(index) for index in range(len(layout.replicas))]
    means = [priced.ttft_mean_s(index) for index in range(len(layout.replicas))]
    worst, mean = max(ttft, default=0.0), max(means, default=0.0)
    tpot = max((float(p.service.tpot_s) for p in priced.replicas), default=0.0)
    intervals = intervals_of(
        instance,
        Figures(
            tpot, worst, mean, priced.requests_per_s, served, len(paid),
            float(workload.output_tokens), figures.get("usd_per_m_output_tokens"),
            figures.get("usd_per_m_tokens"), tiers_usd / hourly if hourly else 0.0,
        ),
        unfitted=unfitted(instance, layout),
    )  # fmt: skip
    return Evaluation(
        violations=tuple(violations),
        usd_per_hour=hourly,
        tiers_usd_per_hour=tiers_usd,
        kv_tiers=uses,
        intervals=intervals,
        requests_per_s=served,
        ttft_s=worst,
        ttft_mean_s=mean,
        tpot_s=tpot,
        chips_used=len(used),
        chips_paid=len(paid),
        chips_total=total,
        bottleneck=bottleneck(instance, layout, priced),
        provenance=provenance(instance, layout),
        assumed=assumptions(instance, layout),
        priced=priced,
        **figures,
    )


def _price_all(instance: Instance, layout: Layout) -> tuple[ReplicaPrice, ...]:
    """Price every replica; replicas that differ only in equivalent chips are priced once."""
    different: dict[object, Replica] = {}
    keys = [equivalence(instance, replica) for replica in layout.replicas]
    for key, replica in zip(keys, layout.replicas, strict=True):
        different.setdefault(key, replica)
    prices = price_all_placed(instance, layout, list(different.values()))
    known = dict(zip(different, prices, strict=True))
    return tuple(
        _rehome(instance, replica, known[key])
        for key, replica in zip(keys, layout.replicas, strict=True)
    )


def equivalence(instance: Instance, replica: Replica) -> object:
    """Equal for replicas that price alike: same decision on chips that cannot be told apart."""
    cluster = instance.cluster
    known: dict[int, tuple[int, int, int] | None] = {}
    units: dict[int, int] = {}
    places: list[object] = []
    for chip in replica.chips:
        domain = cluster.chip(chip).domain
        if domain not in known:
            unit = units.setdefault(int(cluster.uplinks.unit_of[domain]), len(units))
            alike = (len(known), cluster.first_alike(domain), unit)
            known[domain] = alike if cluster.domains[domain].interchangeable_chips else None
        places.append(known[domain] or chip)
    idle = tuple((tier, tuple(counts)) for tier, counts in idle_by_rank(replica).items())
    kv = (tuple(replica.rank_sequences()), place_in_flight(replica), idle)
    stages = tuple((s.layers, s.slot_key, s.expert_map) for s in replica.groups)
    shape = replica.shape
    widths = (shape.tp, shape.ep, shape.pp, shape.attention_dp, shape.batch)
    apart = replica.apart and (replica.apart.microbatches, len(replica.apart.experts.chips))
    return (replica.role, widths, stages, tuple(places), kv, apart)


def _rehome(instance: Instance, replica: Replica, price: ReplicaPrice) -> ReplicaPrice:
    """A price with its egress on this replica's own domains (in order of first use)."""
    if not price.egress_bytes_per_s:
        return price
    homes = list(dict.fromkeys(instance.cluster.chip(chip).domain for chip in replica.chips))
    moved, far = (
        dict(zip(homes, loads.values(), strict=True))
        for loads in (price.egress_bytes_per_s, price.far_bytes_per_s)
    )
    return ReplicaPrice(price.stages, price.service, moved, far)


def _input_price(
    instance: Instance, layout: Layout, priced: PricedLayout, usd_per_s: float, served: float
) -> float:
    """$ per million input tokens: the prefill pool's share of the money, by its chips."""
    chips = dict.fromkeys(("prefill", "decode", "mixed"), 0.0)
    for replica in layout.replicas:
        chips[replica.role] += len(replica.chips)
    share = chips["prefill"] / max(sum(chips.values()), 1.0)
    mixed = chips["mixed"] / max(sum(chips.values()), 1.0)
    if mixed:
        prompt_share = [
            _prompt_share(instance, price)
            for replica, price in zip(layout.replicas, priced.replicas, strict=True)
            if replica.role == "mixed"
        ]
        share += mixed * sum(prompt_share) / len(prompt_share)
    return usd_per_s * share / (served * instance.workload.input_tokens) * 1e6


def _prompt_share(instance: Instance, price: ReplicaPrice) -> float:
    """Share of a mixed replica's tokens that are prompt tokens (its time is shared alike)."""
    workload = instance.workload
    return workload.new_tokens / (workload.new_tokens + workload.decode_steps)
