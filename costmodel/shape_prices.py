"""Many shapes priced at once, each at a batch of its own, by the functions that price a layout.

What :func:`costmodel.evaluate.evaluate` finds for the plainest layout of a shape under uniform expert
load: one copy of each expert, spread over a stage's chips as evenly as it goes; layers spread over
stages the same way; as many sequences on every attention rank. Nothing is placed, so that a shape costs a
few hundred array operations shared by a whole block of shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costmodel.layout.layout import Role, spread
from costmodel.passes.communication import GroupRates
from costmodel.passes.operations import LayerKind
from costmodel.passes.pass_time import pass_time
from costmodel.passes.tokens import ExpertShares, Tokens, even_shares
from costmodel.question.instance import Instance
from costmodel.replica import memory
from costmodel.replica.held import all_new
from costmodel.replica.serving import PipelineTime, Schedule, Service, schedule, serve
from topology import Chip
from topology.errors import InstanceError, Problem

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

SECONDS_PER_HOUR = 3600.0

#: shapes priced at once: keeps the working set in cache
_BLOCK = 2048


@dataclass(frozen=True)
class Shapes:
    """Shapes of one role on one type of chip, and the batch of each (arrays of one length).

    ``per_rank``: sequences (decode, mixed) or prompts (prefill) of one attention rank in one
    microbatch. ``rates``: of the collectives of every stage, which are taken to be alike.
    """

    role: Role
    chip: Chip
    tp: Array
    attention_dp: Array
    pp: Array
    per_rank: Array
    rates: GroupRates

    def __len__(self) -> int:
        return len(self.tp)

    @property
    def chips(self) -> Array:
        """Chips of each replica."""
        return self.tp * self.attention_dp * self.pp

    def take(self, index: slice | Ints) -> Shapes:
        """The shapes picked by ``index``."""
        return replace(
            self,
            tp=self.tp[index],
            attention_dp=self.attention_dp[index],
            pp=self.pp[index],
            per_rank=self.per_rank[index],
            rates=self.rates.take(index),
        )


@dataclass(frozen=True)
class ShapePrices:
    """What each shape offers at its batch (arrays of one length).

    ``step_s``: seconds between two passes of a microbatch (decode, mixed: of decode passes, the prefill
    passes between them left out; prefill: of prefill passes). ``hbm_bytes``: of the fullest chip;
    ``fits``: whether that is there. ``usd_per_request``: of the replica's chips, this role alone.
    """

    service: Service
    step_s: Array
    hbm_bytes: Array
    fits: NDArray[np.bool_]
    usd_per_request: Array


def price_shapes(instance: Instance, shapes: Shapes) -> ShapePrices:
    """Price shapes, each at its batch; see the module for the layout that they stand for.

    Raises ``InstanceError`` for passes in two halves, which are priced layout by layout.
    """
    if instance.scenario.two_batch_overlap:
        raise InstanceError(Problem("two_batch_overlap", "is priced layout by layout, not in bulk"))
    instance = all_new(instance)
    cuts = EvenCuts(instance)
    found = [
        _priced(instance, cuts, shapes.take(slice(start, start + _BLOCK)))
        for start in range(0, len(shapes), _BLOCK)
    ]
    service = Service(
        *(
            np.concatenate([getattr(own.service, name) for own in found])
            for name in Service.__dataclass_fields__
        )
    )
    rest = [
        np.concatenate([getattr(own, name) for own in found])
        for name in ShapePrices.__dataclass_fields__
        if name != "service"
    ]
    return ShapePrices(service, *rest)


@dataclass(frozen=True)
class Stages:
    """Stages of some shapes that differ, shape after shape (arrays ``[stages]``).

    ``shape``: whose stage it is; ``times``: how many of its stages are like this one; ``counts``: layers
    of each kind; ``starts [shapes]``: the first stage of each shape.
    """

    shape: Ints
    times: Array
    counts: list[Array]
    first: NDArray[np.bool_]
    last: NDArray[np.bool_]
    starts: Ints

    def sum(self, values: Array) -> Array:
        """Sum over all stages of each shape."""
        return np.asarray(np.add.reduceat(self.times * values, self.starts))

    def largest(self, values: Array) -> Array:
        """Largest over the stages of each shape."""
        return np.asarray(np.maximum.reduceat(values, self.starts))


class EvenCuts:
    """A model's layers spread over any number of stages, stages that are alike counted once."""

    def __init__(self, instance: Instance):
        self.num_kinds = len(instance.operations.kinds)
        self.kind_of_layer = instance.operations.kind_of_layer()
        self._known: dict[int, Array] = {}

    def of(self, pp: Array) -> Stages:
        """Stages of shapes with so many each."""
        depths, which = np.unique(pp, return_inverse=True)
        tables = [self._table(int(depth)) for depth in depths.tolist()]
        rows = np.concatenate(tables)
        sizes = np.array([len(table) for table in tables])
        own = sizes[which]
        ends = own.cumsum()
        shape = np.repeat(np.arange(len(pp)), own)
        place = np.arange(len(shape)) - np.repeat(ends - own, own)
        at = rows[np.repeat((sizes.cumsum() - sizes)[which], own) + place].T.copy()
        return Stages(shape, at[0], list(at[3:]), at[1] > 0, at[2] > 0, ends - own)

    def _table(self, pp: int) -> Array:
        """Different stages of ``pp``: how many, whether first and last, layers of each kind."""
        if pp not in self._known:
            alike: dict[tuple[int, ...], int] = {}
            start = 0
            for index, count in enumerate(spread(len(self.kind_of_layer), pp)):
                layers = self.kind_of_layer[start : start + count]
                kinds = (layers.count(kind) for kind in range(self.num_kinds))
                key = (int(index == 0), int(index == pp - 1), *kinds)
                alike[key] = alike.get(key, 0) + 1
                start += count
            self._known[pp] = np.array([(n, *key) for key, n in alike.items()], dtype=float)
        return self._known[pp]


class _Block:
    """Some shapes with their stages side by side."""

    def __init__(self, instance: Instance, cuts: EvenCuts, shapes: Shapes):
        self.instance = instance
        self.shapes = shapes
        self.stages = cuts.of(shapes.pp)
        # with one stage each, stages are the shapes themselves
        self.single = len(self.stages.shape) == len(shapes)
        self.tp, self.ranks = self.by_stage(shapes.tp), self.by_stage(shapes.attention_dp)
        self.pp = self.by_stage(shapes.pp)
        self.rates = shapes.rates if self.single else shapes.rates.take(self.stages.shape)
        self.layers = list(zip(instance.operations.kinds, self.stages.counts, strict=True))

    def by_stage(self, values: ArrayLike) -> Array:
        """Values of shapes ``[stages]``; one number stays one."""
        values = np.asarray(values, dtype=float)
        return values if self.single or not values.ndim else values[self.stages.shape]


def _priced(instance: Instance, cuts: EvenCuts, shapes: Shapes) -> ShapePrices:
    block = _Block(instance, cuts, shapes)
    plan = schedule(
        shapes.role, instance.workload, instance.limits, shapes.per_rank, instance.speculative
    )
    decode = None if plan.decode is None else _pipeline(block, plan.decode)
    prefill = None if plan.prefill is None else _pipeline(block, plan.prefill)
    in_pass = shapes.per_rank * shapes.attention_dp
    sequences = in_pass if shapes.role == "prefill" else in_pass * shapes.pp
    service = serve(instance.workload, plan, sequences, shapes.pp, decode, prefill)
    held = _hbm_bytes(block, plan)
    usd_per_s = (
        shapes.chips
        * shapes.chip.usd_per_hour
        * instance.scenario.prices.chip_price_factor
        / SECONDS_PER_HOUR
    )
    main = decode if decode is not None else prefill
    assert main is not None
    return ShapePrices(
        service,
        main.period_s(shapes.pp) if decode is not None else main.max_s,
        held,
        held <= shapes.chip.hbm_bytes,
        usd_per_s / service.requests_per_s,
    )


def _pipeline(block: _Block, tokens: Tokens) -> PipelineTime:
    """Times of one pass; ``tokens`` of each shape."""
    instance, shapes = block.instance, block.shapes
    operations = instance.operations
    of_stage = Tokens(
        decode=block.by_stage(tokens.decode),
        context=tokens.context,
        prefill=block.by_stage(tokens.prefill),
        prefill_start=tokens.prefill_start,
        prefill_end=tokens.prefill_end,
        prompts=block.by_stage(tokens.prompts),
        verified=tokens.verified,
    )
    rows = of_stage.rows

    def shares(kind: LayerKind) -> ExpertShares | None:
        if kind.moe is None:
            return None
        return even_shares(kind.moe, block.tp * block.ranks, rows * block.ranks)

    efficiency = instance.profile.for_chip(shapes.chip.name)
    timed = pass_time(
        operations, block.layers, block.tp, block.ranks, of_stage, shapes.chip, efficiency,
        block.rates, [shares(kind) for kind, _ in block.layers],
        with_head=block.stages.last,
    )  # fmt: skip
    total = timed.total_s(instance.profile.combination) + efficiency.step_overhead_s / block.pp
    sent = tokens.rows / shapes.tp * operations.hidden_size * operations.activation_bytes
    hop = shapes.rates.send_latency_s + shapes.rates.send_s_per_byte * sent
    hop = np.where(shapes.pp > 1, shapes.pp * hop, 0.0)
    return PipelineTime(block.stages.sum(total), block.stages.largest(total), hop)


def _hbm_bytes(block: _Block, plan: Schedule) -> Array:
    """Bytes on the fullest chip of each shape."""
    instance, shapes, stages = block.instance, block.shapes, block.stages
    operations, moe = instance.operations, instance.operations.moe
    tp, chips = block.tp, block.tp * block.ranks
    context = instance.workload.input_tokens if shapes.role == "prefill" else instance.final_context
    held = memory.dense_weight_bytes(block.layers, tp) + stages.last * memory.draft_weight_bytes(
        operations, tp, chips
    )
    for is_first, is_last in ((True, True), (True, False), (False, True)):
        here = (stages.first == is_first) & (stages.last == is_last)
        edge = memory.edge_weight_bytes(operations, tp, first=is_first, last=is_last)
        held = held + here * edge
    if moe is not None:
        held = held + memory.expert_slot_bytes(block.layers) * np.ceil(moe.num_experts / chips)
    cached = memory.kv_bytes_per_sequence(operations, block.layers, tp, context)
    cached = cached + stages.last * memory.draft_kv_bytes(operations, tp, context)
    sampled = np.where(stages.last, block.by_stage(plan.sampled()), 0.0)
    held = held + cached * block.by_stage(shapes.per_rank * shapes.pp)
    held = held + memory.activation_bytes(operations, tp, block.by_stage(plan.rows()), sampled)
    runtime = instance.profile.for_chip(shapes.chip.name).runtime_bytes
    return stages.largest(held + runtime)
