"""How many replicas each expert gets. Where they go is decided elsewhere."""

from __future__ import annotations

import numpy as np

from solver.experts.slots import Floats, Ints


def greedy_replicas(shares: Floats, num_slots: int, most: int) -> Ints:
    """Replica counts ``[layers, experts]`` with the smallest possible largest piece.

    Each further slot goes to the expert whose pieces ``share / replicas`` are largest. For the
    largest piece this greedy rule is exact; ``most`` caps the replicas of one expert (one per chip).
    """
    layers, experts = shares.shape
    replicas = np.ones((layers, experts), dtype=np.int64)
    pieces = shares.copy() if most > 1 else np.full_like(shares, -1.0)
    rows = np.arange(layers)
    for _ in range(num_slots - experts):
        hottest = pieces.argmax(axis=1)
        count = replicas[rows, hottest] + 1
        replicas[rows, hottest] = count
        pieces[rows, hottest] = np.where(count < most, shares[rows, hottest] / count, -1.0)
    return replicas
