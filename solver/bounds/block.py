"""Shapes of one role on one class of chips, priced together at any batch; see :mod:`solver.bounds.pricing`."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from costmodel.passes.operations import LayerKind
from costmodel.passes.pass_time import ExpertShares, PassTime, Tokens, pass_time
from costmodel.replica import memory
from costmodel.replica.fleet import transfer_bytes_per_chip
from costmodel.replica.held import for_role
from costmodel.replica.serving import PipelineTime, Service, schedule, serve
from solver.bounds.priced import Array, Bounds, Ints, Priced
from solver.place.stages import shortest_longest_stage
from solver.shapes.group_rates import nearest_send
from solver.shapes.largest_batch import largest_batch
from solver.shapes.shapes import ROLES

PREFILL, DECODE, MIXED = (ROLES.index(role) for role in ("prefill", "decode", "mixed"))


class Block:
    """Shapes of one role on one class."""

    def __init__(self, priced: Priced):
        shapes, role, pool_class = priced.shapes, priced.role, priced.pool_class
        self.instance = for_role(priced.instance, ROLES[role])
        self.layers = priced.layers
        self.role = role
        self.chip = pool_class.chip
        self.efficiency = self.instance.profile.for_chip(pool_class.chip.name)
        self.rates = priced.rates
        self.tp = shapes.tp.astype(float)
        self.ranks = shapes.attention_dp.astype(float)
        self.pp = shapes.pp.astype(float)
        # nearest decode replica: at best in the same domain
        self.transfer = nearest_send(priced.instance.cluster, pool_class)
        self.experts = priced.experts
        self.slots = shapes.slots
        self.stage_chips = shapes.stage_chips
        #: slots of a layer at least, on average; fewer than ``slots`` where layers share them
        self.fewest = self.slots
        self.by_layer: Array | None = None
        self.most: int | None = None
        #: whether targets are checked with the best cut of whole layers (dear for many shapes)
        self.exact_stages = False
        if self.experts is not None:
            pairs, inverse = np.unique(
                np.stack([shapes.stage_chips, shapes.slots], axis=1), axis=0, return_inverse=True
            )
            fewest = [self.experts.fewest(*pair) for pair in pairs.tolist()]
            self.fewest = np.array(fewest, dtype=np.int64)[inverse.ravel()]
            loads = np.array([self.experts.load(*pair) for pair in pairs.tolist()])
            self.load, self.least_load = loads[inverse.ravel()].T
            grids = np.array([self.experts.touched_on_grid(*pair) for pair in pairs.tolist()])
            self.touched, self.least_touched = grids[inverse.ravel()].swapaxes(0, 1)

    #: attributes with one element for each shape
    by_shape: ClassVar[tuple[str, ...]] = ("tp", "ranks", "pp", "slots", "fewest", "stage_chips")

    def take(self, rows: Ints) -> Self:
        """The block of some of its shapes."""
        part = copy(self)
        part.rates = self.rates.take(rows)
        names = self.by_shape
        if self.experts is not None:
            names = (*names, "load", "least_load", "touched", "least_touched")
        for name in names:
            setattr(part, name, getattr(self, name)[rows])
        part.__dict__.pop("_resident", None)
        return part

    def bounds(self) -> Bounds:
        """Largest batch, best rate, and what one sequence per rank would need."""
        one = np.ones(len(self.tp))
        short = self.short_bytes(one)
        service_at_one, meets_at_one = self.service(one)
        most = np.maximum(self._most_per_rank(), 1).astype(float)
        most = np.where(meets_at_one & (short <= 0), most, 0.0)
        low = largest_batch(
            self._feasible, most, self._strain(service_at_one, short),
            lambda rows: self.take(rows)._feasible,
        )  # fmt: skip
        best, _ = self.service(np.maximum(low, 1.0), exact_stages=True)
        meets = low > 0
        return Bounds(
            per_rank=np.where(meets, low, 0).astype(np.int64),
            requests_per_s=np.where(meets, best.requests_per_s, 0.0),
            fits=short <= 0,
            short_bytes=short,
            least_tpot_s=service_at_one.tpot_s,
            least_ttft_s=service_at_one.ttft_s,
        )

    def _most_per_rank(self) -> Ints:
        if self.most is not None:
            return np.full(len(self.tp), self.most, dtype=np.int64)
        limits, workload = self.instance.limits, self.instance.workload
        if self.role == PREFILL:
            most = max(1, limits.prefill_chunk_tokens // workload.new_tokens)
            return np.full(len(self.tp), most, dtype=np.int64)
        most_in_flight = limits.max_sequences_per_rank // self.pp
        return np.asarray(np.maximum(1, most_in_flight), dtype=np.int64)

    def _feasible(self, per_rank: Array) -> tuple[NDArray[np.bool_], Array]:
        """HBM, TPOT and TTFT: all of them grow with the batch; and how near their limits they are."""
        service, meets = self.service(per_rank, exact_stages=self.exact_stages)
        short = self.short_bytes(per_rank)
        return np.asarray((short <= 0) & meets), self._strain(service, short)

    def _strain(self, service: Service, short: Array) -> Array:
        """Largest of HBM, TPOT and TTFT as fractions of what is allowed."""
        strain, slo = 1.0 + short / self.chip.hbm_bytes, self.instance.slo
        if slo.tpot is not None and self.role != PREFILL:
            strain = np.maximum(strain, service.tpot_s / slo.tpot)
        if slo.ttft is not None and self.role != DECODE:
            strain = np.maximum(strain, service.ttft_s / slo.ttft)
        return strain

    def _within_ttft(self, service: Service) -> NDArray[np.bool_]:
        target = self.instance.slo.ttft
        if target is None or self.role == DECODE:
            return np.ones(len(self.tp), dtype=bool)
        return np.asarray(service.ttft_s <= target)

    def service(
        self, per_rank: Array, *, exact_stages: bool = False
    ) -> tuple[Service, NDArray[np.bool_]]:
        """What the shapes offer at a batch, and whether the targets hold.

        Stages are bounded by their average, or (``exact_stages``) by the best cut of whole layers.
        """
        instance, slo = self.instance, self.instance.slo
        plan = schedule(
            ROLES[self.role], instance.workload, instance.limits, per_rank, instance.speculative
        )
        decode = None if plan.decode is None else self._pipeline(plan.decode, exact_stages)
        prefill = None if plan.prefill is None else self._pipeline(plan.prefill, exact_stages)
        sequences = per_rank * self.ranks * (1.0 if self.role == PREFILL else self.pp)
        service = serve(instance.workload, plan, sequences, self.pp, decode, prefill)
        meets = np.ones(len(self.tp), dtype=bool)
        if self.role == PREFILL:
            moved = transfer_bytes_per_chip(instance, 1.0, 1.0) / (self.tp * self.pp)
            service = service.delayed(self.transfer.latency_s + self.transfer.s_per_byte * moved)
        elif slo.tpot is not None:
            meets &= service.tpot_s <= slo.tpot
        return service, meets & self._within_ttft(service)

    def _pipeline(self, tokens: Tokens, exact_stages: bool) -> PipelineTime:
        """Times of one pass."""
        operations = self.instance.operations
        rows = tokens.rows
        shares = self._shares(rows * self.ranks)
        timed = self._timed(self.layers, tokens, shares, with_head=True)
        step = self.efficiency.step_overhead_s
        total = timed.total_s(self.instance.profile.combination) + step
        sent = rows / self.tp * operations.hidden_size * operations.activation_bytes
        hop = np.where(
            self.pp > 1,
            self.pp * (self.rates.send_latency_s + self.rates.send_s_per_byte * sent),
            0.0,
        )
        longest = total / self.pp
        if exact_stages:
            longest = np.maximum(longest, self._longest(tokens, rows, step))
        return PipelineTime(total, longest, hop)

    def _timed(
        self,
        layers: Sequence[tuple[LayerKind, float]],
        tokens: Tokens,
        shares: ExpertShares | None,
        *,
        with_head: bool,
    ) -> PassTime:
        return pass_time(
            self.instance.operations, layers, self.tp, self.ranks, tokens, self.chip,
            self.efficiency, self.rates, [shares if kind.moe else None for kind, _ in layers],
            with_head=with_head,
        )  # fmt: skip

    def _longest(self, tokens: Tokens, rows: Array, step_s: float) -> Array:
        """Longest stage at least: the best cut of whole layers, each as short as its kind's shortest."""
        if self.instance.profile.combination != "per_op" or not np.any(self.pp > 1):
            return np.zeros(len(self.tp))
        least = None
        if self.experts is not None:
            least = ExpertShares(
                self.least_load[:, None, None],
                self.experts.touched(self.least_touched, rows * self.ranks)[:, None, None],
            )
        layer_s = [
            np.broadcast_to(
                self._timed([(kind, 1.0)], tokens, least, with_head=False).total_s("per_op"),
                self.tp.shape,
            )
            for kind, _ in self.layers
        ]
        head_s = np.broadcast_to(
            self._timed([], tokens, None, with_head=True).total_s("per_op"), self.tp.shape
        )
        found = np.zeros(len(self.tp))
        piped = self.pp > 1
        found[piped] = (
            shortest_longest_stage(
                [seconds[piped] for seconds in layer_s],
                self.instance.operations.kind_of_layer(),
                head_s[piped],
                self.pp[piped],
            )
            + step_s / self.pp[piped]
        )
        return found

    def _shares(self, tokens: Array) -> ExpertShares | None:
        """Bounds on the busiest chip: means over layers, or layer by layer for one shape."""
        if self.experts is None:
            return None
        if self.by_layer is None:
            touched = self.experts.touched(self.touched, tokens)
            return ExpertShares(self.load[:, None, None], touched[:, None, None])
        chips, slots = int(self.stage_chips[0]), int(self.slots[0])
        touched = self.experts.touched_by_layer(chips, slots, float(tokens[0]))
        return ExpertShares(self.by_layer[None, :, None], touched[None, :, None])

    def short_bytes(self, per_rank: Array) -> Array:
        """Bytes by which some chip's HBM, or the tier its caches lie in, is too small at least."""
        short = self.bytes_needed(per_rank) - self.chip.hbm_bytes
        place = self.instance.kv_read_from
        if place is None:
            return short
        tier = self.chip.tier(place)
        workload = self.instance.workload
        context = workload.input_tokens if self.role == PREFILL else workload.final_context
        stored = replace(self.instance.operations, kv_in_hbm=True)
        caches = memory.kv_bytes_per_sequence(stored, self.layers, self.tp, context) * per_rank
        return np.maximum(short, caches - (tier.bytes if tier is not None else 0.0))

    def bytes_needed(self, per_rank: Array) -> Array:
        """Least HBM that some chip needs: the average over stages, slots as even as they can be."""
        instance = self.instance
        plan = schedule(
            ROLES[self.role], instance.workload, instance.limits, per_rank, instance.speculative
        )
        sampled = np.where(self.pp > 1, 0.0, plan.sampled())
        resident, kv = self._resident
        return np.asarray(
            resident
            + kv * per_rank  # all microbatches of a rank, each stage holding its share of layers
            + memory.activation_bytes(instance.operations, self.tp, plan.rows(), sampled)
            + self.efficiency.runtime_bytes
        )

    @cached_property
    def _resident(self) -> tuple[Array, Array]:
        """What :meth:`bytes_needed` holds whatever the batch, and for each sequence of a rank."""
        instance, operations = self.instance, self.instance.operations
        prefills = self.role == PREFILL
        context = instance.workload.input_tokens if prefills else instance.final_context
        weights = memory.dense_weight_bytes(self.layers, self.tp) + memory.edge_weight_bytes(
            operations, self.tp, first=True, last=True
        )
        weights = weights + memory.draft_weight_bytes(operations, self.tp, self.stage_chips)
        mean = self.fewest / self.stage_chips
        staggered = instance.scenario.layer_slots == "any"  # chips with one more take turns
        one_pool = memory.expert_slot_bytes(self.layers) * np.where(
            (self.pp > 1) | (self.fewest < self.slots) | staggered, mean, np.ceil(mean)
        )
        kv = memory.kv_bytes_per_sequence(operations, self.layers, self.tp, context)
        kv = kv + memory.draft_kv_bytes(operations, self.tp, context)
        return (weights + one_pool) / self.pp, kv
