r"""Bounds of shapes that keep idle KV: two kinds of requests, and the room and bandwidth of a tier.

With ``K`` conversations kept per second a replica serves ``R(R_new, R_returning, K)``, which grows with all
three (:func:`costmodel.replica.held.hit_share`). In a tier beside HBM ``K`` does not depend on the batch, so the largest
batch is best. In HBM it falls with the batch while the rates grow: between two batches ``x < y`` no batch
serves more than ``R(R_new(y), R_returning(y), K(x))``, and the largest of these over steps of the batch is the bound.
Batches are counted in sequences over all ranks, and ``K`` is the room of the average chip.
"""

from __future__ import annotations

from copy import copy
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from costmodel.question.instance import Instance
from costmodel.replica.held import (
    all_new,
    bandwidth,
    blend,
    conversation_bytes,
    hit_share,
    idle_bytes,
    returning,
)
from costmodel.replica.serving import Service
from solver.bounds.batches import Batch
from solver.bounds.block import Block
from solver.bounds.priced import Array, Priced
from solver.kv_plan import plan_of
from solver.shapes.shapes import ROLES

#: steps of the batch for idle KV in HBM: for many shapes at once, and for one
_STEPS, _FINE_STEPS = 12, 96


class HeldBlock(Block):
    """Shapes of one role on one class that keep idle KV in the place the plan names."""

    by_shape: ClassVar[tuple[str, ...]] = (*Block.by_shape, "chips", "most_bytes")

    def __init__(self, priced: Priced):
        super().__init__(priced)
        plan, workload = plan_of(self.instance), self.instance.workload
        assert plan.idle is not None
        assert workload.hold_s is not None
        self.place = plan.idle
        self.hold_s, self.return_rate = workload.hold_s, workload.return_rate or 0.0
        self.chips = np.asarray(self.tp * self.ranks * self.pp)
        self.one_bytes = conversation_bytes(self.instance)
        #: bytes of a conversation on a chip of the stage with most of them, at least
        self.most_bytes = self.one_bytes / (self.tp * _even_stages(self.instance, self.pp))
        self.read, self.write = bandwidth(self.chip, self.place)
        if self.place == plan.in_flight(ROLES[priced.role]) != "hbm":
            self.read = 0.0  # every pass reads that tier: nothing is left for reloads
        #: sequences beside which the room of idle KV is taken, where it is not the batch that is priced
        self.room_at: Array | None = None

    def _kinds_held(self) -> list[Instance]:
        return [all_new(self.instance), returning(self.instance)]

    def _serving(self, kind: Instance) -> Block:
        """The same shapes serving one kind of request only."""
        one = copy(self)
        one.instance = kind
        one.__dict__.pop("_one_prompt", None)
        return one

    def _kept_per_s(self, total: Array) -> Array:
        """Conversations that room and bandwidth let each shape keep per second, at most."""
        if self.place == "hbm":
            left = self.room.left_bytes(total)
            return np.asarray(left * self.chips / (self.hold_s * self.one_bytes))
        tier = self.chip.tier(self.place)
        room = 0.0 if tier is None else tier.bytes
        rates = (room / self.hold_s, self.read / self.return_rate, self.write)
        return np.asarray(min(rates) / self.most_bytes * self.ranks)

    def service(
        self, batch: Batch, *, exact_stages: bool = False, together: bool = False
    ) -> tuple[Service, NDArray[np.bool_]]:
        """What the shapes offer at a batch with the room they have, and whether the targets hold."""
        new, back = (
            Block.service(self._serving(kind), batch, exact_stages=exact_stages, together=together)[
                0
            ]
            for kind in self._kinds_held()
        )
        kept = self._kept_per_s(batch.total if self.room_at is None else self.room_at)
        hits = hit_share(new, back, self.return_rate, kept)
        hits = np.minimum(hits, self.return_rate * plan_of(self.instance).kept)
        reload_s = np.zeros_like(self.tp)
        if self.read < np.inf:
            moved = self.most_bytes
            reload_s = moved / self.read if self.read else np.full_like(moved, np.inf)
        mixed = blend(new, back, hits, reload_s)
        return mixed, self._in_time(mixed)

    def _best_rate(self, largest: Array) -> Array:
        """The most that any batch up to the largest serves with the room there is."""
        if self.place != "hbm":
            return super()._best_rate(largest)
        steps = _STEPS if self.by_layer is None else _FINE_STEPS
        best, low = np.zeros_like(largest), np.ones_like(largest)
        for step in range(1, steps + 1):
            high = np.maximum(low, np.round(largest ** (step / steps)))
            self.room_at = low
            rate = self.service(self.spread.smooth(high), exact_stages=True)[0].requests_per_s
            self.room_at = None
            best = np.maximum(best, rate)
            low = high
        return best


def _even_stages(instance: Instance, stages: Array) -> Array:
    """Conversation over its largest part on one stage: below ``stages`` where whole layers do not divide."""
    layers = instance.operations.num_layers
    kinds = instance.operations.kinds
    sizes = [idle_bytes(instance, [(kind, 1.0)], 1.0) for kind in kinds]
    drafted = instance.operations.draft is not None
    if drafted or max(sizes) - min(sizes) > 1e-9 * max(sizes):
        return stages  # layers differ: the average is all that holds for every cut
    return np.asarray(layers / np.ceil(layers / stages))
