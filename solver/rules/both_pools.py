r"""A fleet serves whole requests: prefill and decode replicas at the smaller of their rates, beside mixed ones.

pooled <= sum of prefill rates,   pooled <= sum of decode rates
"""

from __future__ import annotations

from solver.fleet.variables import FleetVariables
from solver.shapes.shapes import ROLES

OF = "fleet"
HOLDS = "both pools bound the rate that they serve together"


def constrain(fleet: FleetVariables) -> None:
    """The pools meet at the smaller rate."""
    for role in ("prefill", "decode"):
        fleet.model.add(fleet.pooled <= sum(fleet.rates[ROLES.index(role)]))
