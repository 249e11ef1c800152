"""One shape on representative chips: the largest batch that a placement of it allows, by the evaluator's prices."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy as np
from numpy.typing import NDArray

from costmodel.layout.layout import ExpertMap, Layout, Replica
from costmodel.replica.held import all_new, for_role, keeps_idle, price_placed
from costmodel.replica.replica import ReplicaPrice
from costmodel.rules.kv_tiers import broken
from costmodel.tolerance import exceeds
from solver.clock import Clock
from solver.place.build import Stages, build_replica
from solver.place.held_kv import kept
from solver.place.placements import engine_places
from solver.place.replica_model import ReplicaModel, small_enough
from solver.place.shared_slots import LayerSlots
from solver.place.stages import cut_replica, layer_times
from solver.place.standing import Standing
from solver.shapes.shapes import ROLES

#: smaller batches tried for a better cut into stages
_BATCHES = 24
#: cuts are the best up to the rounding of times to whole picoseconds
_ROUNDING = 1e-6

Array = NDArray[np.float64]
#: a replica, its price, and its expert map by layer
Found = tuple[Replica, ReplicaPrice, ExpertMap]


class Attempt:
    """One shape on representative chips: probes batches with the evaluator's prices."""

    def __init__(
        self,
        stands: Standing,
        slots: tuple[int, ...],
        experts: NDArray[np.int64],
        transfer_s: float,
        clock: Clock,
        seed: int,
    ):
        self.whole = stands.instance
        self.clock, self.seed = clock, seed
        self.shape = shape = stands.shape
        role = ROLES[shape["role"]]
        #: what stages and experts are placed for: new requests, where there are two kinds
        self.instance = all_new(for_role(self.whole, role))
        self.idle = self.whole.kv_plan.idle if keeps_idle(self.whole, role) else None
        self.pool_class = stands.pool_class
        self.slots = slots
        self.experts = experts
        self.chips = stands.chips
        self.efficiency = self.instance.profile.for_chip(self.pool_class.chip.name)
        self.rates = stands.rates
        self.unsettled_before = clock.unsettled
        #: whether all stages have the same rates
        self.alike = stands.alike and stands.quickest
        free = engine_places(self.instance, shape["attention_dp"])
        self.small = stands.alike and small_enough(self.instance, len(self.chips[0]))
        self.exact = self.small and free
        self.maps: ExpertMap = self._maps(experts)
        #: layers whose slots are not ``slots``
        self.layer_slots: LayerSlots = {}
        #: KV hand-over that TTFT has to leave room for
        self.transfer_s = transfer_s
        #: whether every probe so far was solved to proven optimality
        self.proven = self.exact and self.idle is None and stands.quickest

    def _maps(self, experts: NDArray[np.int64]) -> ExpertMap:
        layers = self.instance.operations.moe_layers
        return {layer: tuple(row) for layer, row in zip(layers, experts.tolist(), strict=False)}

    def layer_seconds(self, per_rank: int, slots: tuple[int, ...], maps: ExpertMap) -> Array:
        """Seconds of each layer of one stage at this batch, with other slots and experts."""
        draft = self._replica(max(per_rank, 1), ((0, self.instance.operations.num_layers - 1),))
        return layer_times(
            self.instance, draft, self.pool_class.chip, self.efficiency, self.rates, slots, maps
        )[0]

    def given(self, maps: ExpertMap, layer_slots: LayerSlots) -> Attempt:
        """The attempt with these experts and slots by layer, which no search changes."""
        self.maps, self.layer_slots = maps, layer_slots
        self.exact = self.proven = False
        return self

    def with_more_room(self, found: Found | None, per_rank: int) -> tuple[Found | None, int]:
        """A smaller batch where idle KV lies in HBM and a larger batch leaves it less room."""
        if found is None or self.idle != "hbm":
            return found, per_rank
        low, high, best = 1, per_rank, (found, per_rank)
        while low < high and not self.clock.over:
            middle = (low + high) // 2
            pair = [(self.try_batch(batch), batch) for batch in (middle, middle + 1)]
            rates = [0.0 if f is None else float(f[1].service.requests_per_s) for f, _ in pair]
            for (one, batch), rate in zip(pair, rates, strict=True):
                if one is not None and rate > float(best[0][1].service.requests_per_s):
                    best = (one, batch)
            low, high = (middle + 1, high) if rates[1] > rates[0] else (low, middle)
        return best

    def best_cut(
        self, found: Found | None, per_rank: int, upper_at: Callable[[int], float]
    ) -> tuple[Found | None, int, float]:
        """A smaller batch where its caches leave room for a better cut into stages.

        Also the rate that no batch exceeds: ``inf`` unless every cut was the best of its batch, which
        rests on layers whose times no placement changes. ``upper_at``: bound on all batches up to one.
        """
        if found is None or self.shape["pp"] == 1 or self.idle is not None:
            return found, per_rank, inf
        best, best_batch, beyond = found, per_rank, 0.0
        for tried, batch in enumerate(range(per_rank - 1, 0, -1)):
            bound = upper_at(batch)
            if bound <= float(best[1].service.requests_per_s) * (1 + 1e-9):
                break
            if tried == _BATCHES or self.clock.over:
                beyond = bound
                self.proven = False
                break
            one = self.try_batch(batch)
            if one is not None and one[1].service.requests_per_s > best[1].service.requests_per_s:
                best, best_batch = one, batch
        reach = max(float(best[1].service.requests_per_s) * (1 + _ROUNDING), beyond)
        # a cut that ran out of its time proves nothing of its batch
        settled = not self.clock.over and self.clock.unsettled == self.unsettled_before
        settled = settled and not self.instance.operations.moe_layers
        whole = settled and self.alike and self.instance.profile.combination == "per_op"
        return best, best_batch, reach if whole else inf

    def idle_of(self, replica: Replica) -> int:
        """Idle conversations of each rank."""
        return (
            sum(share.sequences for share in replica.kv if share.idle)
            // (self.shape["attention_dp"])
        )

    def fill_up(self, found: Found, per_rank: int, most: int) -> tuple[Found, int]:
        """One sequence more on as many ranks as the targets allow, and on how many.

        A step in whole sequences per rank is coarse where each rank holds few. Only below the
        bound on ``per_rank``, which then bounds the rate of these batches too. Small replicas, whose
        optimum is compared with equal ranks, are left as they are.
        """
        ranks = self.shape["attention_dp"]
        decodes = ROLES[self.shape["role"]] != "prefill"
        low, high = 0, ranks - 1
        if self.small or not decodes or self.shape["pp"] > 1 or per_rank >= most:
            return found, 0
        while low < high and not self.clock.over:
            probe = (low + high + 1) // 2
            better = self.try_batch(per_rank, probe)
            if better is not None:
                found, low = better, probe
            else:
                high = probe - 1
        return found, low

    def largest(self, most: int) -> tuple[Found | None, int]:
        """Largest feasible batch per rank by bisection (times and bytes grow with the batch)."""
        best: Found | None = None
        low, high, probe, step = 0, most, most, 1
        while low < high:
            found = self.try_batch(probe)
            if found is not None:
                best, low = found, probe
            else:
                high = probe - 1
            # the bound is close: step down from it faster and faster, then bisect
            if best is None and high > 0:
                probe, step = max(1, high + 1 - step), step * 2
            else:
                probe = (low + high + 1) // 2
            if self.clock.over and best is not None:
                break
        return best, low

    def try_batch(self, per_rank: int, extra: int = 0) -> Found | None:
        """The replica at this batch, its price and expert maps, if every rule holds."""
        stages: Stages = ((0, self.instance.operations.num_layers - 1),)
        draft = self._replica(per_rank, tuple(stages) * self.shape["pp"], extra)
        maps = self.maps
        whole = self._whole(draft) if self.exact else None
        if whole is not None:
            stages, maps = whole
        elif self.exact and not self.clock.over:
            return None
        elif self.shape["pp"] > 1:
            cut = cut_replica(
                self.instance, draft, self.pool_class.chip, self.efficiency, self.rates,
                self.slots, maps, clock=self.clock, seed=self.seed,
            )  # fmt: skip
            if cut is None:
                return None
            stages = tuple(cut)
        replica = self._replica(per_rank, stages, extra)
        layout = Layout(replicas=(replica,), expert_maps={"map": maps} if maps else {})
        if self.idle is None:
            price = price_placed(self.whole, layout, replica)
        else:
            with_idle = kept(self.whole, replica, layout, self.idle)
            if with_idle is None:
                return None
            replica, price = with_idle
        return (replica, price, maps) if self._good(replica, price) else None

    def _whole(self, draft: Replica) -> tuple[Stages, ExpertMap] | None:
        """Best stages and experts of a small replica.

        In one stage the layers are independent and solved one by one, which also is the best of
        the whole unless TTFT then fails; else by the model of the whole replica.
        """
        if self.shape["pp"] == 1:
            maps = self._layer_by_layer(draft)
            stages: Stages = ((0, self.instance.operations.num_layers - 1),)
            if maps is not None and (draft.role != "mixed" or self._holds(draft, stages, maps)):
                return stages, maps
        model = ReplicaModel(
            self.instance, draft, self.pool_class.chip, self.efficiency, self.rates, self.slots,
            self.transfer_s,
        )  # fmt: skip
        found = model.best(self.clock, seed=self.seed, limit_s=20.0)
        if found is None:
            return None
        cut, maps, proven = found
        self.proven = self.proven and proven
        return cut, maps

    def _layer_by_layer(self, draft: Replica) -> ExpertMap | None:
        """Best experts of each MoE layer on its own; ``None`` if one is not solved in time."""
        maps: ExpertMap = {}
        for layer in self.instance.operations.moe_layers:
            model = ReplicaModel(
                self.instance, draft, self.pool_class.chip, self.efficiency, self.rates,
                self.slots, layers=[layer],
            )  # fmt: skip
            found = model.best(self.clock, seed=self.seed, limit_s=20.0)
            if found is None:
                return None
            maps |= found[1]
            self.proven = self.proven and found[2]
        return maps

    def _holds(self, draft: Replica, stages: Stages, maps: ExpertMap) -> bool:
        replica = draft.model_copy(
            update={
                "stages": tuple(
                    stage.model_copy(
                        update={"layers": layers, "expert_map": "map" if maps else None}
                    )
                    for stage, layers in zip(draft.stages, stages, strict=True)
                )
            }
        )
        layout = Layout(replicas=(replica,), expert_maps={"map": maps} if maps else {})
        return self._good(replica, price_placed(self.whole, layout, replica))

    def _replica(self, per_rank: int, stages: Stages, extra: int = 0) -> Replica:
        return build_replica(
            self.whole, self.shape, per_rank, stages, self.slots, self.chips,
            ["map"] * self.shape["pp"] if self.maps else None, extra, layer_slots=self.layer_slots,
        )  # fmt: skip

    def _good(self, replica: Replica, price: ReplicaPrice) -> bool:
        slo, service = self.instance.slo, price.service
        if slo.tpot is not None and exceeds(float(service.tpot_s), slo.tpot):
            return False
        if slo.ttft is not None and exceeds(float(service.ttft_s) + self.transfer_s, slo.ttft):
            return False
        if broken(self.whole, replica, price):
            return False
        hbm = self.pool_class.chip.hbm_bytes
        return not any(exceeds(float(stage.used_bytes.max()), hbm) for stage in price.stages)
