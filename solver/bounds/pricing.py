"""Shapes priced under the best conceivable placement: admissible bounds, vectorised over shapes.

For every shape the largest batch that its targets and HBM allow is found exactly (times and bytes
grow with the batch, so it is a bisection), and with it the most requests per second it could serve.
No placement of experts, layers or KV can serve more. The formulas are the cost model's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel.passes.communication import GroupRates, joined, stack_rates
from costmodel.passes.operations import LayerKind
from costmodel.question.instance import Instance
from solver.bounds.block import PREFILL, Block
from solver.bounds.experts.expert_bounds import ExpertBounds, ShapeExperts, small_enough
from solver.bounds.experts.ordered_bounds import OrderedBounds, never_places
from solver.bounds.experts.shared_bounds import bounds_of_shared_slots
from solver.bounds.held_pricing import HeldBlock
from solver.bounds.priced import Array, Bounds, Priced
from solver.bounds.room import StageRoom
from solver.kv_plan import keeps_idle
from solver.shapes.group_rates import group_rates, span_rates
from solver.shapes.least_rates import KnownSets, least_rates
from solver.shapes.nearest import least_hand_over
from solver.shapes.pools import PoolClass
from solver.shapes.shapes import ROLES, ShapeTable
from solver.shapes.spans import Parts, joined_best
from solver.shapes.stands import neighbours_matter
from solver.threads import side_by_side
from topology import Rate

#: shapes priced at once: keeps the working set in cache and memory small
_BLOCK = 4096
#: share by which the largest batches that are bounded with the cuts of the smallest of them are apart, and by how much more the next
_STEP, _WIDER = 0.005, 1.5
#: share that more steps may not tell
_CLOSE = 0.001


class Pricer:
    """Prices shapes of one instance on its pool classes."""

    def __init__(
        self, instance: Instance, classes: Sequence[PoolClass], like: Pricer | None = None
    ):
        """``like``: a pricer of the same question with KV elsewhere or other targets, whose loads and rates are known."""
        self.instance = instance
        self.classes = tuple(classes)
        operations = instance.operations
        self.layers: list[tuple[LayerKind, float]] = [
            (kind, float(len(kind.layers))) for kind in operations.kinds
        ]
        moe = operations.moe
        # a model so small that every placement is tried needs a bound for every placement
        engine = instance.engine
        self.hot_copies = not small_enough(instance, 1) and (
            engine is None
            or not engine.layouts.spare_in_order
            or engine.places_experts(instance.model, 1)
        )
        self.experts: ExpertBounds | None = None
        self._rates: dict[tuple[int, ...], list[GroupRates]] = {}
        self._transfers: dict[int, Rate] = {}
        self._best_joined: dict[tuple[int, ...], bool] = {}
        self.sets = KnownSets()
        if like is not None:
            self.experts, self._rates, self.sets = like.experts, like._rates, like.sets
        elif moe is not None and instance.scenario.layer_slots == "same":
            ordered = engine is not None and never_places(instance)
            kind = OrderedBounds if ordered else ExpertBounds
            self.experts = kind(instance.expert_loads, moe.top_k, hot_copies=self.hot_copies)
        elif moe is not None:
            self.experts = bounds_of_shared_slots(instance, moe.top_k, hot_copies=self.hot_copies)
        mixtures = [kind.moe for kind in operations.kinds if kind.moe is not None]
        self.of_shapes = None if self.experts is None else ShapeExperts(self.experts, mixtures)

    def again(self, instance: Instance) -> Pricer:
        """A pricer of the same question with KV elsewhere or other targets."""
        return type(self)(instance, self.classes, self)

    def bounds(self, shapes: ShapeTable, workers: int = 1) -> Bounds:
        """Upper bounds of all shapes (any mix of roles and classes), by so many threads."""
        count = len(shapes)
        result = Bounds(
            per_rank=np.zeros(count, dtype=np.int64),
            requests_per_s=np.zeros(count),
            fits=np.zeros(count, dtype=bool),
            short_bytes=np.zeros(count),
            least_tpot_s=np.zeros(count),
            least_ttft_s=np.zeros(count),
        )
        blocks: list[tuple[NDArray[np.int64], int, PoolClass]] = []
        order = np.lexsort((shapes.pool_class, shapes.role))
        kinds = shapes.role[order] * len(self.classes) + shapes.pool_class[order]
        for rows in np.split(order, np.flatnonzero(np.diff(kinds)) + 1):
            blocks += [
                (part, int(shapes.role[part[0]]), self.classes[int(shapes.pool_class[part[0]])])
                for start in range(0, len(rows), _BLOCK)
                if len(part := rows[start : start + _BLOCK])
            ]

        def bounded(block: tuple[NDArray[np.int64], int, PoolClass]) -> Bounds:
            rows, role, pool_class = block
            return self._most(shapes.take(rows), role, pool_class)

        with side_by_side(workers, len(blocks)) as each:
            for (rows, _, _), found in zip(blocks, each(bounded, blocks), strict=True):
                for name in Bounds.__dataclass_fields__:
                    getattr(result, name)[rows] = getattr(found, name)
        return result

    def _most(self, shapes: ShapeTable, role: int, pool_class: PoolClass) -> Bounds:
        """Bounds on the best of the sets of chips that each shape may stand on."""
        priced = self.block(shapes, role, pool_class)
        found = priced.bounds()
        found.requests_per_s[~joined(priced.rates)] = 0.0
        rates, which = self._ways(shapes)
        ways = np.array([len(own) for own in rates], dtype=np.int64)[which]
        for turn in range(1, int(ways.max(initial=1))):
            rows = np.flatnonzero(ways > turn)
            found.raise_to(rows, self.block(shapes.take(rows), role, pool_class, turn).bounds())
        return found

    def block(self, shapes: ShapeTable, role: int, pool_class: PoolClass, turn: int = 0) -> Block:
        """Shapes of one role on one class, to be priced together, on the set of chips whose turn it is."""
        kind: type[Block] = HeldBlock if keeps_idle(self.instance, ROLES[role]) else Block
        return kind(self.priced(shapes, role, pool_class, turn))

    def priced(self, shapes: ShapeTable, role: int, pool_class: PoolClass, turn: int = 0) -> Priced:
        """Shapes of one role on one class with all that their prices need."""
        rates = self.rates(shapes, turn)
        if pool_class.index not in self._transfers:
            found = least_hand_over(self.instance.cluster, pool_class)
            self._transfers[pool_class.index] = found
        transfer = self._transfers[pool_class.index]
        return Priced(
            self.instance, self.layers, self.of_shapes, shapes, rates, role, pool_class, transfer
        )

    def tightened(
        self,
        shapes: ShapeTable,
        row: int,
        layer_bounds: Array | None,
        most_per_rank: int,
        *,
        traded: bool = False,
        enough: float = 0.0,
    ) -> float:
        """A shape's rate bound with the load bounds ``[moe layers]`` that its placement proved.

        Layer by layer instead of on average, hence no looser than :meth:`bounds`. ``None``: on average, for a
        shape whose layers share their slots. ``traded``: loads and touched experts taken together, which takes longer. ``enough``: a rate
        that it is only asked whether the bound exceeds.
        """
        one = shapes.take(np.array([row]))
        pool_class = self.classes[int(one.pool_class[0])]
        best = 0.0
        for turn in range(len(self.ways_of(shapes, row))):
            block = self.block(one, int(one.role[0]), pool_class, turn)
            if layer_bounds is not None:
                proven = (
                    0.0
                    if self.of_shapes is None
                    else self.of_shapes.layer_loads(int(one.stage_chips[0]), int(one.slots[0]))
                )
                block.by_layer = np.maximum(layer_bounds, proven)
                block.traded = traded
            block.most = most_per_rank
            block.exact_stages = True
            best = max(best, _of_one(block, enough))
        return best

    def balanced(self, shapes: ShapeTable, row: int, most_per_rank: int) -> float:
        """Requests per second of a shape if every chip got the same share of routed tokens."""
        chips = int(shapes.stage_chips[row])
        even = np.full(len(self.instance.operations.moe_layers), 1.0 / chips)
        if self.of_shapes is not None and not shapes.slots[row]:
            even = self.of_shapes.layer_loads(chips, 0)
        one = shapes.take(np.array([row]))
        block = self.block(one, int(one.role[0]), self.classes[int(one.pool_class[0])])
        block.by_layer, block.most = even, most_per_rank
        return float(block.bounds().requests_per_s[0])

    def rates(self, shapes: ShapeTable, turn: int = 0) -> GroupRates:
        """Collective rates of shapes, stacked: of each one's first set of chips, or of the one whose turn it is."""
        found, inverse = self._ways(shapes)
        return stack_rates([own[min(turn, len(own) - 1)] for own in found]).take(inverse)

    def _ways(self, shapes: ShapeTable) -> tuple[list[list[GroupRates]], NDArray[np.int64]]:
        """Rates of the shapes that differ in them, and which of these each shape has."""
        columns = (
            shapes.pool_class, shapes.tp, shapes.stage_chips, shapes.stage_pools, shapes.pp,
            shapes.slices, shapes.span, shapes.slice_chips, shapes.role,
            shapes.slots % shapes.stage_chips > 0, shapes.slots == 0,
        )  # fmt: skip
        keys, rows, inverse = np.unique(
            np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True
        )
        found = []
        for row, key in zip(rows.tolist(), map(tuple, keys.tolist()), strict=True):
            if key not in self._rates:
                self._rates[key] = self.ways_of(shapes, row)
            found.append(self._rates[key])
        return found, np.asarray(inverse.ravel(), dtype=np.int64)

    def ways_of(self, shapes: ShapeTable, row: int) -> list[GroupRates]:
        """Least collective rates of a shape on each kind of set that it may stand on; often there is one."""
        one = shapes.row(row)
        pool_class = self.classes[one["pool_class"]]
        if not neighbours_matter(self.instance.cluster, pool_class.domain):
            return [self.rates_of(shapes, row)[0]]
        parts = shapes.parts(row)
        return least_rates(self._joined(parts), self.classes, parts, one, self.sets)

    def rates_of(self, shapes: ShapeTable, row: int) -> tuple[GroupRates, bool]:
        """Collective rates of a shape where chips cannot be told apart, and whether each stage has exactly these."""
        one = shapes.row(row)
        pool_class = self.classes[one["pool_class"]]
        home = self.instance.cluster.domains[pool_class.domain]
        types = {placed.chip.name for placed in home.usable}
        only_nics = home.fabric.interchangeable_chips and not home.interchangeable_chips
        parts = shapes.parts(row)
        instance = self._joined(parts)
        if one["span"] >= 0 or only_nics or len(types) > 1:
            return span_rates(instance, self.classes, parts, one)
        return group_rates(instance, pool_class, one), True

    def _joined(self, parts: Parts) -> Instance:
        """The question, with all domains under the same leaves where pools of a replica may be joined better."""
        key = tuple(index for index, _ in parts)  # how many chips of each pool plays no part
        if key not in self._best_joined:
            self._best_joined[key] = joined_best(self.instance.cluster, self.classes, parts)
        return self.instance if self._best_joined[key] else self._in_one_unit

    @cached_property
    def _in_one_unit(self) -> Instance:
        return replace(self.instance, cluster=self.instance.cluster.in_one_unit)


def _of_one(block: Block, enough: float) -> float:
    """Rate bound of a block's one shape, see :meth:`Pricer.tightened`."""
    if block.pp[0] == 1 or block.role == PREFILL or type(block) is not Block:
        return float(block.bounds().requests_per_s[0])
    return _within_cuts(block, enough)


def _within_cuts(block: Block, enough: float) -> float:
    """Rate bound of one shape in stages, not of prefill, that fit beside the batch's caches.

    Beside a large batch HBM holds few layers in a stage: the quickest cut may not be allowed.
    Batches with more than ``n`` and up to ``N`` sequences on a rank are bounded at ``N`` with the cuts that fit beside ``n + 1``,
    from the largest down, until no smaller one serves more even with any cut, or some serve more than ``enough`` for all that is
    known: then the bound is that of any cut.
    """
    block.one_cut = block.cut_for_both
    bounds = block.bounds()
    first = plain = float(bounds.requests_per_s[0])
    most = int(bounds.per_rank[0])
    room, best = StageRoom(block.room, cut=not block.whole[0]), 0.0
    holds = room.most(most)
    if holds < most:
        plain, most = _at_most(block, holds), holds
    step = _STEP
    while most and plain > max(best * (1 + _CLOSE), enough):
        fewest = min(room.fewest_alike(most), int(most * (1 - step)) + 1)
        block.allowed = room.allowed(fewest)
        best = max(best, _at_most(block, most))
        if best > enough > 0.0:
            return first
        block.allowed, most, step = None, fewest - 1, step * _WIDER
        plain = _at_most(block, most)
    return max(best, plain if most else 0.0)


def _at_most(block: Block, sequences: int) -> float:
    """Rate bound with so many sequences on a rank at most, in each of the passes that take turns."""
    if not sequences:
        return 0.0
    block.most, block.beside = sequences, float(sequences)
    return float(block.bounds().requests_per_s[0])
