r"""Layers onto stages: consecutive layers, the longest stage as short as HBM allows.

With ``cut_0 = 0 < cut_1 < ... < cut_P = L``, prefix times ``t`` and prefix bytes ``w``::

    minimise  max_s  t[cut_{s+1}] - t[cut_s] + edge_time_s
    w[cut_{s+1}] - w[cut_s] + edge_bytes_s <= room        every stage s

solved exactly by dynamic programming over the layers before each cut. Layers differ (dense and MoE, windowed and global
attention); the first stage also holds the embedding, the last the head.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.moe_load import cut_shares, expert_shares, touch_probability
from costmodel.layout.layout import ExpertMap, Replica
from costmodel.passes.communication import GroupRates
from costmodel.passes.group import ChipGroup
from costmodel.passes.operations import LayerKind
from costmodel.passes.pass_time import pass_time
from costmodel.passes.tokens import ExpertShares, Tokens, held_evenly
from costmodel.question.instance import Instance
from costmodel.question.profile import Efficiency
from costmodel.replica.replica import replica_schedule
from topology import Chip

Array = NDArray[np.float64]
#: passes of a mixed replica
PassName = Literal["decode", "prefill"]


def cut_stages(
    layer_s: Array,
    layer_bytes: Array,
    edge_s: Sequence[float],
    edge_bytes: Sequence[float],
    room_bytes: float,
) -> list[tuple[int, int]] | None:
    """First and last layer of every stage, or ``None`` if no cut fits.

    ``layer_s layer_bytes [layers]``, ``edge_s edge_bytes [stages]``: what a stage has beside its
    layers. ``room_bytes``: HBM of a chip that layers and edges may use. Of cuts with an equal longest stage that with
    least in the last one.
    """
    places = len(layer_s) + 1
    begins, ends = np.ogrid[:places, :places]
    times, sizes = (np.concatenate([[0.0], np.cumsum(own)]) for own in (layer_s, layer_bytes))
    took_s, held = times[None, :] - times[:, None], sizes[None, :] - sizes[:, None]
    longest = np.full(places, np.inf)
    longest[0] = 0.0
    chosen: list[NDArray[np.intp]] = []
    for beside_s, beside in zip(edge_s, edge_bytes, strict=True):
        fits = (ends > begins) & (held + beside <= room_bytes)
        # a stage that begins late is tried first
        tried = np.where(fits, np.maximum(longest[:, None], took_s + beside_s), np.inf)[::-1]
        chosen.append(places - 1 - tried.argmin(axis=0))
        longest = tried.min(axis=0)
    if longest[-1] == np.inf:
        return None
    cut, end = [], places - 1
    for own in reversed(chosen):
        cut.append((int(own[end]), end - 1))
        end = int(own[end])
    return cut[::-1]


#: share of a layer that is taken for rounding where layers fill a stage; halvings of what the longest may last
_ROUNDING, _HALVINGS = 1e-9, 30


def shortest_longest_stage(
    layer_s: Sequence[Array],
    kind_of_layer: Sequence[int],
    head_s: Array,
    stages: Array,
    allowed: NDArray[np.bool_] | None = None,
) -> Array:
    """Least possible time of the longest stage, for many shapes at once (arrays of one length).

    ``layer_s[k]``: seconds of a layer of kind ``k``; ``head_s`` comes on top of the last stage; of one shape
    ``allowed [begin, end]`` says which stages may be, and some cut is. For a trial limit, stages are filled greedily from the last layer back, run by run of equal layers;
    the least limit that needs no more than ``stages`` stages is found by bisection and returned
    rounded down, so that it stays a lower bound.
    """
    runs: list[tuple[int, int]] = []
    for kind in reversed(kind_of_layer):
        if runs and runs[-1][0] == kind:
            runs[-1] = (kind, runs[-1][1] + 1)
        else:
            runs.append((kind, 1))
    longest_layer = np.maximum.reduce([layer_s[kind] for kind, _ in runs])
    total = sum(count * layer_s[kind] for kind, count in runs) + head_s
    # the last stage has a layer beside the head
    last = head_s + layer_s[runs[0][0]]
    low = np.maximum.reduce([longest_layer, last, total / stages]) * (1 - 1e-12)
    high = np.asarray(total, dtype=float).copy()
    if low.size == 1:
        own = [float(layer_s[kind].item()) for kind in reversed(kind_of_layer)]
        found = _longest_of_one(
            own, float(head_s.item()), low.item(), high.item(), stages.item(),
            None if allowed is None else reach_of(allowed),
        )  # fmt: skip
        return np.full(low.shape, found)
    for _ in range(_HALVINGS):
        limit = (low + high) / 2
        fits = _stages_needed(layer_s, runs, head_s, limit) <= stages
        high = np.where(fits, limit, high)
        low = np.where(fits, low, limit)
    return np.asarray(low)


def reach_of(allowed: NDArray[np.bool_]) -> list[int]:
    """Of each number of layers from the last one back: how many of them end the stage that begins after these, at most.

    ``allowed [begin, end]``: stages of these layers that may be, and with each all its parts.
    """
    layers = len(allowed) - 1
    last_first = allowed[::-1, ::-1].T
    most = np.where(last_first.any(axis=1), layers - last_first[:, ::-1].argmax(axis=1), 0)
    return [max(begun, int(end)) for begun, end in enumerate(most)]


def _longest_of_one(
    layer_s: list[float],
    head_s: float,
    low: float,
    high: float,
    stages: float,
    reach: list[int] | None,
) -> float:
    """The same for one shape, from the last layer back, stage by stage instead of layer by layer."""
    sums = [0.0, *accumulate(layer_s)]
    slack = max(layer_s) * _ROUNDING
    for _ in range(_HALVINGS):
        limit = (low + high) / 2
        needed, start = 0, 0
        while start < len(layer_s) and needed <= stages:
            room = limit + slack - (0.0 if needed else head_s)
            end = max(start + 1, bisect_right(sums, sums[start] + room) - 1)
            start = end if reach is None else min(end, reach[start])
            needed += 1
        low, high = (low, limit) if needed <= stages else (limit, high)
    return low


def _stages_needed(
    layer_s: Sequence[Array], runs: Sequence[tuple[int, int]], head_s: Array, limit: Array
) -> Array:
    """Stages that greedy filling takes under a limit, from the last layer back."""
    needed = np.ones_like(limit)
    used = head_s + np.zeros_like(limit)
    layers = [np.maximum(own, 1e-30) for own in layer_s]
    # most that a stage may hold before one more layer of a kind
    before = [limit - each * (1.0 - _ROUNDING) for each in layers]
    fitting = [np.maximum(np.floor(limit / each + _ROUNDING), 1) for each in layers]
    for kind, count in runs:
        each = layers[kind]
        if count == 1:  # stays in the stage, or begins the next
            stays = used <= before[kind]
            used = used * stays + each
            needed += ~stays
            continue
        here = np.floor((limit - used) / each + _ROUNDING)
        here = np.minimum(np.maximum(here, 0), count)
        left, per_stage = count - here, fitting[kind]
        more = np.ceil(left / per_stage)
        needed = needed + more
        in_last = left - (more - 1) * per_stage
        used = np.where(left > 0, in_last * each, used + here * each)
    return needed


def cut_over(slots: Sequence[int]) -> bool:
    """Whether a stage's chips, with so many expert slots each, hold slices of all experts: they have none."""
    return bool(slots) and not any(slots)


def layer_times(
    instance: Instance,
    draft: Replica,
    chip: Chip,
    efficiency: Efficiency,
    rates: GroupRates,
    slots: Sequence[int],
    maps: ExpertMap,
    only: PassName | None = None,
) -> tuple[Array, float]:
    """Seconds of each layer ``[layers]`` and of the head, at the batch of ``draft``, by the evaluator's formulas.

    All MoE layers have ``slots``; those that ``maps`` does not name have no time, unless no chip has a slot: experts are
    cut over all. A mixed replica weighs a layer's
    prefill time by how often it is run beside a decode pass, or counts ``only`` one of both.
    """
    operations, shape = instance.operations, draft.shape
    plan = replica_schedule(instance, draft)
    passes: list[tuple[Tokens, float]] = []
    if plan.decode is not None and only != "prefill":
        passes.append((plan.decode, 1.0))
    if plan.prefill is not None and only != "decode":
        passes.append((plan.prefill, float(plan.events * plan.passes) if plan.decode else 1.0))
    layer_s = np.zeros(operations.num_layers)
    head_s, cut = 0.0, cut_over(slots)

    def timed(layers: list[tuple[LayerKind, float]], tokens: Tokens, shares: list[ExpertShares | None], head: bool) -> Array:  # fmt: skip
        found = pass_time(
            ChipGroup.of(
                operations, shape.tp, shape.attention_dp, chip, efficiency, rates, float(not cut)
            ),
            layers, tokens, shares, with_head=head,
        )  # fmt: skip
        return found.total_s(instance.profile.combination)

    for tokens, weight in passes:
        rows = float(tokens.rows)
        for kind in operations.kinds:
            shares, layers = None, list(kind.layers)
            if kind.moe is not None:
                places = [place for place, layer in enumerate(kind.layers) if layer in maps or cut]
                layers = [kind.layers[place] for place in places]
                if not layers:
                    continue
                loads, top_k = instance.kind_loads(kind)[places], kind.moe.top_k
                routed = float(rows * shape.attention_dp * tokens.fill)
                if cut:
                    alone = touch_probability(loads, top_k, routed, 1.0)
                    found = cut_shares(alone, kind.moe, len(slots))
                else:
                    placed = np.array([maps[layer] for layer in layers], dtype=np.int64)
                    found = expert_shares(loads, placed, slots, top_k, routed)
                shares = ExpertShares(found.load[:, None, :], found.touched[:, None, :])
            layer_s[layers] += weight * timed([(kind, 1.0)], tokens, [shares], False)
        head_s += weight * float(timed([], tokens, [], True))
    return layer_s, head_s


def cut_replica(
    instance: Instance,
    draft: Replica,
    chip: Chip,
    efficiency: Efficiency,
    rates: GroupRates,
    slots: Sequence[int],
    maps: ExpertMap,
    only: PassName | None = None,
) -> list[tuple[int, int]] | None:
    """Stages of a replica at the batch of ``draft``, of the passes of a mixed one ``only`` some: layer times and bytes are the evaluator's."""
    layer_s, head_s = layer_times(instance, draft, chip, efficiency, rates, slots, maps, only)
    weights, cached, edge_bytes, plain = _held(instance, draft, slots)
    edge_s = [*[0.0] * (draft.shape.pp - 1), head_s]
    room = instance.usable_hbm_bytes(chip) - efficiency.runtime_bytes - plain
    return cut_stages(
        layer_s, weights + cached * max(draft.rank_sequences()), edge_s, edge_bytes, room
    )


def next_batch(
    instance: Instance, draft: Replica, chip: Chip, efficiency: Efficiency, slots: Sequence[int]
) -> int:
    """The most sequences of a rank, fewer than the draft has, beside which more stages fit: with the same cuts fewer serve less."""
    weights, cached, edge_bytes, plain = _held(instance, draft, slots)
    places = len(weights) + 1
    begins, ends = np.ogrid[:places, :places]
    held, grown = (np.concatenate([[0.0], np.cumsum(own)]) for own in (weights, cached))
    room = instance.usable_hbm_bytes(chip) - efficiency.runtime_bytes - plain
    left = room - (held[None, :] - held[:, None])
    left -= edge_bytes[0] * (begins == 0) + edge_bytes[-1] * (ends == places - 1)
    beside = np.floor(left / np.maximum(grown[None, :] - grown[:, None], 1e-30))
    fewer = (ends > begins) & (beside < max(draft.rank_sequences()))
    return int(beside[fewer].max(initial=0.0))


def _held(
    instance: Instance, draft: Replica, slots: Sequence[int]
) -> tuple[Array, Array, list[float], float]:
    """Bytes on a chip: of each layer and of its caches of one sequence, what each stage holds beside, activations."""
    operations, shape = instance.operations, draft.shape
    plan = replica_schedule(instance, draft)
    weights, cached = np.zeros((2, operations.num_layers))
    width, context = instance.width_bytes(shape.tp), instance.kept_context(draft.role)
    held_slots: float = max(slots, default=0)
    if operations.moe is not None and cut_over(slots):
        held_slots = float(held_evenly(operations.moe, len(slots), 0.0))
    for kind, counts in zip(operations.kinds, width.single_layers, strict=True):
        weights[list(kind.layers)] = width.layers(counts) + width.slot(counts) * held_slots
        cached[list(kind.layers)] = width.cached(counts, context, last=False)
    edge_bytes, chips = [0.0] * shape.pp, shape.chips_per_stage
    edge_bytes[0] += width.edge(chips, first=True, last=False)
    edge_bytes[-1] += width.edge(chips, first=False, last=True, cut=cut_over(slots))
    edge_bytes[-1] += width.drafted(context) * max(draft.rank_sequences())
    rows, sampled = float(plan.rows()), float(plan.sampled())
    edge_bytes[-1] += width.active(0.0, sampled)
    return weights, cached, edge_bytes, width.active(rows, 0.0)
