r"""How long a pass takes where attention and routed experts have chips of their own.

The sequences of a replica lie in ``k`` microbatches. Of one microbatch in one layer, let ``a`` be the seconds of
attention's chips, ``m`` those of the busiest experts' chip, ``d`` of the way there (dispatch) and ``b`` of the way back
(combine). Chips and links of each kind serve one microbatch at a time, all four side by side, so that a layer takes

    ``max(a + d + m + b,  k max(a, d, m, b))``

until the same microbatch is in the next layer: a closed line of four machines with ``k`` jobs that take equally long each
time. With ``t = max(a, m)`` the exchange is hidden where ``d, b <= t`` and ``a + d + m + b <= k t``; where ``a = m = t`` and
``d = b`` that is ``k >= 2 (1 + d / t)``, the condition that MegaScale-Infer gives for its ping-pong pipeline (arXiv 2504.02263,
section 4.1); Step-3 (arXiv 2507.19427) runs three stages in turn. Nothing else hides. A dense layer and the LM
head are attention's alone: their ``k`` runs follow each other. What the change between layers of unlike kinds costs,
one microbatch's time at most where they meet, is not counted. A pass of a microbatch is the sum over layers, and in it
every sequence gains one token.

The sums grow with the batch and fall per sequence, as each of ``a``, ``m``, ``d`` and ``b`` does. ``a`` and ``m`` are rooflines per
operation (:mod:`costmodel.passes.pass_time`), ``d`` and ``b`` come from the links (:mod:`topology.collectives.between`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.apart.kinds import HalfKind
from costmodel.passes.communication import GroupRates
from costmodel.passes.group import Achieved, ChipGroup
from costmodel.passes.operations import Operations
from costmodel.passes.pass_sums import PassTime
from costmodel.passes.pass_time import filled, pass_time
from costmodel.passes.routed import dispatch_element_bytes, excess_tokens
from costmodel.passes.tokens import ExpertShares, Tokens
from costmodel.question.profile import Combination

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Exchange:
    """What :class:`topology.collectives.between.Between` says, for one replica (numbers) or for many (arrays)."""

    latency_s: Array
    out_s_per_byte: Array
    through_s_per_byte: Array
    into_s_per_byte: Array

    def take(self, rows: NDArray[np.intp]) -> Exchange:
        """The exchanges of some replicas."""
        return Exchange(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Sides:
    """Both groups of one replica (numbers) or of many (arrays of one length).

    ``tp`` chips of each of ``ranks`` attention ranks; ``reduce`` rates of their collectives. ``experts``: chips of
    experts. ``microbatches`` in flight. ``exchange`` at the links' full speed.
    """

    operations: Operations
    combination: Combination
    attention: Achieved
    expert: Achieved
    tp: Array
    ranks: Array
    experts: Array
    microbatches: Array
    reduce: GroupRates
    exchange: Exchange


@dataclass(frozen=True)
class KindTimes:
    """Seconds of one microbatch in a layer of a kind: ``attention [...]``, the others ``[..., layers]``.

    ``repeats``: layers that each entry of the last axis stands for. ``parts``: of attention and of experts, by part.
    """

    attention: Array
    experts: Array
    dispatch: Array
    combine: Array
    repeats: float
    parts: tuple[dict[str, Array], dict[str, Array]]

    def period_s(self, microbatches: Array) -> Array:
        """Seconds of all layers of the kind ``[...]``."""
        return np.asarray(self.repeats * self.tacts(microbatches).sum(axis=-1))

    def tacts(self, microbatches: Array) -> Array:
        """Seconds of one layer ``[..., layers]``, by the formula of this file."""
        attention = self.attention[..., None]
        there = attention + self.dispatch + self.experts + self.combine
        longest = np.maximum.reduce(
            np.broadcast_arrays(attention, self.dispatch, self.experts, self.combine)
        )
        return np.asarray(np.maximum(there, microbatches[..., None] * longest))


@dataclass(frozen=True)
class ApartTimes:
    """A pass of every microbatch: the kinds of layers, the head after them, and the seconds of the whole."""

    kinds: list[KindTimes]
    head: PassTime
    head_s: Array
    period_s: Array


def apart_times(
    sides: Sides,
    kinds: Sequence[HalfKind],
    tokens: Tokens,
    shares: Sequence[ExpertShares | None],
) -> ApartTimes:
    """Times of a decode pass of each microbatch; ``tokens`` of the busiest rank in its fullest microbatch.

    ``shares[i]`` of ``kinds[i]``: ``load`` and ``touched [..., entries, chips]``; the entries stand for equally many layers each.
    """
    found = [_kind(sides, *own, tokens) for own in zip(kinds, shares, strict=True)]
    head = pass_time(_attention(sides), [], tokens, [])
    head_s = head.total_s(sides.combination)
    total = sides.attention.efficiency.step_overhead_s + sides.microbatches * head_s
    for own in found:
        total = total + own.period_s(sides.microbatches)
    return ApartTimes(found, head, head_s, np.asarray(total))


def _attention(sides: Sides) -> ChipGroup:
    return ChipGroup(sides.operations, sides.tp, sides.ranks, sides.attention, sides.reduce)


def _kind(sides: Sides, kind: HalfKind, shares: ExpertShares | None, tokens: Tokens) -> KindTimes:
    own = pass_time(_attention(sides), [(kind.attention, 1.0)], tokens, [None], with_head=False)
    shape = np.broadcast_shapes(np.shape(tokens.rows), sides.ranks.shape)
    attention = np.broadcast_to(own.total_s(sides.combination), shape)
    count = float(len(kind.attention.layers))
    if kind.experts is None or shares is None:
        nothing = np.zeros((*shape, 1))
        return KindTimes(attention, nothing, nothing, nothing, count, (own.parts, {}))
    entries = shares.load.shape[-2]
    timed, (dispatch, combine) = _experts(sides, kind, shares, tokens)
    experts = np.broadcast_to(timed.total_s(sides.combination), (*shape, entries))
    parts = timed.parts | {"dispatch": dispatch, "combine": combine}
    return KindTimes(attention, experts, dispatch, combine, count / entries, (own.parts, parts))


def _experts(
    sides: Sides, kind: HalfKind, shares: ExpertShares, tokens: Tokens
) -> tuple[PassTime, tuple[Array, Array]]:
    """The experts' half of one layer, entry by entry ``[..., entries]``, and its way there and back."""
    assert kind.experts is not None
    moe = kind.experts.moe
    assert moe is not None
    chips = sides.experts[..., None]
    every = np.asarray(tokens.rows * sides.ranks)[..., None]  # of ranks as full as the busiest
    fill = np.asarray(tokens.fill)
    fill = fill[..., None] if fill.ndim else fill
    one_each = ExpertShares(shares.load[..., None, :], shares.touched[..., None, :])
    # one chip of each of as many ranks as there are chips: nothing is sharded, nothing moves in here
    none = np.zeros(np.shape(chips))
    still = GroupRates(none, none, none, none, none, none)
    group = ChipGroup(sides.operations, np.ones(np.shape(chips)), chips, sides.expert, still)
    on_chip = Tokens(decode=every / chips, context=tokens.context, fill=fill)
    timed = pass_time(group, [(kind.experts, 1.0)], on_chip, [one_each], with_head=False)
    timed.parts = {p: own for p, own in timed.parts.items() if p not in ("dispatch", "combine")}
    operations, efficiency = sides.operations, sides.expert.efficiency
    reduced = on_chip.rows * operations.hidden_size * operations.activation_bytes
    alone = np.where(chips > 1, 0.0, efficiency.exchange_overhead_s * filled(reduced))
    timed.add("overhead", alone)  # one chip of experts exchanges, too
    met = fill * every * moe.top_k
    noise = excess_tokens(met, chips, efficiency.routing_noise)
    busiest = shares.busiest_load + noise / np.maximum(met, 1e-300)
    vectors = np.asarray(tokens.rows)[..., None] * moe.expert_input_dim
    copies = np.minimum(round(moe.top_k), chips)
    found = []
    rates = sides.exchange
    for element in (dispatch_element_bytes(moe, operations), operations.activation_bytes):
        sourced = vectors / sides.tp[..., None] * element
        whole = fill * vectors * sides.ranks[..., None] * element
        slowest = np.maximum(
            rates.out_s_per_byte[..., None] / sides.attention.efficiency.all_to_all * sourced,
            np.maximum(
                rates.through_s_per_byte[..., None] * whole,
                rates.into_s_per_byte[..., None] * whole * copies * busiest,
            )
            / efficiency.all_to_all,
        )
        found.append(np.asarray(rates.latency_s[..., None] + slowest))
    return timed, (found[0], found[1])
