"""From a shape of two groups to a replica: experts on slots, sequences on ranks, the batch that serves most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.apart.kinds import half_kinds
from costmodel.layout.layout import ExpertMap, Layout, spread
from costmodel.question.instance import Instance
from costmodel.replica.held import price_placed
from costmodel.tolerance import exceeds
from solver.apart.block import group_chips
from solver.apart.build import build_apart
from solver.apart.pricer import ApartPricer
from solver.apart.small import SmallLayers, Tacts, joined, small_layers
from solver.clock import Clock
from solver.experts.level import levelled
from solver.place.attempt import FoundReplica, LeastTouched, served
from solver.place.batch_search import Batches
from solver.place.realise import Realised, Realiser
from solver.place.standing import Slice


class ApartAttempt:
    """One shape of two groups on representative chips: probes batches with the evaluator's prices."""

    def __init__(
        self,
        instance: Instance,
        shape: dict[str, int],
        chips: tuple[list[str], list[str]],
        experts: NDArray[np.int64],
        clock: Clock,
        seed: int,
    ):
        self.instance, self.shape, self.chips, self.clock = instance, shape, chips, clock
        self.experts, self.seed = experts, seed
        self.ranks = shape["attention_dp"]
        self.expert_slots = tuple(spread(shape["slots"], len(chips[1])))
        #: experts' slots are not on attention's chips
        self.slots: tuple[int, ...] = ()
        self.idle = None
        layers = instance.operations.moe_layers
        self.maps: ExpertMap = {
            layer: tuple(row) for layer, row in zip(layers, experts.tolist(), strict=False)
        }
        self.small: SmallLayers | None = small_layers(instance, self.expert_slots)

    def levelled(self, sequences: tuple[int, ...], fewest: LeastTouched) -> ApartAttempt | None:
        """The attempt with experts dealt anew for this batch; ``None`` where that changes nothing."""
        moe, slots = self.instance.operations.moe, self.expert_slots
        if moe is None or self.small is not None or len(slots) == 1:
            return None
        replica = build_apart(self.instance, self.shape, sequences, slots, self.chips, "map")
        tacts = Tacts(self.instance, replica, joined(self.instance, replica))

        def seconds(rows: NDArray[np.int64]) -> NDArray[np.float64]:
            found = np.zeros(len(rows))
            for half in half_kinds(self.instance.operations):
                if half.experts is not None:
                    own, loads = list(half.experts.moe_rows), self.instance.kind_loads(half.experts)
                    found[own] = tacts.of(half, loads, rows[own], slots)
            return found

        rows = levelled(
            self.instance.expert_loads, moe.top_k, tacts.routed, self.experts, slots,
            fewest(len(slots), sum(slots), tacts.routed), seconds, self.seed,
        )  # fmt: skip
        if (rows == self.experts).all():
            return None
        return ApartAttempt(self.instance, self.shape, self.chips, rows, self.clock, self.seed)

    def try_batch(self, sequences: tuple[int, ...]) -> FoundReplica | None:
        """The replica with so many sequences on each rank, its price and expert maps, if every rule holds."""
        replica = build_apart(
            self.instance, self.shape, sequences, self.expert_slots, self.chips, "map"
        )
        maps = self.maps if self.small is None else self.small.best(replica)
        price = price_placed(
            self.instance, Layout(replicas=(replica,), expert_maps={"map": maps}), replica
        )
        target = self.instance.slo.tpot
        if target is not None and exceeds(float(price.service.tpot_s), target):
            return None
        for stage, held in zip(replica.groups, price.stages, strict=True):
            chip = self.instance.cluster.chip(stage.chips[0]).chip
            if exceeds(float(held.used_bytes.max()), self.instance.usable_hbm_bytes(chip)):
                return None
        return replica, price, maps


class ApartRealiser(Realiser):
    """Makes replicas of shapes of one group and of two."""

    pricer: ApartPricer

    def realise(
        self, row: int, most_per_rank: int, slices: Sequence[Slice] | None = None
    ) -> Realised:
        """Best replica of a shape with at most ``most_per_rank`` sequences on a rank."""
        own = row - self.pricer.first(self.shapes)
        if own < 0:
            return super().realise(row, most_per_rank, slices)
        table = self.pricer.table
        chips = group_chips(table.footings[int(table.footing[own])], self.pricer.classes)
        batches = int(table.microbatches[own])
        shape = self.shapes.row(row) | {"pp": batches, "microbatches": batches}
        shape["experts"] = len(chips[1])
        slots = tuple(spread(shape["slots"], len(chips[1])))
        experts, layer_bounds = self.placements.of(slots, free=True)
        attempt = ApartAttempt(self.instance, shape, chips, experts, self.clock, self.seed)
        upper = self.pricer.tightened(self.shapes, row, layer_bounds, most_per_rank)
        found = Batches(attempt).best(most_per_rank)
        found = self._levelled_apart(attempt, found, most_per_rank)
        stages = ((0, self.instance.operations.num_layers - 1),)
        if found is None:
            none = 0.0 if attempt.small is not None and not self.clock.over else upper
            return Realised(shape, (), 0.0, none, stages, slots, {}, chips=[*chips])
        replica, price, maps = found
        rate = float(price.service.requests_per_s)
        exact = attempt.small is not None and not self.clock.over
        return Realised(
            shape=shape, sequences=tuple(replica.rank_sequences()), requests_per_s=rate,
            upper_requests_per_s=rate if exact else max(rate, upper), stages=stages, slots=slots,
            maps=maps, chips=[*chips], most_per_rank=most_per_rank,
            sent=tuple(price.egress_bytes_per_s.values()),
            sent_far=tuple(price.far_bytes_per_s.values()),
        )  # fmt: skip

    def _levelled_apart(
        self, attempt: ApartAttempt, found: FoundReplica | None, most_per_rank: int
    ) -> FoundReplica | None:
        """What was found, or more with experts dealt anew for its batch."""
        assert self.pricer.of_shapes is not None
        lying = (1,) * attempt.ranks if found is None else tuple(found[0].rank_sequences())
        other = attempt.levelled(lying, self.pricer.of_shapes.touched_by_layer)
        more = None if other is None else Batches(other).best(most_per_rank)
        return max((one for one in (found, more) if one is not None), key=served, default=None)
