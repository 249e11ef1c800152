r"""What is true of layouts of several models on one cluster: chips, links, rates and money, from scratch.

Each layout is evaluated where the chips of the others are taken. What all of them send between domains together fits
through NICs and leaves; with rates ``r``, capacities ``C`` and bytes/s of passes ``p`` and of KV at capacity ``k``::

    sum_m p_m + x k_m r_m / C_m <= uplink      for every domain and unit of domains, per direction
    x r_m <= C_m                               for every model

The largest ``x`` is the headroom: all rates may grow by it, every request on the way that it takes at capacity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.replica.fleet import PricedLayout
from costmodel.rules import Violation
from costmodel.together.question import Models
from costmodel.tolerance import exceeds
from topology.quantity import figure
from topology.scaleout.uplinks import Uplinks


@dataclass(frozen=True)
class Judged:
    """Every model's instance with the others' chips taken, its evaluation, and what holds of all together.

    ``headroom``: all rates may grow by this factor. ``violations`` of single layouts name their model.
    """

    instances: tuple[Instance, ...]
    evaluations: tuple[Evaluation, ...]
    violations: tuple[Violation, ...]
    usd_per_hour: float
    headroom: float

    @property
    def chips_used(self) -> int:
        """Chips in replicas of any model."""
        return sum(one.chips_used for one in self.evaluations)


def judge(models: Models, layouts: Sequence[Layout]) -> Judged:
    """Evaluate every layout beside the others and list every rule that is broken."""
    used = [sorted({c for r in layout.replicas for c in r.chips}) for layout in layouts]
    instances = tuple(
        models.beside(at, [chip for other, own in enumerate(used) if other != at for chip in own])
        for at in range(len(layouts))
    )
    evaluations = tuple(map(evaluate, instances, layouts))
    violations = [
        Violation(one.rule, f"{name}: {one.place}", one.message)
        for name, evaluation in zip(models.names, evaluations, strict=True)
        for one in evaluation.violations
    ]
    count = Counter(chip for own in used for chip in own)
    violations += [
        Violation("chips_once", chip, f"serves {times} models")
        for chip, times in sorted(count.items())
        if times > 1
    ]
    headroom = 0.0
    if not violations:
        links = models.instances[0].cluster.uplinks
        headroom = headroom_of(links, models.rates, [one.priced for one in evaluations])
        if exceeds(1.0, headroom):
            message = f"carry {figure(headroom, 3, 'down')} times the rates that are asked of all models together"
            violations.append(Violation("uplink_capacity", "links between domains", message))
    money = sum(one.usd_per_hour or 0.0 for one in evaluations)
    return Judged(
        instances,
        evaluations,
        tuple(violations),
        models.whole_usd_per_hour if models.whole else money,
        headroom,
    )


def headroom_of(links: Uplinks, rates: Sequence[float], priced: Sequence[PricedLayout]) -> float:
    """The largest factor of all rates that replicas serve and links between domains carry."""
    shares = [
        rate / one.requests_per_s if one.requests_per_s > 0 else np.inf
        for rate, one in zip(rates, priced, strict=True)
    ]
    found = 1.0 / max(shares)
    for cut, room in (
        ("out", links.domain),
        ("into", links.domain),
        ("unit_out", links.unit),
        ("unit_into", links.unit),
    ):
        passes = sum(getattr(one.passes, cut) for one in priced)
        handed = sum(
            (getattr(one.crossings, cut) - getattr(one.passes, cut)) * share
            for one, share in zip(priced, shares, strict=True)
        )
        if any(exceeds(float(sent), float(most)) for sent, most in zip(passes, room, strict=True)):
            return 0.0
        moving = handed > 0
        if np.any(moving):
            left = np.maximum(0.0, room - passes)[moving] / handed[moving]
            found = min(found, float(left.min()))
    return float(found)
