"""Copies of a token to remote nodes, kept up to date while replicas are added one by one.

The same model as ``costmodel.experts.fanout`` with local-first dispatch, for several layers at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.fanout import group_choices, inclusion
from solver.experts.slots import Floats, Ints


class Ledger(Protocol):
    """Copies of a token to remote nodes while replicas are added; the arrays are those of :class:`Fanout`."""

    def change(self, layers: Ints, experts: Ints, held: NDArray[np.bool_]) -> Floats:
        """Change of the expected copies ``[layers, experts, ways]``."""

    def set(self, layers: Ints, experts: Ints, held: NDArray[np.bool_]) -> None:
        """Put one expert of each layer on the nodes ``held [layers, nodes]``."""


class CopyTraffic(Protocol):
    """What is known of the experts of a token, and the worth of one remote copy of it."""

    @property
    def price(self) -> float:
        """Worth of a copy against a mean node's load."""

    def ledger(self, shares: Floats, held: Ints, groups: int, part: slice) -> Ledger:
        """Copies of the layers ``part``, whose shares are ``shares``, experts on ``held``."""


@dataclass(frozen=True, slots=True)
class Routing:
    """Experts per token, groups a token may use, and the worth of one remote copy of a token."""

    top_k: int
    top_groups: int
    price: float

    def ledger(self, shares: Floats, held: Ints, groups: int, part: slice) -> Ledger:
        """Copies if the experts of a token are independent given its groups; ``part`` is not needed."""
        return Fanout(shares, held, self, groups)


class Fanout:
    """Probability that a token from node ``s`` needs no copy on node ``m``, per set of groups.

    ``shares [layers, experts]``; ``held [layers, experts, nodes]``, 0 or 1.
    """

    def __init__(self, shares: Floats, held: Ints, routing: Routing, groups: int):
        if groups > 1:
            found = [
                group_choices(share, routing.top_k, groups, routing.top_groups) for share in shares
            ]
            self.odds = np.stack([odds for odds, _ in found])
            self.chance = np.stack([chance for _, chance in found])
        else:
            self.odds = np.ones((len(shares), 1))
            self.chance = np.stack([inclusion(share, routing.top_k)[None] for share in shares])
        self.held = held.astype(np.float64)
        self.nodes = held.shape[2]
        away = self.fractions(self.held)
        self.missed = np.ones((*self.odds.shape, self.nodes, self.nodes))
        for layer, start, end in np.ndindex(len(shares), self.nodes, self.nodes):
            here = np.flatnonzero(away[layer, :, start, end])
            stays = 1 - self.chance[layer][:, here] * away[layer, here, start, end]
            self.missed[layer, :, start, end] = stays.prod(axis=1)

    @staticmethod
    def fractions(held: Floats) -> Floats:
        """Fraction ``[..., from, to]`` of tokens served on another node, local replicas first."""
        fraction = held / held.sum(axis=-1, keepdims=True)
        away: Floats = (1 - held)[..., :, None] * fraction[..., None, :]
        return away

    def change(self, layers: Ints, experts: Ints, held: NDArray[np.bool_]) -> Floats:
        """Change of the expected copies ``[layers, experts, ways]`` if one of ``experts [layers, experts]``
        lay on the nodes of one of the ways ``held [layers, experts, ways, nodes]``.
        """
        rows = layers[:, None]
        before = self.fractions(self.held[rows, experts])
        chance = self.chance.transpose(0, 2, 1)[rows, experts]
        weight = self.odds[layers][:, :, None] * self.missed[layers].reshape(
            len(layers), chance.shape[2], -1
        )
        # where the expert is itself a part of ``missed``, at one fraction throughout, it is taken out
        own = chance / np.maximum(1 - chance * before.max(axis=(2, 3))[..., None], 1e-12)
        pull = np.where(before.reshape(*experts.shape, -1), own @ weight, chance @ weight)
        pull = pull.reshape(before.shape)
        served = np.einsum("lewn,lewn->lew", (1.0 - held) @ pull, held) / held.sum(axis=3)
        change: Floats = (served - (pull * before).sum(axis=(2, 3))[..., None]) / self.nodes
        return change

    def set(self, layers: Ints, experts: Ints, held: NDArray[np.bool_]) -> None:
        """Put one of ``experts [layers]`` of each layer on the nodes ``held [layers, nodes]``."""
        chance = self.chance[layers, :, experts][:, :, None, None]
        old = 1 - chance * self.fractions(self.held[layers, experts])[:, None]
        self.held[layers, experts] = held
        new = 1 - chance * self.fractions(self.held[layers, experts])[:, None]
        self.missed[layers] *= new / np.maximum(old, 1e-12)
