r"""Proven lower bounds on the busiest chip of a MoE layer, for every placement with these slots.

*Load*: the busiest chip's share of the routed tokens (see :func:`solver.experts.load_bounds`).

*Touched experts*: with ``g_e(r) = 1 - (1 - q_e / r)^B`` the chance that a replica is reached and
``f_e(r) = r g_e(r)`` (increasing and concave in ``r``), the busiest chip is at least

- the average, ``sum_e f_e(r_e) / n``. As ``f`` is concave, ``R`` spare replicas add least when they
  pile on the coldest expert that may be copied: at least ``f(1 + R) - f(1)`` for ``R < n``, else ``R``
  times the mean increment of that expert fully spread;
- with ``hot_copies`` no expert has more replicas than a busier one of its layer (what engines do, and what
  the certificate then covers). The ``k``-th busiest then has at most ``m_k = min(n - 1, R / k)`` spare
  ones, each of which adds at least the chord ``s_k = (f_k(1 + m_k) - f_k(1)) / m_k``. Spare replicas that do
  not rise with ``k`` are a sum of equal ones on the first ``j``: together they add at least ``R`` times the
  least mean of ``s_1 .. s_j`` over ``j``, and only ``j <= R`` occur;
- the pigeonhole: at least ``E - R`` experts have one replica, so some chip holds ``ceil((E-R)/n)`` of
  them and touches no less than the sum of that many smallest ``g_e(1)``;
- without spare slots, ``q`` chips hold ``ceil(E/n)`` experts each: together no less than the ``q ceil(E/n)``
  smallest ``g_e(1)``, so one of them holds at least the ``q``-th part;
- where no chip has two slots, the chip of the replica with the most load: ``g`` grows with that, so that its bound is one.

Bounds are averaged over layers: a sum of maxima is never below the maximum of sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.moe_load import touch_probability
from costmodel.models.spec import MoE
from costmodel.question.instance import Instance
from solver.experts import LoadBounds

Array = NDArray[np.float64]

#: batches (tokens over all ranks) between which touched experts are bounded from below
GRID = np.unique(np.round(np.geomspace(1, 2**22, 67))).astype(float)
#: largest layers x experts x chips x replica counts for which every slot is a variable
SMALL = 3000
#: replicas of a busiest load, which is a bound up to rounding
_ROUNDED = 1.0 + 1e-9


def fullest(experts: int, chips: int) -> tuple[int, int]:
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
    """``[layers]``: whether no expert has more copies than a busier one, by ``experts [layers, slots]``."""
    layers, num_experts = loads.shape
    replicas = np.zeros((layers, num_experts), dtype=np.int64)
    np.add.at(replicas, (np.arange(layers)[:, None], experts), 1)
    order = np.lexsort((-replicas, -loads), axis=1)
    falling = np.take_along_axis(replicas, order, axis=1)
    return np.asarray((np.diff(falling, axis=1) <= 0).all(axis=1))


def _blocks(experts: int) -> NDArray[np.int64]:
    """Ends of blocks of experts from the busiest on: doubling up to half of them, then eighths of the rest."""
    half = experts // 2
    ends = [2**i for i in range(half.bit_length()) if 2**i <= half]
    ends += [half + -(-(experts - half) * i // 8) for i in range(9)]
    return np.unique([end for end in ends if end > 0]).astype(np.int64)


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
        self._chords: dict[tuple[int, float], Array] = {}
        self._block_ends = _blocks(self.num_experts)

    @cached_property
    def _single(self) -> Array:
        """``[2, grid, experts + 1]``: mean and least over layers of the sum of the j smallest ``g_e(1)``."""
        touch = touch_probability(
            np.sort(self.loads, axis=1)[None], self.top_k, GRID[:, None, None], 1.0
        )
        sums = touch.cumsum(axis=-1)
        both = np.stack([sums.mean(axis=1), sums.min(axis=1)])
        return np.concatenate([np.zeros((2, len(GRID), 1)), both], axis=2)

    @cached_property
    def falling(self) -> Array:
        """``[layers, experts]``: loads from the busiest on."""
        return np.asarray(-np.sort(-self.loads, axis=1))

    def _coldest_copied(self, spare: int) -> Array:
        """``[layers]``: load share of the coldest expert that one of ``spare`` slots may copy."""
        place = min(spare, self.num_experts) if self.hot_copies else self.num_experts
        return np.asarray(self.falling[:, max(place, 1) - 1])

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
            fewest = -(-max(self.num_experts - max(spare, 0), 0) // chips)
            pigeonhole = self._single[:, :, fewest]
            bound = np.maximum(average, pigeonhole)
            if spare <= 0:
                full, many = fullest(self.num_experts, chips)
                bound = np.maximum(bound, self._single[:, :, full * many] / many)
            alone = self._hottest(chips, slots, GRID[:, None])
            mean, least = np.maximum(bound, np.stack([alone.mean(axis=1), alone.min(axis=1)]))
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
            if self.hot_copies:
                extra = np.maximum(extra, self._added_in_order(spare, chips, tokens))
        least = -(-max(self.num_experts - max(spare, 0), 0) // chips)
        full, many = fullest(self.num_experts, chips)
        return np.asarray(
            np.maximum.reduce(
                [
                    (single.sum(axis=1) + extra) / chips,
                    single[:, :least].sum(axis=1),
                    single[:, : full * many].sum(axis=1) / many
                    if spare <= 0
                    else np.zeros(len(single)),
                    self._hottest(chips, slots, np.asarray(tokens)),
                ]
            )
        )

    def _hottest(self, chips: int, slots: int, tokens: Array) -> Array:
        """``[.., layers]``: touched of the busiest replica, where that is all its chip holds."""
        if slots > chips or self.loads.max() * self.top_k > 1.0:
            return np.zeros((*tokens.shape[:-1], len(self.loads)))
        return touch_probability(self.layer_loads(chips, slots), self.top_k, tokens, _ROUNDED)

    def _extra(self, spare: int, chips: int) -> Array:
        """``[2, grid]``: what ``spare`` replicas add at least to the sum of touched slots."""
        cold, tokens = self._coldest_copied(spare)[None, :], GRID[:, None]
        pile = min(spare + 1, chips)
        spread = pile * touch_probability(cold, self.top_k, tokens, float(pile))
        alone = touch_probability(cold, self.top_k, tokens, 1.0)
        added = (spread - alone) * spare / (pile - 1)
        if self.hot_copies:
            added = np.maximum(added, self._added_by_blocks(spare, chips))
        return np.stack([added.mean(axis=1), added.min(axis=1)])

    def _added_in_order(self, spare: int, chips: int, tokens: float) -> Array:
        """``[layers]``: what ``spare`` replicas add where no expert has more than a busier one."""
        ranks = np.arange(1, min(spare, self.num_experts) + 1)
        chord = self._chord(
            self.falling[:, : len(ranks)], np.minimum(spare / ranks, chips - 1), tokens
        )
        return np.asarray(spare * (chord.cumsum(axis=1) / ranks).min(axis=1))

    def _added_by_blocks(self, spare: int, chips: int) -> Array:
        """``[grid, layers]``: the same for blocks of experts, each taken for its coldest and most copied one.

        Within a block the mean of chords lies between its values at the block's ends.
        """
        found = np.full((len(GRID), len(self.loads)), np.inf)
        total, first = np.zeros(found.shape), 0
        for end in self._block_ends.tolist():
            if first >= spare:
                break
            most = min(spare / (first + 1), chips - 1.0)
            last = min(end, spare)
            total += (last - first) * self._chord_of_block(end, most)
            found = np.minimum(found, total / last)
            first = end
        return spare * found

    def _chord_of_block(self, end: int, most: float) -> Array:
        """``[grid, layers]``: the least that a spare replica of the ``end``-th busiest expert adds, of at most ``most``."""
        rounded = float(2.0 ** (np.ceil(np.log2(most) * 4) / 4))  # a longer chord is no steeper
        key = (end, rounded)
        if key not in self._chords:
            load = self.falling[None, :, end - 1]
            self._chords[key] = self._chord(load, np.asarray(rounded), GRID[:, None])
        return self._chords[key]

    def _chord(self, loads: Array, most: Array, tokens: float | Array) -> Array:
        """Mean increment of ``f`` from one replica to ``1 + most``."""
        alone = touch_probability(loads, self.top_k, tokens, 1.0)
        spread = (1 + most) * touch_probability(loads, self.top_k, tokens, 1 + most)
        return np.asarray((spread - alone) / most)

    def touched(self, tables: Array, tokens: Array) -> Array:
        """Look up rows of :meth:`touched_on_grid` at the grid point below ``tokens``."""
        place = np.clip(np.searchsorted(GRID, tokens, side="right") - 1, 0, len(GRID) - 1)
        found = tables[np.arange(len(tokens)), place]
        return np.where(tokens < 1.0, 0.0, found)


class ShapeExperts:
    """Bounds of a shape's experts: what ``whole`` says of slots or, where a shape has none, of each cut over a stage's chips.

    A cut leaves nothing to place: every chip has the same share of each expert, as the evaluator prices it
    (:func:`costmodel.experts.moe_load.cut_shares`).
    """

    def __init__(self, whole: ExpertBounds, mixtures: Sequence[MoE]):
        """``mixtures``: those of the layers; where their slices differ the smallest count."""
        self.whole = whole
        self.mixtures = mixtures
        self._on_grid: Array | None = None

    def fewest(self, chips: int, slots: int) -> int:
        """Experts of a layer that a stage holds at least, on average over the layers, with copies."""
        return self.whole.fewest(chips, slots) if slots else self.whole.num_experts

    def load(self, chips: int, slots: int) -> tuple[float, float]:
        """Mean and least over layers of the busiest chip's share."""
        return self.whole.load(chips, slots) if slots else (self._share(chips),) * 2

    def layer_loads(self, chips: int, slots: int) -> Array:
        """``[layers]``: bound on the busiest chip's share in each layer."""
        if slots:
            return self.whole.layer_loads(chips, slots)
        return np.full(len(self.whole.loads), self._share(chips))

    def touched_on_grid(self, chips: int, slots: int) -> tuple[Array, Array]:
        """``[grid]``: mean and least over layers of the experts the busiest chip touches at least."""
        if slots:
            return self.whole.touched_on_grid(chips, slots)
        if self._on_grid is None:
            reached = [self._reached(tokens) for tokens in GRID]
            self._on_grid = np.array([[own.mean(), own.min()] for own in reached]).T
        mean, least = self._on_grid * self._share(chips)
        return mean, least

    def touched_by_layer(self, chips: int, slots: int, tokens: float) -> Array:
        """``[layers]``: experts that the busiest chip touches at least, at exactly these tokens."""
        if slots:
            return self.whole.touched_by_layer(chips, slots, tokens)
        return self._reached(tokens) * self._share(chips)

    def touched(self, tables: Array, tokens: Array) -> Array:
        """Rows of :meth:`touched_on_grid` at the grid point below ``tokens``."""
        return self.whole.touched(tables, tokens)

    def _reached(self, tokens: float) -> Array:
        """``[layers]``: experts that so many tokens reach."""
        alone = touch_probability(self.whole.loads, self.whole.top_k, tokens, 1.0)
        return np.asarray(alone.sum(axis=1))

    def _share(self, chips: int) -> float:
        """Share of an expert in the slice of a chip."""
        return min(float(moe.slice_share(chips)) for moe in self.mixtures)
