"""Copies of a token to remote nodes, kept up to date while replicas are added one by one.

The same model as ``costmodel.fanout`` with local-first dispatch, for one layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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

    def added_copies(self, experts: Ints, nodes: Ints) -> Floats:
        """Change of the expected copies ``[pairs]`` if one replica is added: ``experts`` on ``nodes``."""
        before = self.fractions(self.held[experts])
        held = self.held[experts].copy()
        held[np.arange(len(experts)), nodes] = 1
        after = self.fractions(held)
        chance = self.chance[:, experts, None, None]
        ratio = (1 - chance * after) / np.maximum(1 - chance * before, 1e-12)
        weight = self.odds[:, None, None] * self.missed
        lost = np.einsum("gst,gest->e", weight, ratio)
        change: Floats = (weight.sum() - lost) / self.nodes
        return change

    def add(self, expert: int, node: int) -> None:
        """Add a replica of ``expert`` on ``node``."""
        old = 1 - self.chance[:, expert, None, None] * self.fractions(self.held[[expert]])[0]
        self.held[expert, node] = 1
        new = 1 - self.chance[:, expert, None, None] * self.fractions(self.held[[expert]])[0]
        self.missed *= new / np.maximum(old, 1e-12)
