"""Every shape a replica may have on a class of pools: all widths, not only powers of two.

A shape stands on ``slices``: the same number of chips in each of so many pools of one class, or the
chips of a span (:mod:`solver.shapes.spans`). Three ways to stand: one stage in one pool or spread over
several (its experts or ranks then span domains), several stages side by side in one pool, or each stage in a
pool of its own; in a span a pool may also hold several stages of the same width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np
from numpy.typing import NDArray

from costmodel.layout.layout import Role
from costmodel.passes.routed import mixtures
from costmodel.question.instance import Instance
from costmodel.replica import memory
from costmodel.rules.within_measured import kept_within
from solver.shapes.pools import PoolClass
from solver.shapes.spans import Parts, SpanFamily, span_families
from solver.shapes.stands import neighbours_matter
from topology.chip import Chip

Ints = NDArray[np.int64]

#: domains that one replica may span where nothing else is asked for
_DOMAINS = 8

#: columns of an expert that a chip has at least where shapes cut it: kernels fill tiles of so many, and what narrower
#: slices take was not measured
NARROWEST = 128

ROLES: tuple[Role, ...] = ("prefill", "decode", "mixed")


@dataclass(frozen=True)
class ShapeTable:
    """Shapes as columns, one row each (arrays of one length).

    ``tp attention_dp pp``: widths. ``pool_class``; ``slices`` pools are used, ``slice_chips`` in
    each. ``stage_pools``: pools that one stage spans. ``slots``: expert slots of a MoE layer over
    the stage (0 for a dense model, and where each expert is cut over the stage); they lie as evenly as possible. ``span``: which of ``spans`` the
    shape stands on, or -1; ``slice_chips`` is then the largest slice, ``pool_class`` the first one's.
    """

    role: Ints
    pool_class: Ints
    tp: Ints
    attention_dp: Ints
    pp: Ints
    slices: Ints
    slice_chips: Ints
    stage_pools: Ints
    slots: Ints
    span: Ints
    spans: tuple[Parts, ...] = ()
    #: of spans whose last parts hold no KV: how many first ones do
    kv_parts: Mapping[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.role)

    @property
    def stage_chips(self) -> Ints:
        """Chips of one stage."""
        return self.tp * self.attention_dp

    @property
    def chips(self) -> Ints:
        """Chips of the replica."""
        return self.stage_chips * self.pp

    def take(self, index: NDArray[np.bool_] | NDArray[np.int64]) -> ShapeTable:
        """The rows picked by ``index``."""
        return ShapeTable(
            **{name: getattr(self, name)[index] for name in COLUMNS}, spans=self.spans,
            kv_parts=self.kv_parts,
        )  # fmt: skip

    def row(self, index: int) -> dict[str, int]:
        """One shape as plain numbers."""
        return {name: int(getattr(self, name)[index]) for name in COLUMNS}

    def parts(self, index: int) -> Parts:
        """``(pool class, chips)`` of each pool that a shape takes chips from."""
        span = int(self.span[index])
        if span >= 0:
            return self.spans[span]
        return ((int(self.pool_class[index]), int(self.slice_chips[index])),) * int(
            self.slices[index]
        )


#: columns of a :class:`ShapeTable`
COLUMNS = tuple(
    name for name in ShapeTable.__dataclass_fields__ if name not in ("spans", "kv_parts")
)


@dataclass(frozen=True)
class Footing:
    """A way to stand, before its tensor parallel width and slots are chosen.

    ``in_pool``: what every pool's share of a stage must be divisible by tp for; ``stage_chips``.
    """

    pool_class: int
    pp: int
    slices: int
    slice_chips: int
    stage_pools: int
    stage_chips: int
    in_pool: tuple[int, ...]
    span: int = -1


def enumerate_shapes(instance: Instance, classes: tuple[PoolClass, ...]) -> ShapeTable:
    """All shapes of all roles on all classes."""
    widths = tensor_widths(instance)
    most = most_domains(instance, classes)
    families = span_families(classes, most, _most_stages(instance))
    spans = tuple(parts for family in families for parts in family.spans)
    standings = [one for c in classes for one in _standings(instance, c, most)]
    standings += _span_standings(instance, families)
    slots_of: dict[int, list[int]] = {}
    rows: list[tuple[int, ...]] = []
    for stand in standings:
        if stand.stage_chips not in slots_of:
            slots_of[stand.stage_chips] = slot_counts(instance, stand.stage_chips)
            if cuts_experts(instance, stand.stage_chips):
                slots_of[stand.stage_chips].append(0)
        for tp in widths:
            if any(chips % tp for chips in stand.in_pool) and not (
                ranks_may_span(instance, classes[stand.pool_class]) and spans_evenly(stand, tp)
            ):
                continue
            ranks = stand.stage_chips // tp
            roles = _roles(instance, classes[stand.pool_class].chip, tp, ranks, stand.pp)
            if instance.operations.moe is None and ranks > 1:
                continue  # ranks of a dense model share nothing: they are replicas
            for slots in _engine_slots(instance, slots_of[stand.stage_chips], stand, ranks):
                for role in roles:
                    rows.append(
                        (
                            role, stand.pool_class, tp, ranks, stand.pp, stand.slices,
                            stand.slice_chips, stand.stage_pools, slots, stand.span,
                        )
                    )  # fmt: skip
    columns = np.array(rows, dtype=np.int64).reshape(-1, len(COLUMNS)).T
    named = dict(zip(COLUMNS, columns, strict=True))
    return ShapeTable(**named, spans=spans, kv_parts={})


def ranks_may_span(instance: Instance, pool_class: PoolClass) -> bool:
    """Whether attention ranks over several domains of a class are searched: not where a chip's neighbours matter."""
    return not neighbours_matter(instance.cluster, pool_class.domain)


def spans_evenly(stand: Footing, tp: int) -> bool:
    """Whether each rank takes all chips of its stage in some domains, as many of each."""
    domains, rest = divmod(tp, stand.in_pool[0])
    return stand.span < 0 and domains > 1 and not rest and stand.stage_pools % domains == 0


def _roles(instance: Instance, chip: Chip, tp: int, ranks: int, pp: int) -> list[int]:
    """Roles that a replica may have; the engine of the question may not run them all."""
    engine, model = instance.engine, instance.model
    return [
        number
        for number, role in enumerate(ROLES)
        if not (pp > 1 and role == "mixed" and not pipes_mixed(instance))
        and (engine is None or engine.refusal(model, chip, role, tp, ranks, pp) is None)
        and kept_within(instance, chip.name, role, tp, ranks, pp)
    ]


def pipes_mixed(instance: Instance) -> bool:
    """Whether mixed replicas in stages are searched; of those that draft no run was measured, and few engines start them."""
    return instance.limits.mixed_stages and instance.speculative is None


def _engine_slots(
    instance: Instance, counts: list[int], stand: Footing, ranks: int
) -> Sequence[int]:
    """Of the slot counts, those that the engine of the question can be told."""
    engine, moe, chips = instance.engine, instance.operations.moe, stand.stage_chips
    if engine is None or moe is None or chips == 1:
        return counts
    spare = engine.spares_experts(instance.model, ranks)
    plain, uneven = moe.num_experts, engine.layouts.uneven_in_order
    return [
        count
        for count in counts
        if (count % chips == 0 and (spare or count in (0, plain))) or (uneven and count == plain)
    ]


def most_domains(instance: Instance, classes: Sequence[PoolClass]) -> int:
    """Domains that one replica may span: as asked, else 8, or more where its weights need more.

    Twice the domains that hold the weights alone leave half of the HBM to KV and activations.
    """
    asked = instance.limits.max_domains_per_replica
    if asked is not None:
        return asked
    layers = [(kind, float(len(kind.layers))) for kind in instance.operations.kinds]
    held = float(
        memory.dense_weight_bytes(layers, 1.0)
        + memory.edge_weight_bytes(instance.operations, 1.0, first=True, last=True)
    )
    moe = instance.operations.moe
    held += float(memory.expert_slot_bytes(layers)) * (moe.num_experts if moe else 0)
    room = max(
        c.size
        * (instance.usable_hbm_bytes(c.chip) - instance.profile.for_chip(c.chip.name).runtime_bytes)
        for c in classes
    )
    return max(_DOMAINS, 2 * ceil(held / room)) if room > 0 else _DOMAINS


def families_of(instance: Instance, classes: Sequence[PoolClass]) -> tuple[SpanFamily, ...]:
    """Spans of each chip type that a replica of the model may stand on."""
    return span_families(classes, most_domains(instance, classes), _most_stages(instance))


def _most_stages(instance: Instance) -> int:
    return min(instance.limits.max_pipeline_stages, instance.operations.num_layers)


def tensor_widths(instance: Instance) -> list[int]:
    """Tensor-parallel widths: divisors of query heads, a draft's too, which cut the experts of a draft beside a dense model."""
    heads = instance.operations.query_heads
    most = min(heads, default=1)
    cut = mixtures(instance.operations) if instance.operations.moe is None else []
    return [
        tp
        for tp in range(1, most + 1)
        if all(count % tp == 0 for count in heads) and all(one.cut_over(tp) for one in cut)
    ]


def slot_counts(instance: Instance, chips: int) -> list[int]:
    """Slots of a MoE layer over ``chips``: none spare, the next full rows, and 32 or 64 spare."""
    moe = instance.operations.moe
    if moe is None:
        return [0]
    experts = moe.num_experts
    least = -(-experts // chips)
    counts = {chips * (least + more) for more in range(3)}
    counts |= {chips * -(-(experts + spare) // chips) for spare in (32, 64)}
    if chips <= experts:
        counts.add(experts)
    # an expert may lie at most once on a chip, so more than experts x chips slots cannot be filled
    return sorted(count for count in counts if count <= min(experts * chips, 2 * experts + chips))


def cuts_experts(instance: Instance, chips: int) -> bool:
    """Whether shapes of stages with so many chips cut each expert over all of them."""
    if instance.operations.moe is None or chips == 1:
        return False
    return all(
        one.cut_over(chips) and one.expert_width >= chips * NARROWEST
        for one in mixtures(instance.operations)
    )


def _standings(instance: Instance, pool_class: PoolClass, most: int) -> Iterator[Footing]:
    """Every way to stand on equally many chips in each of some pools of a class."""
    index, stages = pool_class.index, _most_stages(instance)
    pools = 1 if pool_class.cut_off else len(pool_class.pools)
    for chips in range(1, pool_class.size + 1):
        yield Footing(index, 1, 1, chips, 1, chips, (chips,))
        for span in range(2, min(pools, most) + 1):
            yield Footing(index, 1, span, chips, span, chips * span, (chips,))
            if span <= stages:
                yield Footing(index, span, span, chips, 1, chips, (chips,))
        for pp in range(2, stages + 1):
            if chips * pp <= pool_class.size:
                yield Footing(index, pp, 1, chips * pp, 1, chips, (chips,))


def _span_standings(instance: Instance, families: Sequence[SpanFamily]) -> list[Footing]:
    """Spans as one stage, or as stages of one width of which each lies in one pool."""
    stages = _most_stages(instance)
    found: list[Footing] = []
    for number, parts in enumerate(parts for family in families for parts in family.spans):
        home, most, total = parts[0][0], max(n for _, n in parts), sum(n for _, n in parts)
        slices = tuple(sorted({n for _, n in parts}))
        if instance.operations.moe is not None:
            found.append(Footing(home, 1, len(parts), most, len(parts), total, slices, number))
        for width in range(1, slices[0] + 1):
            if total // width <= stages and not any(n % width for n in slices):
                found.append(
                    Footing(home, total // width, len(parts), most, 1, width, (width,), number)
                )
    return found
