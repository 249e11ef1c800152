"""What a second rack brings: the best layout of one rack, of several with every replica in one, and of several at all.

Each is searched until its gap is proven. What replicas over racks save is then known between two figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from costmodel.question.instance import Instance, resolve_instance
from rackfit.studies.base import Options, Row
from solver.clock import Clock
from solver.search import search
from topology.errors import NoFeasibleLayout

#: widest gap asked for
_GAP = 0.01


@dataclass(frozen=True)
class _Best:
    """Least cost found and proven, dollars per million output tokens; infinite where nothing fits."""

    usd: float
    bound: float
    row: Row


def second_rack(instance: Instance, racks: int, oversubscription: float, options: Options) -> Row:
    """Costs on one rack, on ``racks`` with replicas inside them, and with replicas over them.

    Raises ``NoFeasibleLayout`` where nothing fits on the racks.
    """
    alone = _best(instance, 1, None, 1, options)
    inside = _best(instance, racks, oversubscription, 1, options)
    over = _best(instance, racks, oversubscription, racks, options)
    # racks that each serve as one alone are a layout of them all, and replicas inside racks one of any kind
    within = min(alone.usd, inside.usd)
    least = min(within, over.usd)
    if least == float("inf"):
        raise NoFeasibleLayout("nothing fits on the racks", proven=over.bound == float("inf"))
    apart = {"over_racks": False} if within <= over.usd else over.row
    found: Row = {
        "usd_one_rack": _finite(alone.usd),
        "usd_inside_racks": _finite(within),
        "usd_over_racks": least,
        "gap": least / over.bound - 1,
        **apart,
    }
    if within < float("inf"):
        found["gap"] = max(found["gap"], within / inside.bound - 1)
        found["saved"] = 1 - least / within
        found["saved_at_least"] = max(0.0, 1 - least / inside.bound)
        found["saved_at_most"] = max(0.0, 1 - over.bound / within)
    return found


def _finite(value: float) -> float | None:
    return None if value == float("inf") else value


def _best(
    instance: Instance, racks: int, oversubscription: float | None, most: int, options: Options
) -> _Best:
    """The cheapest layout of so many racks whose replicas lie in at most ``most`` of them."""
    asked = instance.scenario
    limits = asked.limits.model_copy(update={"max_domains_per_replica": most})
    update: dict[str, Any] = {
        "cluster": f"{asked.cluster.partition('@')[0]}@{racks}",
        "limits": limits,
    }
    if oversubscription is not None:
        update["scale_out"] = {**asked.scale_out, "oversubscription": oversubscription}
    changed = resolve_instance(asked.model_copy(update=update))
    try:
        found = search(
            changed,
            clock=Clock(options.time_limit_s),
            gap=min(options.gap, _GAP),
            seed=options.seed,
        )
    except NoFeasibleLayout as error:
        return _Best(float("inf"), float("inf") if error.proven else 0.0, {})
    usd = found.evaluation.usd_per_m_output_tokens
    assert usd is not None
    spread = [
        {changed.cluster.chip(chip).domain for chip in replica.chips}
        for replica in found.layout.replicas
    ]
    row = {"over_racks": max(map(len, spread)) > 1}
    return _Best(usd, found.certificate.bound_usd_per_m_output_tokens, row)
