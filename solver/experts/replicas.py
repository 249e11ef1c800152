"""How many replicas each expert gets. Where they go is decided elsewhere."""

from __future__ import annotations

from threading import Lock

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


#: the run goes on from where any thread left it
_RUNNING = Lock()


class LargestPieces:
    """Smallest possible largest piece for every number of spare slots, in one run of the greedy rule.

    The pieces that the greedy rule splits are the largest of all ``share / r``, in falling order: after
    ``m`` splits the largest piece is the next one. A cap on the replicas leaves out those with ``r`` at
    the cap or above, but no piece of the busiest expert gets smaller than ``share / cap``.
    """

    def __init__(self, shares: Floats):
        self.shares = shares
        self._replicas = np.ones(shares.shape, dtype=np.int64)
        self._pieces = shares.copy()
        self._split: list[Floats] = []
        #: most replicas of any expert after so many splits
        self._most: list[int] = [1]

    def largest(self, spare: int, most: int) -> Floats:
        """``[layers]``: the largest piece with ``spare`` slots beyond one each, at most ``most`` replicas."""
        with _RUNNING:
            self._run(spare + 1)
        floor = self.shares.max(axis=1) / most
        if self._most[spare + 1] <= most:
            return np.asarray(np.maximum(self._split[spare], floor))
        replicas = greedy_replicas(self.shares, self.shares.shape[1] + spare, most)
        return np.asarray((self.shares / replicas).max(axis=1))

    def _run(self, steps: int) -> None:
        rows = np.arange(len(self.shares))
        for _ in range(steps - len(self._split)):
            hottest = self._pieces.argmax(axis=1)
            self._split.append(self._pieces[rows, hottest])
            count = self._replicas[rows, hottest] + 1
            self._most.append(max(self._most[-1], int(count.max())))
            self._replicas[rows, hottest] = count
            self._pieces[rows, hottest] = self.shares[rows, hottest] / count
