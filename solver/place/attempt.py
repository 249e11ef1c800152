"""One shape on representative chips: the largest batch that a placement of it allows, by the evaluator's prices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from costmodel.layout.layout import ExpertMap, Layout, Replica, spread
from costmodel.passes.tokens import runs_in_halves
from costmodel.question.instance import Instance
from costmodel.replica.held import all_new, price_placed, returning
from costmodel.replica.replica import ReplicaPrice, replica_schedule
from costmodel.rules.kv_tiers import broken
from costmodel.tolerance import exceeds
from solver.bounds.batches import take_turns
from solver.bounds.experts.expert_bounds import small_enough
from solver.clock import Clock
from solver.experts.level import levelled
from solver.kv_plan import for_role, keeps_idle, plan_of
from solver.place.build import Stages, build_replica
from solver.place.held_kv import kept
from solver.place.placements import engine_places
from solver.place.shared_slots import LayerSlots
from solver.place.small_replica.model import ReplicaModel
from solver.place.stages import PassName, cut_over, cut_replica, layer_times, next_batch
from solver.place.standing import Standing
from solver.shapes.shapes import ROLES

Array = NDArray[np.float64]
#: a replica, its price, and its expert map by layer
FoundReplica = tuple[Replica, ReplicaPrice, ExpertMap]
#: experts that the fullest of so many chips with so many slots reads at least ``[moe layers]``, of so many tokens
LeastTouched = Callable[[int, int, float], Array]
#: stages of a mixed replica: the best of both kinds of its passes, and of either
_EITHER: tuple[PassName | None, ...] = (None, "decode", "prefill")


def served(found: FoundReplica) -> float:
    """Requests per second."""
    return float(found[1].service.requests_per_s)


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
        self.stands = stands
        self.clock, self.seed = clock, seed
        self.shape = shape = stands.shape
        role = ROLES[shape["role"]]
        #: what stages and experts are placed for: new requests, where there are two kinds
        seen = for_role(self.whole, role)
        self.instance, self.back = all_new(seen), returning(seen)
        self.idle = plan_of(self.whole).idle if keeps_idle(self.whole, role) else None
        self.pool_class = stands.pool_class
        self.slots = slots
        self.ranks = shape["attention_dp"]
        self.experts = experts
        self.chips = stands.chips
        self.efficiency = self.instance.profile.for_chip(self.pool_class.chip.name)
        self.rates = stands.rates
        self.unsettled_before = clock.unsettled
        #: whether all stages have the same rates
        self.alike = stands.alike and stands.quickest
        free = engine_places(self.instance, shape["attention_dp"])
        small = stands.alike and small_enough(self.instance, len(self.chips[0]))
        self.exact = small and free and not cut_over(slots)
        self.maps: ExpertMap = self._maps(experts)
        #: layers whose slots are not ``slots``
        self.layer_slots: LayerSlots = {}
        #: KV hand-over that TTFT has to leave room for
        self.transfer_s = transfer_s
        #: whether every probe so far was solved to proven optimality
        self.proven = self.exact and self.idle is None and stands.quickest
        if take_turns(self.instance):
            self.proven = False  # each probe is one batch; turns of two may serve more
        if len(set(slots)) > 1 and self.ranks > 1:
            self.proven = False  # which ranks have more sequences is not solved for

    def _maps(self, experts: NDArray[np.int64]) -> ExpertMap:
        layers = self.instance.operations.moe_layers
        return {layer: tuple(row) for layer, row in zip(layers, experts.tolist(), strict=False)}

    def layer_seconds(self, per_rank: int, slots: tuple[int, ...], maps: ExpertMap) -> Array:
        """Seconds of each layer of one stage at this batch, with other slots and experts."""
        stages = ((0, self.instance.operations.num_layers - 1),)
        draft = self._replica((max(per_rank, 1),) * self.ranks, stages)
        return layer_times(
            self.instance, draft, self.pool_class.chip, self.efficiency, self.rates, slots, maps
        )[0]

    def levelled(self, per_rank: int, fewest: LeastTouched) -> Attempt | None:
        """The attempt with experts dealt anew for this batch; ``None`` where that changes nothing, or nothing may change.

        What is read of experts counts beside the load of the busiest chip, see :mod:`solver.experts.level`.
        """
        moe = self.instance.operations.moe
        if moe is None or self.exact or not any(self.slots) or len(self.slots) == 1:
            return None
        if not engine_places(self.whole, self.ranks):
            return None
        stages: Stages = ((0, self.instance.operations.num_layers - 1),) * self.shape["pp"]
        draft = self._replica((max(per_rank, 1),) * self.ranks, stages)
        decode = replica_schedule(self.instance, draft).decode
        if decode is None:  # prompts reach every expert
            return None
        routed = float(decode.rows * self.ranks * decode.fill)
        layers = list(self.instance.operations.moe_layers)

        def seconds(rows: NDArray[np.int64]) -> Array:
            found, _ = layer_times(
                self.instance, draft, self.pool_class.chip, self.efficiency, self.rates, self.slots,
                self._maps(rows),
            )  # fmt: skip
            return found[layers]

        rows = levelled(
            self.instance.expert_loads, moe.top_k, routed, self.experts, self.slots,
            fewest(len(self.slots), sum(self.slots), routed), seconds, self.seed,
        )  # fmt: skip
        if (rows == self.experts).all():
            return None
        return Attempt(self.stands, self.slots, rows, self.transfer_s, self.clock, self.seed)

    def rate_at(self, per_rank: int) -> float:
        """Requests per second at a batch with layers in even stages, whatever the targets and HBM."""
        ends = np.cumsum(spread(self.instance.operations.num_layers, self.shape["pp"])).tolist()
        cut = [(first, last - 1) for first, last in zip([0, *ends], ends, strict=False)]
        replica = self._replica((per_rank,) * self.ranks, cut)
        layout = Layout(replicas=(replica,), expert_maps={"map": self.maps} if self.maps else {})
        price = price_placed(all_new(self.instance), layout, replica)
        return float(price.service.requests_per_s)

    def given(self, maps: ExpertMap, layer_slots: LayerSlots) -> Attempt:
        """The attempt with these experts and slots by layer, which no search changes."""
        self.maps, self.layer_slots = maps, layer_slots
        self.exact = self.proven = False
        return self

    def idle_of(self, replica: Replica) -> int:
        """Idle conversations of each rank."""
        return sum(share.sequences for share in replica.kv if share.idle) // self.ranks

    def try_batch(self, sequences: tuple[int, ...]) -> FoundReplica | None:
        """The replica with so many sequences on each rank, its price and expert maps, if every rule holds."""
        kinds = [self.instance]
        if self.exact and self.idle is not None and self.instance.operations.moe is not None:
            # requests that find their KV may be quicker with other experts
            kinds.append(self.back)
        # stages that are best for both kinds of passes of a mixed replica may be too slow for one of them
        every = _EITHER if self.piped and not self.exact else (None,)
        found = [self._tried(sequences, kind, only) for kind in kinds for only in every]
        return max((one for one in found if one is not None), key=served, default=None)

    def fewer(self, per_rank: int) -> int:
        """The most sequences of a rank, fewer than so many, that let another cut into stages fit; 0: none do."""
        stages: Stages = ((0, self.instance.operations.num_layers - 1),) * self.shape["pp"]
        draft = self._replica((per_rank,) * self.ranks, stages)
        return next_batch(self.instance, draft, self.pool_class.chip, self.efficiency, self.slots)

    @property
    def piped(self) -> bool:
        """Whether it is a mixed replica in stages, whose two kinds of passes want two cuts of the layers."""
        return ROLES[self.shape["role"]] == "mixed" and self.shape["pp"] > 1

    def _tried(
        self, sequences: tuple[int, ...], kind: Instance, only: PassName | None
    ) -> FoundReplica | None:
        """The same, its stages and experts placed for requests of one kind, and for ``only`` some passes."""
        stages: Stages = ((0, self.instance.operations.num_layers - 1),)
        draft = self._replica(sequences, tuple(stages) * self.shape["pp"])
        maps = self.maps
        whole = self._whole(draft, kind) if self.exact else None
        if whole is not None:
            stages, maps = whole
        elif self.exact and not self.clock.over:
            return None
        elif self.shape["pp"] > 1:
            cut = cut_replica(
                self.instance, draft, self.pool_class.chip, self.efficiency, self.rates,
                self.slots, maps, only,
            )  # fmt: skip
            if cut is None:
                return None
            stages = tuple(cut)
        replica = self._replica(sequences, stages)
        layout = Layout(replicas=(replica,), expert_maps={"map": maps} if maps else {})
        if self.idle is None:
            price = price_placed(self.whole, layout, replica)
        else:
            with_idle = kept(self.whole, replica, layout, self.idle)
            if with_idle is None:
                return None
            replica, price = with_idle
        return (replica, price, maps) if self._good(replica, price) else None

    def _whole(self, draft: Replica, kind: Instance) -> tuple[Stages, ExpertMap] | None:
        """Best stages and experts of a small replica.

        In one stage the layers are independent and solved one by one, which also is the best of
        the whole unless TTFT then fails; else by the model of the whole replica. In a pass of two halves they are not
        independent: what one exchanges hides behind what any computes.
        """
        halved = runs_in_halves(self.instance.scenario.two_batch_overlap, self.ranks)
        if self.shape["pp"] == 1 and not halved:
            maps = self._layer_by_layer(draft, kind)
            stages: Stages = ((0, self.instance.operations.num_layers - 1),)
            if maps is not None and (draft.role != "mixed" or self._holds(draft, stages, maps)):
                return stages, maps
        model = ReplicaModel(
            kind, draft, self.pool_class.chip, self.efficiency, self.rates, self.slots,
            self.transfer_s,
        )  # fmt: skip
        found = model.best(self.clock, seed=self.seed, limit_s=20.0)
        if found is None:
            return None
        cut, maps, proven = found
        self.proven = self.proven and proven
        return cut, maps

    def _layer_by_layer(self, draft: Replica, kind: Instance) -> ExpertMap | None:
        """Best experts of each MoE layer on its own; ``None`` if one is not solved in time."""
        maps: ExpertMap = {}
        for layer in self.instance.operations.moe_layers:
            model = ReplicaModel(
                kind, draft, self.pool_class.chip, self.efficiency, self.rates, self.slots,
                layers=[layer],
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

    def _replica(self, sequences: tuple[int, ...], stages: Stages) -> Replica:
        return build_replica(
            self.whole, self.shape, sequences, stages, self.slots, self.chips,
            ["map"] * self.shape["pp"] if self.maps else None, layer_slots=self.layer_slots,
        )  # fmt: skip

    def _good(self, replica: Replica, price: ReplicaPrice) -> bool:
        slo, service = self.instance.slo, price.service
        if slo.tpot is not None and exceeds(float(service.tpot_s), slo.tpot):
            return False
        if slo.ttft is not None and exceeds(float(service.ttft_s) + self.transfer_s, slo.ttft):
            return False
        if broken(self.whole, replica, price):
            return False
        hbm = self.instance.usable_hbm_bytes(self.pool_class.chip)
        return not any(exceeds(float(stage.used_bytes.max()), hbm) for stage in price.stages)
