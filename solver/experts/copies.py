"""Copies of a token to remote nodes, kept up to date while replicas are added one by one.

The same model as ``costmodel.fanout`` with local-first dispatch, for one layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.fanout import group_choices, inclusion
from solver.experts.slots import Floats, Ints


@dataclass(frozen=True, slots=True)
class Routing:
    """Experts per token, groups a token may use, and the worth of one remote copy of a token."""

    top_k: int
    top_groups: int
    price: float


class Fanout:
    """Probability that a token from node ``s`` needs no copy on node ``m``, per set of groups."""

    def __init__(self, share: Floats, held: Ints, routing: Routing, groups: int):
        if groups > 1:
            self.odds, self.chance = group_choices(share, routing.top_k, groups, routing.top_groups)
        else:
            self.odds, self.chance = np.ones(1), inclusion(share, routing.top_k)[None]
        self.held = held.astype(np.float64)
        self.nodes = held.shape[1]
        away = self.fractions(self.held)
        self.missed = np.ones((len(self.odds), self.nodes, self.nodes))
        for expert in np.flatnonzero(share):
            self.missed *= 1 - self.chance[:, expert, None, None] * away[expert]

    @staticmethod
    def fractions(held: Floats) -> Floats:
        """Fraction ``[experts, from, to]`` of tokens served on another node, local replicas first."""
        fraction = held / held.sum(axis=1, keepdims=True)
        away: Floats = (1 - held)[:, :, None] * fraction[:, None, :]
        return away

    def change(self, experts: Ints, held: NDArray[np.bool_]) -> Floats:
        """Change of the expected copies ``[experts, ways]`` if one of ``experts`` lay on the nodes of
        one of the ways ``held [experts, ways, nodes]``.
        """
        before = self.fractions(self.held[experts])
        chance = self.chance[:, experts, None, None]
        weight = self.odds[:, None, None] * self.missed
        pull = np.einsum("gest,gst->est", chance / np.maximum(1 - chance * before, 1e-12), weight)
        fraction = held / np.maximum(held.sum(axis=2, keepdims=True), 1)
        served = ((1.0 - held) @ pull * fraction).sum(axis=2)
        change: Floats = (served - (pull * before).sum(axis=(1, 2))[:, None]) / self.nodes
        return change

    def set(self, expert: int, held: NDArray[np.bool_]) -> None:
        """Put ``expert`` on the nodes ``held [nodes]``."""
        old = 1 - self.chance[:, expert, None, None] * self.fractions(self.held[[expert]])[0]
        self.held[expert] = held
        new = 1 - self.chance[:, expert, None, None] * self.fractions(self.held[[expert]])[0]
        self.missed *= new / np.maximum(old, 1e-12)
