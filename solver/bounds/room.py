r"""HBM that shapes need at least, however a batch lies on their attention ranks.

A layer's slots lie as evenly over the chips as they can: where their number is no multiple of the chips, some have one
more (``full``) than the others (``low``), and the ranks without such a chip have room for more sequences. With ``r``
ranks that have one, each with room for ``N`` sequences, ``S`` sequences on ``R`` ranks put at least

    ``n = ceil(S / R)`` on the fullest rank if that is no more than ``N``, else ``ceil((S - r N) / (R - r))``.

Of a pipeline the first stage holds the embedding and the last one the head with the logits of sampled tokens, whole: each of
them beside one layer at least, however layers are shared out.

Where slots take turns over layers, or stages differ in layers, a chip may have any number between; then the average
chip holds the average slots and ``S / R`` sequences, and the fullest rank's chips have ``low`` slots at least.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costmodel.layout.layout import Role
from costmodel.passes.operations import LayerKind
from costmodel.passes.tokens import held_evenly
from costmodel.question.instance import Instance
from costmodel.replica import memory
from costmodel.replica.serving import schedule
from costmodel.tolerance import RELATIVE
from solver.place.stages import reach_of
from topology import Chip

Array = NDArray[np.float64]
Layers = Sequence[tuple[LayerKind, float]]


class Room:
    """HBM of shapes of one role on one type of chip (arrays of one length).

    ``kinds``: the question, once for each kind of request that the shapes serve; the one that needs most counts.
    """

    def __init__(
        self,
        kinds: Sequence[Instance],
        role: Role,
        chip: Chip,
        layers: Layers,
        tp: Array,
        ranks: Array,
        pp: Array,
        whole: Array,
    ):
        """``whole``: 1 where experts lie whole on chips, 0 where each is cut over a stage's."""
        self.kinds = kinds
        self.role: Role = role
        self.chip, self.tp, self.ranks, self.pp = chip, tp, ranks, pp
        instance, chips = kinds[0], tp * ranks
        self.usable_bytes = instance.usable_hbm_bytes(chip)
        operations, context = instance.operations, instance.kept_context(role)
        weights = memory.dense_weight_bytes(layers, tp) + memory.edge_weight_bytes(
            operations, tp, first=True, last=True
        )
        runtime = instance.profile.for_chip(chip.name).runtime_bytes
        draft = memory.draft_weight_bytes(operations, tp, chips, whole)
        self.fixed = (weights + draft) / pp + runtime
        self.first, self.last = (end + runtime for end in self._ends(layers, draft))
        self.end_slot = min(float(memory.expert_slot_bytes([(kind, 1.0)])) for kind, _ in layers)
        self.slot = memory.expert_slot_bytes(layers) / pp
        cached = memory.kv_bytes_per_sequence(operations, layers, tp, context)
        self.kv = (cached + memory.draft_kv_bytes(operations, tp, context)) / pp
        self.low = self.mean = self.full = np.zeros_like(tp)
        self.full_ranks = np.zeros_like(tp)
        self.tier_bytes: float = np.inf
        self.tier_kv = np.zeros_like(tp)
        if instance.kv_read_from is not None:
            tier = chip.tier(instance.kv_read_from)
            self.tier_bytes = tier.bytes if tier is not None else 0.0
            stored = replace(operations, kv_in_hbm=True)
            cached = memory.kv_bytes_per_sequence(stored, layers, tp, context)
            self.tier_kv = (cached + memory.draft_kv_bytes(stored, tp, context)) / pp

    def _ends(self, layers: Layers, draft: Array) -> tuple[Array, Array]:
        """Weights that first and last stage hold at least, of several: their table and one layer."""
        operations, tp = self.kinds[0].operations, self.tp
        first = memory.edge_weight_bytes(operations, tp, first=True, last=False)
        last = memory.edge_weight_bytes(operations, tp, first=False, last=True) + draft
        one = np.min([memory.dense_weight_bytes([(kind, 1.0)], tp) for kind, _ in layers], axis=0)
        several = self.pp > 1
        return np.where(several, first + one, 0.0), np.where(several, last + one, 0.0)

    def with_slots(
        self, fewest: Array, *, turns: NDArray[np.bool_], cut: NDArray[np.bool_]
    ) -> Self:
        """The room beside expert slots: ``fewest`` of a layer over a stage's chips.

        ``turns``: where it need not be the same chips that have one more than others; ``cut``: where every chip holds a
        slice of each expert.
        """
        chips, moe = self.tp * self.ranks, self.kinds[0].operations.moe
        self.mean = fewest / chips
        if moe is not None:
            self.mean = np.where(cut, held_evenly(moe, chips, 0.0), self.mean)
        self.low = np.where(cut, self.mean, np.floor(self.mean))
        self.full = np.where(cut | turns, self.low, np.ceil(self.mean))
        self.full_ranks = np.ceil((fewest - self.low * chips) / self.tp) * (self.full > self.low)
        return self

    #: attributes with one element for each shape
    BY_SHAPE = (
        "tp", "ranks", "pp", "fixed", "first", "last", "slot", "kv", "low", "mean", "full", "full_ranks", "tier_kv",
    )  # fmt: skip

    def take(self, rows: NDArray[np.intp]) -> Self:
        """The room of some of the shapes."""
        part = copy(self)
        for name in self.BY_SHAPE:
            setattr(part, name, getattr(self, name)[rows])
        return part

    def needed(self, slots: Array, sequences: Array, per_rank: Array) -> Array:
        """Bytes on a chip with so many slots of a layer and sequences on its rank.

        ``per_rank``: of the busiest rank in the fullest microbatch.
        """
        return np.asarray(
            self.fixed
            + self.slot * slots
            + self.kv * sequences
            + self.active(per_rank, 1.0 / self.pp)
        )

    def active(self, per_rank: Array, of_logits: float | Array) -> Array:
        """Activations of a stage and so much of the logits, which only the last one has."""
        found: Array = np.zeros_like(self.tp)
        for kind in self.kinds:
            plan = schedule(self.role, kind.workload, kind.limits, per_rank, kind.speculative)
            logits = of_logits * plan.sampled()
            own = memory.activation_bytes(kind.operations, self.tp, plan.rows(), logits)
            found = np.maximum(found, own)
        return found

    def most(self, slots: Array, per_rank: Array) -> Array:
        """Most sequences of a rank whose chips have so many slots, below 0 where not even these fit."""
        left = self.usable_bytes * (1 + RELATIVE) - self.needed(slots, np.zeros(1), per_rank)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.floor(left / self.kv * (1 + RELATIVE))
        return np.where(self.kv > 0, found, np.where(left >= 0, np.inf, -1.0))

    def on_fullest(self, total: Array, used: Array) -> Array:
        """Least sequences of the fullest rank, of ``total`` on ``used`` ranks."""
        even = np.ceil(total / used)
        full_ranks = np.maximum(self.full_ranks - (self.ranks - used), 0.0)
        unlike = (full_ranks > 0) & (full_ranks < used)
        if not unlike.any():
            return even
        most = np.maximum(self.most(self.full, np.ceil(even / self.pp)), 0.0)
        rest = total - full_ranks * np.minimum(most, even)
        other = np.ceil(rest / np.maximum(used - full_ranks, 1.0))
        return np.where(unlike & (even > most), other, even)

    def short_bytes(self, total: Array, fullest: Array) -> Array:
        """Bytes by which HBM, or the tier that caches lie in, is too small at least (0 or less: it is not)."""
        per_rank = np.ceil(fullest / self.pp)
        # the ranks of fuller chips have what fits beside their slots, if these fit at all
        beside = np.where(self.full_ranks < self.ranks, 0.0, fullest)
        needed = np.maximum.reduce(
            [
                self.needed(self.low, fullest, per_rank),
                self.needed(self.full, beside, per_rank),
                self.needed(self.mean, total / self.ranks, per_rank)
                if (self.full < self.mean).any()
                else np.zeros_like(self.tp),
                self.first + self.end_slot * self.low + self.active(per_rank, 0.0),
                self.last + self.end_slot * self.low + self.active(per_rank, 1.0),
            ]
        )
        short = needed - self.usable_bytes * (1 + RELATIVE)
        tier = self.tier_kv * fullest - self.tier_bytes * (1 + RELATIVE)
        return np.asarray(np.maximum(short, tier))

    def left_bytes(self, total: Array) -> Array:
        """HBM of the average chip that so many sequences leave free, at most."""
        per_rank = np.maximum(1.0, total / (self.ranks * self.pp))
        needed = self.needed(self.mean, total / self.ranks, per_rank)
        return np.asarray(np.maximum(0.0, self.usable_bytes * (1 + RELATIVE) - needed))


class StageRoom:
    """Stages that HBM holds, of one shape.

    A rank with ``n`` sequences has, on the chips of the stage ``[b, e)``, the weights of its layers and their caches of ``n``
    sequences, the first stage with the embedding, the last one with the head and its logits.
    """

    def __init__(self, room: Room, *, cut: bool):
        """``cut``: whether every chip holds a slice of each expert."""
        instance, tp = room.kinds[0], int(room.tp[0])
        self.pp, self._active = int(room.pp[0]), room.active
        width, context = instance.width_bytes(tp), instance.kept_context(room.role)
        self.layers = layers = instance.operations.num_layers
        own = np.empty((2, layers))
        for kind, counts in zip(instance.operations.kinds, width.single_layers, strict=True):
            weights = width.layers(counts) + width.slot(counts) * float(room.low[0])
            cached = width.cached(counts, context, last=False)
            own[:, list(kind.layers)] = [[weights], [cached]]
        sums = np.concatenate([np.zeros((2, 1)), np.cumsum(own, axis=1)], axis=1)
        self._weights, self._cached = sums[:, None, :] - sums[:, :, None]
        chips = tp * int(room.ranks[0])
        self._weights[0, :] += width.edge(chips, first=True, last=False, cut=cut)
        self._weights[:, -1] += width.edge(chips, first=False, last=True, cut=cut)
        self._cached[:, -1] += width.drafted(context)
        runtime = instance.profile.for_chip(room.chip.name).runtime_bytes
        self._left = room.usable_bytes * (1 + RELATIVE) - runtime
        begins, ends = np.ogrid[: layers + 1, : layers + 1]
        self._stages = ends > begins

    def allowed(self, sequences: int) -> NDArray[np.bool_]:
        """``[begin, end]``: whether a stage of these layers fits beside so many sequences on a rank."""
        microbatch = np.array([float(-(-sequences // self.pp))])
        held = self._weights + sequences * self._cached + self._active(microbatch, 0.0).item()
        held[:, -1] += (self._active(microbatch, 1.0) - self._active(microbatch, 0.0)).item()
        return np.asarray(self._stages & (held <= self._left * (1 + RELATIVE)))

    def holds(self, sequences: int) -> bool:
        """Whether some cut does."""
        reach, begun = reach_of(self.allowed(sequences)), 0
        for _ in range(self.pp):
            if begun < self.layers:
                begun = reach[begun]
        return begun == self.layers

    def most(self, sequences: int) -> int:
        """The most sequences, no more than so many, beside which some cut fits."""
        low, high = 0, sequences
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.holds(middle) else (low, middle - 1)
        return low

    def fewest_alike(self, sequences: int) -> int:
        """The fewest sequences beside which the same stages fit."""
        same, low, high = self.allowed(sequences), 1, sequences
        while low < high:
            middle = (low + high) // 2
            if np.array_equal(self.allowed(middle), same):
                high = middle
            else:
                low = middle + 1
        return low
