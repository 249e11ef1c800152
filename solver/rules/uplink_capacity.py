r"""KV that replicas hand over, and what their passes send, fit through the links of domains and units.

For every domain ``d`` (or pools filled by one pattern, as often as there are), requests per second::

    local + leaving  <= supply,   leaving <= supply that may leave      prefill replicas inside the domain
    local + entering <= demand                                       decode replicas inside the domain
    leaving  + wide supply + passes <= room                           out of the domain
    entering + wide demand + passes <= room                           into the domain

Each slice of a replica over several domains has a chip with a working NIC. Such replicas hand over through NICs alone. The same holds for units of domains, with what
is matched inside a unit left out. What leaves all units is what enters them, and ``pooled`` is what is matched
locally, in units and between them. Room is rounded up: a fleet's rate is taken by the judge's formula
(:func:`costmodel.replica.hand_over.carried`), the model's by no less.
"""

from __future__ import annotations

from typing import Any

from solver.fleet.variables import FleetVariables
from solver.scaling import down, up

OF = "fleet"
#: room of so many times the most that any fleet hands over leaves enough for that
_WIDE = 16
HOLDS = "flows of KV between domains bound the rate; what passes send is within NICs and leaves"


def constrain(fleet: FleetVariables) -> None:
    """Flows of requests through every cut."""
    if fleet.links is None or not fleet.linked:
        return
    model, links = fleet.model, fleet.links
    unit_flows: dict[int, list[tuple[Any, Any, Any]]] = {}
    pooled: Any = 0
    for cut in fleet.cuts:
        room = float(links.uplinks.domain[cut.domain])
        local, leaving, entering, out, into = (
            model.new_int_var(0, fleet.ceiling, f"{name}[{cut.name}]")
            for name in ("local", "leaving", "entering", "out", "into")
        )
        model.add(local + leaving <= sum(cut.supply))
        model.add(leaving <= sum(cut.leaving))
        model.add(local + entering <= sum(cut.demand))
        model.add(out <= leaving + sum(cut.wide_supply))
        model.add(into <= entering + sum(cut.wide_demand))
        if cut.slices and cut.domain in links.uplinks.doors:
            model.add(sum(cut.slices) <= links.uplinks.doors[cut.domain] * cut.times)
        _within(fleet, room, cut.times, (out, into), cut.sent)
        pooled += local
        unit = int(links.uplinks.unit_of[cut.domain])
        unit_flows.setdefault(unit if cut.named else -1 - unit, []).append(
            (out, into, cut.sent_far)
        )
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
            far = [one for _, _, sent in flows for one in sent]
            _within(fleet, float(links.uplinks.unit[name]), 1, (above, below), far)
        pooled += inside
        ups, downs = ups + above, downs + below
    across = model.new_int_var(0, fleet.ceiling, "across")
    model.add(across <= ups)
    model.add(across <= downs)
    model.add(fleet.pooled <= pooled + across)


def _within(
    fleet: FleetVariables,
    room: float,
    times: Any,
    flows: tuple[Any, Any],
    sent: list[tuple[float, Any]],
) -> None:
    """Each flow of KV and what passes send (bytes/s, replicas) fit in ``times`` rooms (bytes/s).

    In units of requests, whose KV is so many bytes: room rounded up, what passes send rounded down. Where
    room is far more than any fleet hands over, only what passes send is held to it.
    """
    assert fleet.links is not None
    model, unit = fleet.model, fleet.links.request_bytes * fleet.unit
    wide = not unit or room / unit > _WIDE * fleet.ceiling
    if wide:
        unit = room / fleet.ceiling or 1.0
    most = up(room, unit) + 1
    passes = sum(min(down(load, unit), most + 1) * variable for load, variable in sent)
    if wide and not sent:
        return
    for flow in flows:
        model.add((0 if wide else flow) + passes <= most * times)
