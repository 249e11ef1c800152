r"""Bounds of shapes that keep idle KV: two kinds of requests, and the room and bandwidth of a tier.

A replica with room for ``H`` conversations serves ``min(R(b), H / hold_s)`` requests per second at batch
``b``. In a tier beside HBM ``H`` does not depend on the batch. In HBM it falls with it while ``R`` grows: the
best batch is the last one with room for all, or the next one, with what room it leaves. ``R`` and ``H``
are both bounded from above, so that their crossing bounds every placement.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from costmodel.held import (
    RequestKind,
    bandwidth,
    blend,
    conversation_bytes,
    keeps_idle,
    request_kinds,
)
from costmodel.serving import Service
from solver.pools import PoolClass
from solver.pricing import Array, Block, Bounds, Pricer
from solver.shapes import ROLES, ShapeTable


class HeldPricer(Pricer):
    """Prices shapes under the KV plan of its instance; without idle KV as :class:`Pricer` does."""

    def block(self, shapes: ShapeTable, role: int, pool_class: PoolClass) -> Block:
        """Shapes of one role on one class, with idle KV where the role keeps it."""
        if keeps_idle(self.instance, ROLES[role]):
            return HeldBlock(self, shapes, role, pool_class)
        return super().block(shapes, role, pool_class)


class HeldBlock(Block):
    """Shapes of one role on one class that keep idle KV in the place the plan names."""

    def __init__(self, pricer: Pricer, shapes: ShapeTable, role: int, pool_class: PoolClass):
        super().__init__(pricer, shapes, role, pool_class)
        plan = self.instance.kv_plan
        assert plan.idle is not None
        self.place = plan.idle
        self.kinds = request_kinds(self.instance)
        self.one_bytes = conversation_bytes(self.instance)
        self.read, self.write = bandwidth(self.chip, self.place)
        if self.place == plan.in_flight(ROLES[role]) != "hbm":
            self.read = 0.0  # every pass reads that tier: nothing is left for reloads
        #: whether HBM must hold all idle KV at full rate, or what is left of it limits the rate
        self.room_for_all = False

    def _with(self, kind: RequestKind) -> Block:
        """The same shapes serving one kind of request only."""
        one = copy(self)
        one.instance = kind.instance
        return one

    def service(
        self, per_rank: Array, *, exact_stages: bool = False
    ) -> tuple[Service, NDArray[np.bool_]]:
        """What the shapes offer at a batch with room for all idle KV, and whether the targets hold."""
        services = [
            Block.service(self._with(kind), per_rank, exact_stages=exact_stages)[0]
            for kind in self.kinds
        ]
        with np.errstate(divide="ignore"):
            reload_s = self.one_bytes / (self.tp * self.pp) / np.asarray(self.read)
        mixed = blend(self.kinds, services, reload_s)
        meets = self._within_ttft(mixed)
        if self.instance.slo.tpot is not None:
            meets = meets & (mixed.tpot_s <= self.instance.slo.tpot)
        return mixed, meets

    def bytes_needed(self, per_rank: Array) -> Array:
        """Least HBM that some chip needs, for the kind of request that needs most."""
        needed = np.maximum.reduce(
            [Block.bytes_needed(self._with(kind), per_rank) for kind in self.kinds]
        )
        if self.room_for_all:
            rate = self.service(per_rank)[0].requests_per_s
            needed = needed + rate * self._hold_s * self.one_bytes / self._chips
        return np.asarray(needed)

    @property
    def _chips(self) -> Array:
        return np.asarray(self.tp * self.ranks * self.pp)

    @property
    def _hold_s(self) -> float:
        return self.instance.workload.hold_s or 0.0

    def bounds(self) -> Bounds:
        """Largest batch, best rate within room and bandwidth, and what one sequence would need."""
        if self.place == "hbm":
            return self._in_hbm()
        found = super().bounds()
        tier = self.chip.tier(self.place)
        room = 0.0 if tier is None else tier.bytes
        returns = self.instance.workload.return_rate or 0.0
        per_chip = min(
            room / (self._hold_s * self.one_bytes),
            self.read / (returns * self.one_bytes),
            self.write / self.one_bytes,
        )
        rate = np.minimum(found.requests_per_s, per_chip * self._chips)
        return replace(found, requests_per_s=rate, per_rank=np.where(rate > 0, found.per_rank, 0))

    def _in_hbm(self) -> Bounds:
        self.room_for_all = True
        found = super().bounds()
        self.room_for_all = False
        following: Array = found.per_rank.astype(float) + 1.0
        tried = self._feasible(following) & (following <= self._most_per_rank())
        left = np.maximum(0.0, self.chip.hbm_bytes - self.bytes_needed(following))
        limited = left * self._chips / (self._hold_s * self.one_bytes)
        rate = np.minimum(self.service(following)[0].requests_per_s, limited)
        tried = tried & (rate > 0)
        short = self.short_bytes(np.ones(len(self.tp)))
        return replace(
            found,
            per_rank=np.where(tried, following, found.per_rank).astype(np.int64),
            requests_per_s=np.maximum(found.requests_per_s, np.where(tried, rate, 0.0)),
            fits=short <= 0,
            short_bytes=short,
        )
