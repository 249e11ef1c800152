"""One shape on representative chips: the largest batch that a placement of it allows, by the evaluator's prices."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from costmodel.layout.layout import ExpertMap, Layout, Replica
from costmodel.replica.held import all_new, for_role, keeps_idle, price_placed
from costmodel.replica.replica import ReplicaPrice
from costmodel.rules.kv_tiers import broken
from costmodel.tolerance import exceeds
from solver.place.build import Stages, build_replica, stage_chips
from solver.place.held_kv import kept
from solver.place.placements import engine_places
from solver.place.replica_model import ReplicaModel, small_enough
from solver.place.shared_slots import LayerSlots
from solver.place.stages import cut_replica, layer_times
from solver.shapes.pools import pick_chips
from solver.shapes.shapes import ROLES
from solver.shapes.spans import pools_of

if TYPE_CHECKING:
    from solver.place.realise import Realiser

#: smaller batches tried for a better cut into stages
_BATCHES = 24
#: cuts are the best up to the rounding of times to whole picoseconds
_ROUNDING = 1e-6

Array = NDArray[np.float64]
#: a replica, its price, and its expert map by layer
Found = tuple[Replica, ReplicaPrice, ExpertMap]
#: ranks up to which every number of them is tried where the rate need not grow with it
_EACH = 8


def _rate(found: Found) -> float:
    return float(found[1].service.requests_per_s)


class Attempt:
    """One shape on representative chips: probes batches with the evaluator's prices."""

    def __init__(
        self,
        realiser: Realiser,
        row: int,
        slots: tuple[int, ...],
        experts: NDArray[np.int64],
        transfer_s: float,
    ):
        self.realiser = realiser
        self.shape = shape = realiser.shapes.row(row)
        role = ROLES[shape["role"]]
        #: what stages and experts are placed for: new requests, where there are two kinds
        self.instance = all_new(for_role(realiser.instance, role))
        self.idle = realiser.instance.kv_plan.idle if keeps_idle(realiser.instance, role) else None
        classes = realiser.pricer.classes
        self.pool_class = classes[shape["pool_class"]]
        self.slots = slots
        self.ranks = shape["attention_dp"]
        self.experts = experts
        parts = realiser.shapes.parts(row)
        self.chips = stage_chips(
            shape,
            [
                pick_chips(self.instance.cluster, pool.domain, pool.chips, count)
                for pool, (_, count) in zip(pools_of(parts, classes), parts, strict=True)
            ],
        )
        self.efficiency = self.instance.profile.for_chip(self.pool_class.chip.name)
        self.rates, alike = realiser.pricer.rates_of(realiser.shapes, row)
        self.unsettled_before = realiser.clock.unsettled
        #: whether all stages have the same rates
        self.alike = alike
        free = engine_places(self.instance, shape["attention_dp"])
        self.small = alike and small_enough(self.instance, len(self.chips[0]))
        self.exact = self.small and free
        self.maps: ExpertMap = self._maps(experts)
        #: layers whose slots are not ``slots``
        self.layer_slots: LayerSlots = {}
        #: KV hand-over that TTFT has to leave room for
        self.transfer_s = transfer_s
        #: whether every probe so far was solved to proven optimality
        self.proven = self.exact and self.idle is None
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

    def given(self, maps: ExpertMap, layer_slots: LayerSlots) -> Attempt:
        """The attempt with these experts and slots by layer, which no search changes."""
        self.maps, self.layer_slots = maps, layer_slots
        self.exact = self.proven = False
        return self

    def best(self, most: int) -> Found | None:
        """Best replica with at most so many sequences on a rank, at its largest batch or close below."""
        found, per_rank = self._largest_even(self.ranks, most)
        used = self.ranks
        if found is None and self.ranks > 1:
            # not one on each: on as many ranks as there can be
            used, found = self._most_ranks(self.ranks, 0, 1)
            if found is not None:
                found, per_rank = self._largest_even(used, most)
        if found is None:
            return None
        if self.idle == "hbm":
            return self._with_more_room(found, used, per_rank)
        return self._fill_up(found, used, per_rank, most)

    def _largest_even(self, used: int, most: int) -> tuple[Found | None, int]:
        """Largest batch that is even on the last ``used`` ranks, by bisection (times and bytes grow with it)."""
        best: Found | None = None
        low, high, probe, step = 0, most, most, 1
        while low < high:
            found = self.try_batch(self._lying(used, probe))
            if found is not None:
                best, low = found, probe
            else:
                high = probe - 1
            # the bound is close: step down from it faster and faster, then bisect
            if best is None and high > 0:
                probe, step = max(1, high + 1 - step), step * 2
            else:
                probe = (low + high + 1) // 2
            if self.realiser.clock.over and best is not None:
                break
        return best, low

    def _most_ranks(self, used: int, low: int, high: int) -> tuple[int, Found | None]:
        """Most of ``used`` ranks that can have ``high`` sequences where the others have ``low``."""
        least, most, best = 0, used - 1, None
        while least < most and not self.realiser.clock.over:
            probe = (least + most + 1) // 2
            found = self.try_batch(self._lying(used, low, high, probe))
            if found is not None:
                best, least = found, probe
            else:
                most = probe - 1
        return least, best

    def _fill_up(self, found: Found, used: int, per_rank: int, most: int) -> Found:
        """More sequences on some ranks than the largest even batch has, if that serves more.

        A step on all ranks at once is coarse where each holds few sequences.
        """
        pp, tried = self.shape["pp"], [found]
        full = per_rank - per_rank % pp
        if full < per_rank:  # HBM is full: fewer in whole microbatches may serve more
            for more in range(0 if full == 0 else used if used <= _EACH else 1):
                if not self.realiser.clock.over:
                    tried.append(self.try_batch(self._lying(used, full, per_rank, more)) or found)
            return max(tried, key=_rate)
        high = per_rank
        for step in range(min(pp, most - per_rank), 0, -1):
            if used > 1 and self.try_batch(self._lying(used, per_rank, per_rank + step, 1)):
                high = per_rank + step
                break
        if high > per_rank:
            more, best = self._most_ranks(used, per_rank, high)
            tried.append(best or found)
            while len(set(self.slots)) > 1 and high < most and not self.realiser.clock.over:
                # where others are full, ranks with fewer expert slots may go on
                higher = self.try_batch(self._lying(used, per_rank, high + 1, more))
                if higher is None:
                    break
                tried.append(higher)
                high += 1
        return max(tried, key=_rate)

    def _lying(self, used: int, low: int, high: int = 0, more: int = 0) -> tuple[int, ...]:
        """Sequences of each rank: ``high`` on the last ``more`` ranks, ``low`` on others of those used.

        The last ranks' chips have fewest expert slots.
        """
        return (0,) * (self.ranks - used) + (low,) * (used - more) + (high,) * more

    def _with_more_room(self, found: Found, used: int, per_rank: int) -> Found:
        """A smaller batch where idle KV lies in HBM and a larger batch leaves it less room."""
        low, high, best = 1, per_rank, found
        while low < high and not self.realiser.clock.over:
            middle = (low + high) // 2
            pair = [self.try_batch(self._lying(used, batch)) for batch in (middle, middle + 1)]
            rates = [0.0 if one is None else _rate(one) for one in pair]
            best = max([best, *(one for one in pair if one is not None)], key=_rate)
            low, high = (middle + 1, high) if rates[1] > rates[0] else (low, middle)
        return best

    def best_cut(
        self, found: Found | None, upper_at: Callable[[int], float]
    ) -> tuple[Found | None, float]:
        """A smaller batch where its caches leave room for a better cut into stages.

        Also the rate that no batch exceeds: ``inf`` unless every cut was the best of its batch, which
        rests on layers whose times no placement changes. ``upper_at``: bound on all batches with so many
        sequences on a rank at most.
        """
        if found is None or self.shape["pp"] == 1 or self.idle is not None:
            return found, inf
        best, beyond, above = found, 0.0, found[0].shape.batch
        step = self.ranks if above <= _BATCHES * self.ranks else self.ranks * self.shape["pp"]
        step = 1 if self.exact else step
        for tried in range(_BATCHES + 1):
            bound = upper_at(-(-(above - 1) // self.ranks)) if above > 1 else 0.0
            if bound <= _rate(best) * (1 + 1e-9):
                break
            if tried == _BATCHES or self.realiser.clock.over:
                beyond = max(beyond, bound)
                self.proven = False
                break
            fewer = (above - 1) // step * step
            low, more = divmod(fewer, self.ranks)
            one = self.try_batch(self._lying(self.ranks, low, low + 1, more)) if fewer else None
            best = max(best, one or best, key=_rate)
            if self.ranks == 1:
                best = self._best_between(best, fewer + 1, above - 1)
            above = fewer
        reach = max(_rate(best) * (1 + _ROUNDING), beyond)
        clock = self.realiser.clock
        # a cut that ran out of its time proves nothing of its batch
        settled = not clock.over and clock.unsettled == self.unsettled_before
        settled = settled and not self.instance.operations.moe_layers
        whole = settled and self.alike and self.instance.profile.combination == "per_op"
        return best, reach if whole else inf

    def _best_between(self, best: Found, low: int, high: int) -> Found:
        """The better of a replica and any on one rank with ``low`` to ``high`` sequences.

        A cut that holds more sequences holds ``low``, whose best cut is no slower: none serves more than that
        one with ``high``.
        """
        one = self.try_batch((low,)) if low <= high else None
        if one is None:
            return best
        best = max(best, one, key=_rate)
        if _rate(one) * high / low <= _rate(best) * (1 + 1e-9):
            return best
        middle = (low + high) // 2
        best = self._best_between(best, low + 1, middle)
        return self._best_between(best, middle + 1, high)

    def idle_of(self, replica: Replica) -> int:
        """Idle conversations of each rank."""
        return sum(share.sequences for share in replica.kv if share.idle) // self.ranks

    def try_batch(self, sequences: tuple[int, ...]) -> Found | None:
        """The replica with so many sequences on each rank, its price and expert maps, if every rule holds."""
        stages: Stages = ((0, self.instance.operations.num_layers - 1),)
        draft = self._replica(sequences, tuple(stages) * self.shape["pp"])
        maps = self.maps
        whole = self._whole(draft) if self.exact else None
        if whole is not None:
            stages, maps = whole
        elif self.exact and not self.realiser.clock.over:
            return None
        elif self.shape["pp"] > 1:
            cut = cut_replica(
                self.instance, draft, self.pool_class.chip, self.efficiency, self.rates,
                self.slots, maps, clock=self.realiser.clock, seed=self.realiser.seed,
            )  # fmt: skip
            if cut is None:
                return None
            stages = tuple(cut)
        replica = self._replica(sequences, stages)
        layout = Layout(replicas=(replica,), expert_maps={"map": maps} if maps else {})
        if self.idle is None:
            price = price_placed(self.realiser.instance, layout, replica)
        else:
            with_idle = kept(self.realiser.instance, replica, layout, self.idle)
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
        found = model.best(self.realiser.clock, seed=self.realiser.seed, limit_s=20.0)
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
            found = model.best(self.realiser.clock, seed=self.realiser.seed, limit_s=20.0)
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
        return self._good(replica, price_placed(self.realiser.instance, layout, replica))

    def _replica(self, sequences: tuple[int, ...], stages: Stages) -> Replica:
        return build_replica(
            self.realiser.instance, self.shape, sequences, stages, self.slots, self.chips,
            ["map"] * self.shape["pp"] if self.maps else None, layer_slots=self.layer_slots,
        )  # fmt: skip

    def _good(self, replica: Replica, price: ReplicaPrice) -> bool:
        slo, service = self.instance.slo, price.service
        if slo.tpot is not None and exceeds(float(service.tpot_s), slo.tpot):
            return False
        if slo.ttft is not None and exceeds(float(service.ttft_s) + self.transfer_s, slo.ttft):
            return False
        if broken(self.realiser.instance, replica, price):
            return False
        hbm = self.pool_class.chip.hbm_bytes
        return not any(exceeds(float(stage.used_bytes.max()), hbm) for stage in price.stages)
