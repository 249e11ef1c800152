r"""Proven lower bounds on the busiest chip of a MoE layer, for every placement with these slots.

*Load*: the busiest chip's share of the routed tokens (see :func:`solver.experts.load_bounds`).

*Touched experts*: with ``g_e(r) = 1 - (1 - q_e / r)^B`` the chance that a replica is reached and
``f_e(r) = r g_e(r)`` (increasing and concave in ``r``), the busiest chip is at least

- the average, ``sum_e f_e(r_e) / n``. As ``f`` is concave, ``R`` spare replicas add least when they
  pile on the coldest expert that may be copied: at least ``f(1 + R) - f(1)`` for ``R < n``, else ``R``
  times the mean increment of that expert fully spread. With ``hot_copies`` only the ``R`` busiest
  experts of a layer may be copied (what engines do, and what the certificate then covers);
- the pigeonhole: at least ``E - R`` experts have one replica, so some chip holds ``ceil((E-R)/n)`` of
  them and touches no less than the sum of that many smallest ``g_e(1)``;
- without spare slots, ``q`` chips hold ``ceil(E/n)`` experts each: together no less than the ``q ceil(E/n)``
  smallest ``g_e(1)``, so one of them holds at least the ``q``-th part.

Bounds are averaged over layers: a sum of maxima is never below the maximum of sums.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.moe_load import touch_probability
from costmodel.question.instance import Instance
from solver.experts import LoadBounds

Array = NDArray[np.float64]

#: batches (tokens over all ranks) between which touched experts are bounded from below
GRID = np.unique(np.round(np.geomspace(1, 2**22, 67))).astype(float)
#: largest layers x experts x chips x replica counts for which every slot is a variable
SMALL = 3000


def _fullest(experts: int, chips: int) -> tuple[int, int]:
    """Slots of the fullest chips without spare slots, and how many chips are as full."""
    full = -(-experts // chips)
    return full, experts - (full - 1) * chips


def small_enough(instance: Instance, chips: int) -> bool:
    """Whether a replica on stages of so many chips is modelled whole, every expert slot a variable."""
    moe = instance.operations.moe
    if moe is None:
        return instance.operations.num_layers <= 8
    size = len(instance.operations.moe_layers) * moe.num_experts * chips * chips
    return size <= SMALL and instance.operations.num_layers <= 8


def copies_are_hot(loads: Array, experts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """``[layers]``: whether only the busiest experts are copied, as many as there are spare slots."""
    layers, num_experts = loads.shape
    spare = experts.shape[1] - num_experts
    replicas = np.zeros((layers, num_experts), dtype=np.int64)
    np.add.at(replicas, (np.arange(layers)[:, None], experts), 1)
    if spare <= 0 or spare >= num_experts:
        return np.ones(layers, dtype=bool)
    least = np.sort(loads, axis=1)[:, num_experts - spare]
    return np.asarray(((replicas == 1) | (loads >= least[:, None])).all(axis=1))


class ExpertBounds:
    """Bounds for one model's expert loads ``[layers, experts]`` (rows sum to 1)."""

    def __init__(self, loads: Array, top_k: float, *, hot_copies: bool):
        self.loads = loads
        self.hot_copies = hot_copies
        self.top_k = top_k
        self.num_experts = loads.shape[1]
        self._load_bounds = LoadBounds(loads)
        self._load: dict[tuple[int, int], Array] = {}
        self._mean_and_least: dict[tuple[int, int], tuple[float, float]] = {}
        self._touched: dict[tuple[int, int], tuple[Array, Array]] = {}

    @cached_property
    def _single(self) -> Array:
        """``[2, grid, experts + 1]``: mean and least over layers of the sum of the j smallest ``g_e(1)``."""
        touch = touch_probability(
            np.sort(self.loads, axis=1)[None], self.top_k, GRID[:, None, None], 1.0
        )
        sums = touch.cumsum(axis=-1)
        both = np.stack([sums.mean(axis=1), sums.min(axis=1)])
        return np.concatenate([np.zeros((2, len(GRID), 1)), both], axis=2)

    def _coldest_copied(self, spare: int) -> Array:
        """``[layers]``: load share of the coldest expert that one of ``spare`` slots may copy."""
        place = self.num_experts - min(spare, self.num_experts) if self.hot_copies else 0
        return np.asarray(np.sort(self.loads, axis=1)[:, place])

    def layer_loads(self, chips: int, slots: int) -> Array:
        """``[layers]``: bound on the busiest chip's share in each layer."""
        key = (chips, slots)
        if key not in self._load:
            self._load[key] = self._load_bounds.bound(chips, slots)
        return self._load[key]

    def fewest(self, chips: int, slots: int) -> int:
        """Slots of a layer at least, on average over the layers: all of them have ``slots``."""
        return slots

    def load(self, chips: int, slots: int) -> tuple[float, float]:
        """Mean and least over layers of the busiest chip's share."""
        key = (chips, slots)
        if key not in self._mean_and_least:
            found = self.layer_loads(chips, slots)
            self._mean_and_least[key] = (float(found.mean()), float(found.min()))
        return self._mean_and_least[key]

    def touched_on_grid(self, chips: int, slots: int) -> tuple[Array, Array]:
        """``[grid]``: mean and least over layers of the experts the busiest chip touches at least."""
        key = (chips, slots)
        if key not in self._touched:
            spare = slots - self.num_experts
            extra = self._extra(spare, chips) if spare > 0 and chips > 1 else np.zeros((2, 1))
            average = (self._single[:, :, -1] + extra) / chips
            alone = max(self.num_experts - max(spare, 0), 0)
            pigeonhole = self._single[:, :, -(-alone // chips)]
            bound = np.maximum(average, pigeonhole)
            if spare <= 0:
                full, fullest = _fullest(self.num_experts, chips)
                bound = np.maximum(bound, self._single[:, :, full * fullest] / fullest)
            mean, least = bound
            self._touched[key] = (mean, least)
        return self._touched[key]

    def touched_by_layer(self, chips: int, slots: int, tokens: float) -> Array:
        """``[layers]``: experts that the busiest chip touches at least, at exactly these tokens."""
        single = touch_probability(np.sort(self.loads, axis=1), self.top_k, tokens, 1.0)
        spare = slots - self.num_experts
        extra: Array | float = 0.0
        if spare > 0 and chips > 1:
            cold = self._coldest_copied(spare)
            pile = min(spare + 1, chips)
            spread = pile * touch_probability(cold, self.top_k, tokens, float(pile))
            alone = touch_probability(cold, self.top_k, tokens, 1.0)
            extra = (spread - alone) * spare / (pile - 1)
        least = -(-max(self.num_experts - max(spare, 0), 0) // chips)
        full, fullest = _fullest(self.num_experts, chips)
        return np.asarray(
            np.maximum.reduce(
                [
                    (single.sum(axis=1) + extra) / chips,
                    single[:, :least].sum(axis=1),
                    single[:, : full * fullest].sum(axis=1) / fullest
                    if spare <= 0
                    else np.zeros(len(single)),
                ]
            )
        )

    def _extra(self, spare: int, chips: int) -> Array:
        """``[2, grid]``: what ``spare`` replicas add at least to the sum of touched slots."""
        cold, tokens = self._coldest_copied(spare)[None, :], GRID[:, None]
        pile = min(spare + 1, chips)
        spread = pile * touch_probability(cold, self.top_k, tokens, float(pile))
        alone = touch_probability(cold, self.top_k, tokens, 1.0)
        added = (spread - alone) * spare / (pile - 1)
        return np.stack([added.mean(axis=1), added.min(axis=1)])

    def touched(self, tables: Array, tokens: Array) -> Array:
        """Look up rows of :meth:`touched_on_grid` at the grid point below ``tokens``."""
        place = np.clip(np.searchsorted(GRID, tokens, side="right") - 1, 0, len(GRID) - 1)
        found = tables[np.arange(len(tokens)), place]
        return np.where(tokens < 1.0, 0.0, found)
