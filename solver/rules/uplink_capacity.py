r"""KV that replicas hand over, and what their passes send, fit through the links of domains and units.

For every domain ``d`` (or pools filled by one pattern, as often as there are), requests per second::

    local + leaving  <= supply,   leaving <= supply that may leave      prefill replicas inside the domain
    local + entering <= demand                                       decode replicas inside the domain
    leaving  + wide supply + passes <= room                           out of the domain
    entering + wide demand + passes <= room                           into the domain

Replicas over several domains hand over through NICs alone. The same holds for units of domains, with what
is matched inside a unit left out. What leaves all units is what enters them, and ``pooled`` is what is matched
locally, in units and between them. Room is rounded up: a fleet's rate is taken by the judge's formula
(:func:`costmodel.replica.hand_over.carried`), the model's by no less.
"""

from __future__ import annotations

from typing import Any

from solver.fleet.variables import FleetVariables
from solver.scaling import up

OF = "fleet"
HOLDS = "flows of KV between domains bound the rate; what passes send is within NICs and leaves"


def constrain(fleet: FleetVariables) -> None:
    """Flows of requests through every cut."""
    if fleet.links is None or not fleet.linked:
        return
    model, links = fleet.model, fleet.links
    unit_flows: dict[int, list[tuple[Any, Any, Any]]] = {}
    pooled: Any = 0
    for cut in fleet.cuts:
        room = links.uplinks.domain[cut.domain]
        most = _requests(fleet, float(room)) * cut.times
        local, leaving, entering, out, into = (
            model.new_int_var(0, fleet.ceiling, f"{name}[{cut.name}]")
            for name in ("local", "leaving", "entering", "out", "into")
        )
        model.add(local + leaving <= sum(cut.supply))
        model.add(leaving <= sum(cut.leaving))
        model.add(local + entering <= sum(cut.demand))
        model.add(out <= leaving + sum(cut.wide_supply))
        model.add(into <= entering + sum(cut.wide_demand))
        sent = sum(_requests(fleet, load, sent=True) * variable for load, variable in cut.sent)
        model.add(out + sent <= most)
        model.add(into + sent <= most)
        pooled += local
        unit = int(links.uplinks.unit_of[cut.domain])
        far = sum(_requests(fleet, load, sent=True) * variable for load, variable in cut.sent_far)
        unit_flows.setdefault(unit if cut.named else -1 - unit, []).append((out, into, far))
    ups: Any = 0
    downs: Any = 0
    for unit, flows in unit_flows.items():
        name = unit if unit >= 0 else -1 - unit
        inside, above, below = (
            model.new_int_var(0, fleet.ceiling, f"{word}[unit {unit}]")
            for word in ("inside", "above", "below")
        )
        model.add(inside + above <= sum(out for out, _, _ in flows))
        model.add(inside + below <= sum(into for _, into, _ in flows))
        if unit >= 0:
            far = sum(sent for _, _, sent in flows)
            room = _requests(fleet, float(links.uplinks.unit[name]))
            model.add(above + far <= room)
            model.add(below + far <= room)
        pooled += inside
        ups, downs = ups + above, downs + below
    across = model.new_int_var(0, fleet.ceiling, "across")
    model.add(across <= ups)
    model.add(across <= downs)
    model.add(fleet.pooled <= pooled + across)


def _requests(fleet: FleetVariables, load: float, *, sent: bool = False) -> int:
    """Bytes/s as units of requests whose KV is that much, rounded up; no more than any fleet serves."""
    assert fleet.links is not None
    moved = fleet.links.request_bytes
    if not moved:
        return 0 if sent else fleet.ceiling
    return min(fleet.ceiling, up(load / moved, fleet.unit) + (not sent))
