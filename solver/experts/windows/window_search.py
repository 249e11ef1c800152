r"""Descent for several windows with the replica counts given: pairs of chips dealt anew, at falling noise.

One sweep matches the chips in disjoint pairs and deals each pair's experts by the potential of
``windows``, which adds up over chips: the pairs of a sweep are independent, so adding Gumbel noise to the
score of every deal draws all of them at once from their Gibbs distribution. The noise falls as the potential
sharpens: annealing, many chips and all layers at a time.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from solver.experts.local.repartition import MOST_TAKEN, match, splits
from solver.experts.slots import Floats, Ints

Singles = NDArray[np.float32]

#: Sharpness of the potential (per mean chip load) and noise in its units, first and last.
SHARPNESS, NOISE = (20.0, 400.0), (0.1, 0.01)
#: Sweeps from which annealing pays; fewer are a plain descent.
FEW = 50
#: Largest exponent, so that the sums stay finite in single precision.
LARGEST = 80.0
#: Least gain (in mean chips) that counts: single precision tells no less apart.
LEAST = 1e-7


class WindowSearch:
    """Loads of all windows for fixed replica counts, in units of a mean chip.

    ``shares [windows, layers, experts]``, ``weight [windows]`` adding up to 1, ``replicas [layers, experts]``.
    """

    def __init__(self, shares: Floats, weight: Floats, worst: bool, replicas: Ints, num_chips: int):
        windows, layers, self.num_experts = shares.shape
        self.weight, self.worst = weight.astype(np.float32), worst
        pieces = [shares * num_chips / replicas, np.zeros((windows, layers, 1))]
        self.pieces: Singles = np.concatenate(pieces, axis=2).astype(np.float32)

    def sizes(self, items: Ints) -> Singles:
        """Load of each of ``items [layers, ...]`` in each window ``[windows, layers, ...]``."""
        layers = np.arange(items.shape[0]).reshape(-1, *(1,) * (items.ndim - 1))
        found: Singles = self.pieces[:, layers, items]
        return found

    def loads(self, table: Ints) -> Singles:
        """Load of each chip ``[windows, layers, chips]``."""
        load: Singles = self.sizes(table).sum(axis=3)
        return load

    def value(self, load: Singles) -> Floats:
        """Objective per layer: weighted mean over windows, or worst, of the busiest chip."""
        peak = load.max(axis=2).astype(np.float64)
        value: Floats = peak.max(axis=0) if self.worst else self.weight @ peak
        return value

    def anneal(
        self,
        table: Ints,
        sweeps: int,
        least: int,
        seed: int,
        *,
        polish: bool = False,
        deadline: float | None = None,
    ) -> tuple[Ints, Floats]:
        """The best tables ``[layers, chips, width]`` seen from ``table`` on, and their objective.

        ``least``: fewest slots of a chip; ``polish``: a good start, at the last sharpness and noise from the
        first sweep on. ``table`` is not changed. No sweep begins after ``deadline``.
        """
        rng = np.random.default_rng(seed)
        table = table.copy()
        best, value = table.copy(), np.full(len(table), np.inf)
        for step in range(sweeps + 1):
            load = self.loads(table)
            now = self.value(load)
            better = now < value - LEAST
            best[better], value[better] = table[better], now[better]
            late = deadline is not None and time.monotonic() > deadline
            if table.shape[1] < 2 or step == sweeps or late:
                break
            done = 1.0 if polish else step / sweeps
            sharpness = SHARPNESS[0] * (SHARPNESS[1] / SHARPNESS[0]) ** done
            noise = NOISE[0] * (NOISE[1] / NOISE[0]) ** done if sweeps >= FEW else 0.0
            self.sweep(table, load, sharpness, noise, step, least, rng)
        return best, value

    def sweep(
        self,
        table: Ints,
        load: Singles,
        sharpness: float,
        noise: float,
        step: int,
        least: int,
        rng: np.random.Generator,
    ) -> None:
        """Deal disjoint pairs of chips anew in ``table [layers, chips, width]``, in place."""
        taken = min(least, MOST_TAKEN)
        whole = taken == table.shape[2]
        base = load.max(axis=2)
        if self.worst:
            base = np.broadcast_to(base.max(axis=0), base.shape)
        sharp = np.float32(sharpness)
        heat = np.tensordot(self.weight, np.exp(sharp * (load - base[..., None])), 1)
        hot, cold = match(heat, step, rng)
        rows = np.arange(len(table))[:, None]
        ours, theirs = table[rows, hot], table[rows, cold]
        if not whole:
            ours, theirs = (shuffled(part, self.num_experts, rng) for part in (ours, theirs))
        chosen, order = splits(taken)
        if whole:  # which of the two chips gets which half makes no difference
            half = np.flatnonzero(chosen[0])
            chosen, order = chosen[:, half], order[half]
        deal = chosen.astype(np.float32)
        items = np.concatenate([ours[..., :taken], theirs[..., :taken]], axis=2)
        first = self.sizes(items) @ deal
        if not whole:
            first += self.sizes(ours[..., taken:]).sum(axis=3)[..., None]
        first -= base[:, :, None, None]
        both = load[:, rows, hot] + load[:, rows, cold]
        second = (both - 2 * base[..., None])[..., None] - first
        cost = np.exp(np.minimum(sharp * first, np.float32(LARGEST)))
        cost += np.exp(np.minimum(sharp * second, np.float32(LARGEST)))
        score = np.tensordot(self.weight, cost, 1)
        same = ours[..., :, None] == theirs[..., None, :]
        same &= (ours != self.num_experts)[..., :, None]
        if same.any():
            stays = same.any(axis=3)[..., :taken].astype(np.float32)
            away = same.any(axis=2)[..., :taken].astype(np.float32)
            moved = np.concatenate([-stays, away], axis=2) @ deal
            score = np.where(moved + stays.sum(axis=2)[..., None] > 0.5, np.inf, score)
        if noise:
            drawn = rng.standard_exponential(score.shape, np.float32)
            score += np.float32(noise) * np.log(np.maximum(drawn, np.float32(1e-30)))
        dealt = np.take_along_axis(items, order[score.argmin(axis=2)], axis=2)
        table[rows, hot] = np.concatenate([dealt[..., :taken], ours[..., taken:]], axis=2)
        table[rows, cold] = np.concatenate([dealt[..., taken:], theirs[..., taken:]], axis=2)


def shuffled(expert: Ints, num_experts: int, rng: np.random.Generator) -> Ints:
    """The places of each chip in random order, places beyond its slots last."""
    order = np.argsort(rng.random(expert.shape) + (expert == num_experts), axis=2)
    return np.take_along_axis(expert, order, axis=2)
