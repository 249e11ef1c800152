"""From a shape to a replica that stands: experts on slots, layers on stages, KV on chips, batch.

A shape's bound assumes a placement as good as can be. Here the placement is made, the largest batch
that it really allows is found with the evaluator's own prices, and the shape's bound is tightened
with what the placement proved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from costmodel.layout.layout import ExpertMap, spread
from costmodel.question.instance import Instance
from solver.bounds.pricing import Pricer
from solver.clock import Clock
from solver.place.attempt import Attempt, FoundReplica, served
from solver.place.batch_search import BatchSearch
from solver.place.build import hand_over_s
from solver.place.placements import Placements, engine_places
from solver.place.shared_slots import LayerSlots, SharedPlacements
from solver.place.standing import Slice, Standing, speed, standings
from solver.shapes.shapes import ROLES, ShapeTable
from solver.shapes.stands import neighbours_matter

Array = NDArray[np.float64]
#: experts are not dealt anew, nor bounds taken together, for a replica so near what no placement of its shape exceeds
_NEAR = 1e-3


@dataclass(frozen=True)
class Realised:
    """A shape with its placement: what it achieves and what no placement of it can exceed.

    ``sequences`` of each attention rank, over all microbatches; ``stages``: first and last layer of each;
    ``maps``: expert map by layer (the same for all replicas of the shape); ``idle``: conversations that wait
    on each attention rank; ``sent``, ``sent_far``: bytes/s that passes send out of each domain of a replica
    over several, and out of its unit.
    """

    shape: dict[str, int]
    sequences: tuple[int, ...]
    requests_per_s: float
    upper_requests_per_s: float
    stages: tuple[tuple[int, int], ...]
    slots: tuple[int, ...]
    maps: ExpertMap
    idle: int = 0
    #: slots of the layers that have not ``slots``
    layer_slots: LayerSlots = field(default_factory=dict)
    #: chips of each stage that it was tried on
    chips: list[list[str]] = field(default_factory=list)
    #: batch of a rank that the shape's bound allows
    most_per_rank: int = 0
    sent: tuple[float, ...] = ()
    sent_far: tuple[float, ...] = ()


def _short(found: FoundReplica | None, upper: float) -> bool:
    """Whether a replica falls short of what no placement of its shape exceeds."""
    return found is None or served(found) < upper * (1 - _NEAR)


class Realiser:
    """Makes replicas of shapes, remembering placements that shapes share."""

    def __init__(
        self,
        instance: Instance,
        shapes: ShapeTable,
        pricer: Pricer,
        clock: Clock,
        seed: int,
        *,
        nearby: bool = False,
    ):
        """``nearby``: KV is handed over inside the domain only, which leaves more time for the prompt."""
        self.instance = instance
        self.shapes = shapes
        self.pricer = pricer
        self.clock = clock
        self.seed = seed
        self.nearby = nearby
        self.placements = Placements(instance, clock, seed, hot_copies=pricer.hot_copies)
        self._on_chips: dict[tuple[int, int, tuple[float, ...], bool], Realised] = {}

    @cached_property
    def shared(self) -> SharedPlacements:
        """Placements of shapes whose layers share their slots."""
        return SharedPlacements(self.instance, self.placements)

    def take_placements(self, other: Realiser) -> None:
        """Use what another realiser of the same question, with KV elsewhere, has placed."""
        self.placements = other.placements
        if self.instance.scenario.layer_slots != "same":
            self.shared = other.shared

    def realise(
        self, row: int, most_per_rank: int, slices: Sequence[Slice] | None = None
    ) -> Realised:
        """Best replica of a shape with at most ``most_per_rank`` sequences on a rank.

        On chips of its pools, or of ``slices``. ``requests_per_s`` is 0 if no placement found meets the targets.
        """
        options = standings(self.instance, self.shapes, row, self.pricer, slices)
        home = options[0].pool_class.domain
        place = self._known if neighbours_matter(self.instance.cluster, home) else self._on
        quickest = self._quickest(most_per_rank, options) if len(options) > 1 else options
        found = [
            replace(place(row, most_per_rank, stands), chips=stands.chips) for stands in quickest
        ]
        best = max(found, key=lambda one: one.requests_per_s)
        upper = max(best.requests_per_s, min(one.upper_requests_per_s for one in found))
        return replace(best, upper_requests_per_s=upper, most_per_rank=most_per_rank)

    def _quickest(self, most_per_rank: int, options: Sequence[Standing]) -> list[Standing]:
        """Of some chips those that serve most at the largest batch, and those that do at the smallest."""
        shape = options[0].shape
        slots, free = self._slots(shape), engine_places(self.instance, shape["attention_dp"])
        experts, _ = self.placements.of(slots, free=free)
        tried = [Attempt(stands, slots, experts, 0.0, self.clock, self.seed) for stands in options]
        best = {
            max(range(len(tried)), key=lambda at: tried[at].rate_at(batch))
            for batch in (max(most_per_rank, 1), 1)
        }
        return [options[at] for at in sorted(best)]

    def _slots(self, shape: dict[str, int]) -> tuple[int, ...]:
        """Expert slots of each chip of a stage: none for a dense model, 0 where experts are cut over all."""
        if self.instance.operations.moe is None:
            return ()
        return tuple(spread(shape["slots"], shape["tp"] * shape["attention_dp"]))

    def _known(self, row: int, most_per_rank: int, stands: Standing) -> Realised:
        """The best replica on these chips; chips that are as quick are not tried again."""
        key = (row, most_per_rank, speed(stands.rates), stands.alike)
        if key not in self._on_chips:
            self._on_chips[key] = self._on(row, most_per_rank, stands)
        return self._on_chips[key]

    def _on(self, row: int, most_per_rank: int, stands: Standing) -> Realised:
        shape = stands.shape
        chips = shape["tp"] * shape["attention_dp"]
        bounds = self.pricer.experts
        if bounds is not None and shape["slots"]:
            fewest = bounds.fewest(chips, shape["slots"])
            turns = self.instance.scenario.layer_slots == "any" and shape["slots"] % chips > 0
            if fewest < shape["slots"] or turns:
                return self._sharing(row, most_per_rank, fewest, stands)
        slots = self._slots(shape)
        free = engine_places(self.instance, shape["attention_dp"])
        experts, layer_bounds = self.placements.of(slots, free=free)
        far_s, near_s = 0.0, 0.0
        if ROLES[shape["role"]] == "prefill":
            far_s, inside_s, near_s = hand_over_s(self.instance, stands.chips, shape["tp"])
            if self.nearby:
                far_s = near_s = inside_s
        attempt = Attempt(stands, slots, experts, far_s, self.clock, self.seed)
        batches = BatchSearch(attempt)
        found = batches.best(most_per_rank)
        upper_at = partial(self.pricer.tightened, self.shapes, row, layer_bounds)
        upper = upper_at(most_per_rank)
        found, reach = batches.best_cut(found, upper_at)
        if _short(found, upper):
            found, attempt = self._levelled(attempt, found, most_per_rank, upper_at)
        if ROLES[shape["role"]] != "prefill" and _short(found, upper):
            upper = min(upper, upper_at(most_per_rank, traded=True))
        if far_s <= near_s or self.instance.slo.ttft is None:
            upper = min(upper, reach)
        if attempt.proven and far_s > near_s and self.instance.slo.ttft is not None:
            # where its decode replicas will stand is not known: the bound is for the nearest
            near = Attempt(stands, slots, experts, near_s, self.clock, self.seed)
            batches = BatchSearch(near)
            best, _ = batches.best_cut(batches.best(most_per_rank), upper_at)
            ceiling = float(best[1].service.requests_per_s) if best is not None else 0.0
            upper = min(upper, ceiling) if near.proven else upper
            attempt.proven = (
                near.proven
                and found is not None
                and (ceiling <= float(found[1].service.requests_per_s))
            )
            if found is None and near.proven:
                return Realised(shape, (), 0.0, upper, (), slots, {})
        if found is None:
            return Realised(shape, (), 0.0, 0.0 if attempt.proven else upper, (), slots, {})
        return self._realised(attempt, found, upper)

    def _levelled(
        self,
        attempt: Attempt,
        found: FoundReplica | None,
        most_per_rank: int,
        upper_at: Callable[..., float],
    ) -> tuple[FoundReplica | None, Attempt]:
        """What was found, or more with experts dealt anew for its batch; and the attempt that found it."""
        if self.pricer.of_shapes is None:
            return found, attempt
        per_rank = 1 if found is None else max(found[0].rank_sequences())
        other = attempt.levelled(per_rank, self.pricer.of_shapes.touched_by_layer)
        if other is None:
            return found, attempt
        batches = BatchSearch(other)
        more, _ = batches.best_cut(batches.best(most_per_rank), upper_at)
        if more is None or (found is not None and served(more) <= served(found)):
            return found, attempt
        return more, other

    def _realised(self, attempt: Attempt, found: FoundReplica, upper: float) -> Realised:
        """A shape at what an attempt found, given a bound on every placement of it."""
        replica, price, maps = found
        rate = float(price.service.requests_per_s)
        return Realised(
            shape=attempt.shape,
            sequences=tuple(replica.rank_sequences()),
            requests_per_s=rate,
            upper_requests_per_s=rate if attempt.proven else max(rate, upper),
            stages=tuple(stage.layers for stage in replica.stages),
            slots=attempt.slots,
            maps=maps,
            idle=attempt.idle_of(replica),
            layer_slots=attempt.layer_slots,
            sent=tuple(price.egress_bytes_per_s.values()),
            sent_far=tuple(price.far_bytes_per_s.values()),
        )

    def _sharing(self, row: int, most_per_rank: int, fewest: int, stands: Standing) -> Realised:
        """Best replica found whose layers share more than ``fewest`` slots each (or as many), up to the shape's.

        Tried are the shape's slots in every layer and, for one stage, the best shares of some totals; the
        bound is the shape's own, for every share.
        """
        shape = self.shapes.row(row)
        chips = shape["tp"] * shape["attention_dp"]
        slots = tuple(spread(shape["slots"], chips))
        far_s = 0.0
        if ROLES[shape["role"]] == "prefill":
            times = hand_over_s(self.instance, stands.chips, shape["tp"])
            far_s = times[self.nearby]
        upper_at = partial(self.pricer.tightened, self.shapes, row, None)
        upper = upper_at(most_per_rank)
        best = Realised(shape, (), 0.0, upper, (), slots, {})
        experts, _ = self.placements.of(slots, free=True)
        alike = Attempt(stands, slots, experts, far_s, self.clock, self.seed)
        found = BatchSearch(alike).best(most_per_rank)
        found, alike = self._levelled(alike, found, most_per_rank, upper_at)
        attempts = [alike]
        if shape["pp"] == 1:
            least = tuple(spread(max(experts.max() + 1, chips), chips))
            # layers are weighed at the batch that equal slots allow
            per_rank = most_per_rank if found is None else max(found[0].rank_sequences())
            seconds = partial(alike.layer_seconds, per_rank)
            for layer_slots, maps in self.shared.tries(chips, fewest, shape["slots"], seconds):
                other = Attempt(stands, least, experts, far_s, self.clock, self.seed)
                attempts.append(other.given(maps, layer_slots))
        for attempt in attempts:
            if self.clock.over and best.requests_per_s > 0:
                break
            if attempt is not alike:
                found = BatchSearch(attempt).best(most_per_rank)
            found, _ = BatchSearch(attempt).best_cut(found, upper_at)
            if found is not None and float(found[1].service.requests_per_s) > best.requests_per_s:
                best = self._realised(attempt, found, upper)
        return best
