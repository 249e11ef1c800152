"""Least times of one pass of shapes: no placement of experts, no cut into stages is quicker."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from costmodel.passes.communication import hand_off_s
from costmodel.passes.group import ChipGroup
from costmodel.passes.operations import LayerKind
from costmodel.passes.overlap import EXCHANGE, both_halves
from costmodel.passes.pass_sums import PassTime
from costmodel.passes.pass_time import pass_time
from costmodel.passes.tokens import ExpertShares, Tokens, half, runs_in_halves
from costmodel.replica.serving import PipelineTime
from solver.bounds.experts.expert_bounds import ExpertBounds
from solver.bounds.experts.traded import touched_under
from solver.bounds.one_cut import longest_on_one_cut
from solver.bounds.priced import Array, Ints, Priced
from solver.kv_plan import for_role
from solver.place.stages import shortest_longest_stage
from solver.shapes.shapes import ROLES

#: caps on the busiest load between which a layer is bounded, over the least that is proven
_CAPS = np.array([1.0, 1.01, 1.025, 1.05, 1.08, 1.12, 1.18, 1.25, 1.35, 1.5, 1.7, 2.0, 2.5, 3.5])


class Passes:
    """Passes of shapes of one role on one class."""

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
        overlap = self.instance.scenario.two_batch_overlap
        self.halved = runs_in_halves(overlap, self.ranks)
        self.experts = priced.experts
        self.slots = shapes.slots
        #: 1 where experts lie whole on chips, 0 where each is cut over a stage
        self.whole = np.where(shapes.slots > 0, 1.0, float(priced.experts is None))
        self.stage_chips = shapes.stage_chips
        #: slots of a layer at least, on average; fewer than ``slots`` where layers share them
        self.fewest = self.slots.astype(float)
        #: bound on the busiest chip's load in each MoE layer, where a placement has proven one
        self.by_layer: Array | None = None
        #: whether the bounds on load and on touched experts are taken together, layer by layer of one shape
        self.traded = False
        #: touched experts under caps on the load, by the tokens of a pass, of one shape
        self._touched_under: dict[float, Array] = {}
        #: stages ``[begin, end]`` that fit, of one shape
        self.allowed: NDArray[np.bool_] | None = None
        if self.experts is not None:
            pairs, inverse = np.unique(
                np.stack([shapes.stage_chips, shapes.slots], axis=1), axis=0, return_inverse=True
            )
            fewest = [self.experts.fewest(*pair) for pair in pairs.tolist()]
            self.fewest = np.array(fewest, dtype=float)[inverse.ravel()]
            loads = np.array([self.experts.load(*pair) for pair in pairs.tolist()])
            self.load, self.least_load = loads[inverse.ravel()].T
            grids = np.array([self.experts.touched_on_grid(*pair) for pair in pairs.tolist()])
            self.touched, self.least_touched = grids[inverse.ravel()].swapaxes(0, 1)

    #: attributes with one element for each shape
    by_shape: ClassVar[tuple[str, ...]] = (
        "tp", "ranks", "pp", "slots", "whole", "fewest", "stage_chips", "halved",
    )  # fmt: skip

    def take(self, rows: Ints) -> Self:
        """The passes of some of the shapes."""
        part = copy(self)
        part.rates = self.rates.take(rows)
        names = self.by_shape
        if self.experts is not None:
            names = (*names, "load", "least_load", "touched", "least_touched")
        for name in names:
            setattr(part, name, getattr(self, name)[rows])
        return part

    def pipeline(self, tokens: Tokens, exact_stages: bool) -> PipelineTime:
        """Times of one pass."""
        operations = self.instance.operations
        hop = np.where(
            self.pp > 1, self.pp * hand_off_s(operations, self.rates, tokens.rows, self.tp), 0.0
        )
        if self.halved.any():
            tokens = half(tokens, np.where(self.halved, 2.0, 1.0))
        rows = tokens.rows
        shares = self._least_shares(tokens)
        timed = self._timed(self.layers, tokens, shares, with_head=True)
        step = self.efficiency.step_overhead_s
        total = self._both_halves(timed) + step
        longest = total / self.pp
        if exact_stages:
            longest = np.maximum(longest, self._longest(tokens, rows, step))
        return PipelineTime(total, longest, hop)

    def _both_halves(self, timed: PassTime) -> Array:
        """Seconds of a pass from those of one half, where it runs in halves.

        No cut into stages takes less: what hides of sums over stages is no less than the sum of what hides on each.
        """
        total = timed.total_s(self.instance.profile.combination)
        if not self.halved.any():
            return total
        return np.where(self.halved, both_halves(total, timed.parts)[0], total)

    def _computed(self, timed: PassTime) -> Array:
        """Seconds at least of some of a stage's layers, so that they add up: of halves what both compute."""
        total = timed.total_s("per_op")
        if not self.halved.any():
            return total
        sent = sum(
            (timed.parts[part] for part in EXCHANGE if part in timed.parts), start=np.zeros(())
        )
        return np.asarray(np.where(self.halved, 2.0 * (total - sent), total))

    def _timed(
        self,
        layers: Sequence[tuple[LayerKind, float]],
        tokens: Tokens,
        shares: ExpertShares | None,
        *,
        with_head: bool,
    ) -> PassTime:
        return pass_time(
            ChipGroup.of(
                self.instance.operations, self.tp, self.ranks, self.chip, self.efficiency, self.rates,
                self.whole,
            ),
            layers, tokens, [shares if kind.moe else None for kind, _ in layers],
            with_head=with_head,
        )  # fmt: skip

    def _longest(self, tokens: Tokens, rows: Array, step_s: float) -> Array:
        """Longest stage at least: the best cut of whole layers, each as short as its kind's shortest.

        Of one shape whose layers are bounded one by one, each layer is as short as its own bound.
        """
        if self.instance.profile.combination != "per_op" or not np.any(self.pp > 1):
            return np.zeros(len(self.tp))
        order, layer_s, head_s = self._pieces(tokens, rows)
        found = np.zeros(len(self.tp))
        piped = self.pp > 1
        found[piped] = (
            shortest_longest_stage(
                [seconds[piped] for seconds in layer_s],
                order,
                head_s[piped],
                self.pp[piped],
                self.allowed,
            )
            + step_s / self.pp[piped]
        )
        return found

    def _pieces(self, tokens: Tokens, rows: Array) -> tuple[Sequence[int], list[Array], Array]:
        """What a pass is cut into: which of the seconds that follow each layer takes at least, and the head's."""
        if self.by_layer is not None:
            order: Sequence[int] = range(self.instance.operations.num_layers)
            layer_s = self._layer_by_layer(tokens)
        else:
            order = self.instance.operations.kind_of_layer()
            layer_s = self._kind_by_kind(tokens, rows)
        head = self._computed(self._timed([], tokens, None, with_head=True))
        return order, layer_s, np.broadcast_to(head, self.tp.shape)

    def on_one_cut(self, decode: Tokens, prefill: Tokens) -> Array:
        """Longest stages of both passes of one shape, in pairs ``[2, pairs]``; see :func:`longest_on_one_cut`."""
        layers, heads = [], []
        for tokens in (decode, prefill):
            order, layer_s, head_s = self._pieces(tokens, tokens.rows)
            layers.append([float(layer_s[place].item()) for place in order])
            heads.append(float(head_s.item()))
        stages = int(self.pp.item())
        pairs = longest_on_one_cut(np.array(layers), np.array(heads), stages, self.allowed)
        return pairs + self.efficiency.step_overhead_s / self.pp

    def _layer_by_layer(self, tokens: Tokens) -> list[Array]:
        """Least seconds of each layer of one shape."""
        shares, moe = self._least_shares(tokens), self.instance.operations.moe_layers
        row_of = {layer: row for row, layer in enumerate(moe)}
        found = [np.zeros(1)] * self.instance.operations.num_layers
        for kind, _ in self.layers:
            own = None
            if shares is not None and kind.moe:
                places = [row_of[layer] for layer in kind.layers]
                own = ExpertShares(
                    shares.load[0, places][:, None], shares.touched[0, places][:, None]
                )
            seconds = self._computed(self._timed([(kind, 1.0)], tokens, own, with_head=False))
            for layer, each in zip(
                kind.layers, np.broadcast_to(seconds, len(kind.layers)), strict=True
            ):
                found[layer] = np.array([each])
        return found

    def _kind_by_kind(self, tokens: Tokens, rows: Array) -> list[Array]:
        """Least seconds of a layer of each kind."""
        least = None
        if self.experts is not None:
            least = ExpertShares(
                self.least_load[:, None, None],
                self.experts.touched(self.least_touched, rows * self.ranks * tokens.fill)[
                    :, None, None
                ],
            )
        return [
            np.broadcast_to(
                self._computed(self._timed([(kind, 1.0)], tokens, least, with_head=False)),
                self.tp.shape,
            )
            for kind, _ in self.layers
        ]

    def _least_shares(self, tokens: Tokens) -> ExpertShares | None:
        """Bounds on the busiest chip; where they are taken together, of each layer those that take least time.

        A layer whose busiest load lies between two caps takes no less than with the lower one, beside what a chip then reads
        under the upper one.
        """
        routed = tokens.rows * self.ranks * tokens.fill
        shares = self._shares(routed)
        additive = self.instance.profile.combination == "per_op" and not self.halved.any()
        if shares is None or self.by_layer is None or not (self.traded and additive):
            return shares
        chips, slots = int(self.stage_chips[0]), int(self.slots[0])
        # of experts in order both are exact, and layers that share their slots have no number of them
        if self.experts is None or type(self.experts.whole) is not ExpertBounds or not slots:
            return shares
        plain = shares.touched[0, :, 0]
        loads = self.by_layer * _CAPS[:, None]
        tokens_in = float(routed[0])
        if tokens_in not in self._touched_under:
            self._touched_under[tokens_in] = touched_under(
                self.experts.whole, chips, slots, tokens_in, loads[1:]
            )
        under = self._touched_under[tokens_in]
        under = np.maximum(plain, np.concatenate([under, plain[None]]))
        none = np.isinf(under)
        under = np.where(none, plain, under)
        seconds = np.zeros(under.shape)
        for kind, _ in self.layers:
            if not kind.moe:
                continue
            own = [self.instance.operations.moe_layers.index(layer) for layer in kind.layers]
            load, touched = (two[:, own].reshape(-1, 1, 1) for two in (loads, under))
            each = ExpertShares(load, touched)
            found = self._computed(self._timed([(kind, 1.0)], tokens, each, with_head=False))
            seconds[:, own] = found.reshape(len(_CAPS), -1)
        seconds[none] = np.inf
        at = seconds.argmin(axis=0), np.arange(len(plain))
        return ExpertShares(loads[at][None, :, None], under[at][None, :, None])

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
