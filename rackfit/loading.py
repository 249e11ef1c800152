"""What a question may need is loaded before one is asked."""

from __future__ import annotations

import costmodel.models.registry
import costmodel.rules
import solver.rules
import topology.builders.base
import topology.scaleout.base


def load_shelves() -> None:
    """Import every file of the shelves that the search and its judge read."""
    topology.builders.base.builders()
    topology.scaleout.base.network_kinds()
    costmodel.models.registry.known_families()
    for structure in (True, False):
        costmodel.rules.rules(structure=structure)
    solver.rules.rules()
