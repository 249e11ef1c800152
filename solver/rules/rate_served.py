r"""The fleet serves the rate that is asked for: ``pooled + mixed >= rate``, the rate rounded down."""

from __future__ import annotations

from solver.fleet.variables import FleetVariables

OF = "fleet"
HOLDS = (
    "the fleet's rate is at least the rate asked for; nothing is asked in terms of a bound alone"
)


def constrain(fleet: FleetVariables) -> None:
    """At least the rate asked for."""
    if fleet.asked is not None:
        # a fleet that serves at all counts for one unit
        fleet.model.add(fleet.rate >= max(1, int(fleet.asked / fleet.unit)))
