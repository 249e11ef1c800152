"""Times of passes of a small replica in CP-SAT, layer by layer; see :mod:`solver.place.small_replica.model`."""

from __future__ import annotations

from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from costmodel.experts.moe_load import touch_probability
from costmodel.passes.operations import LayerKind
from costmodel.passes.overlap import EXCHANGE, split_parts
from costmodel.passes.tokens import ExpertShares, Tokens, half, runs_in_halves
from solver.place.small_replica.prices import ReplicaPrices
from solver.scaling import TIME_UNIT_S, up

#: largest time (about a minute) and bytes in units; sums and fractions of them stay below 2**63
LONGEST = 2**46


class PassTimes:
    """Times in units, rounded up. ``u[layer, e, g, r]``: expert ``e`` is on chip ``g`` and has ``r`` replicas."""

    def __init__(
        self,
        model: cp_model.CpModel,
        prices: ReplicaPrices,
        u: dict[tuple[int, int, int, int], cp_model.IntVar],
    ):
        self.model, self.prices, self.u = model, prices, u
        overlap = prices.instance.scenario.two_batch_overlap
        self.halved = bool(runs_in_halves(overlap, prices.draft.shape.attention_dp))

    def of_pass(self, tokens: Tokens) -> Tokens:
        """What is priced of a pass: one half of it where it runs in two."""
        return half(tokens) if self.halved else tokens

    def head(self, tokens: Tokens) -> list[int]:
        """Time of what only the last stage runs."""
        return self._units(self.prices.head_parts(tokens))

    def _units(self, parts: dict[str, float]) -> list[int]:
        """Time in units, rounded up: one sum, or attention, experts, dispatch and combine of a half."""
        own = split_parts(parts) if self.halved else (sum(parts.values()),)
        return [up(float(seconds), TIME_UNIT_S) for seconds in own]

    def layer(self, kind: LayerKind, layer: int, tokens: Tokens) -> list[Any]:
        """Time of a layer in units, in as many sums as :meth:`together` takes: fixed operations, and the busiest chip."""
        shape = self.prices.draft.shape
        if kind.moe is None:
            return list(self._units(self.prices.parts(kind, tokens, None)))
        moe, model, chips = kind.moe, self.model, shape.chips_per_stage
        loads = self.prices.instance.expert_loads[kind.moe_rows[kind.layers.index(layer)]]
        rows = float(tokens.rows)
        # one chip's worth of load and of touched experts, and the exchange per unit of skew
        # (of routing as expected; what a pass's finitely many tokens add to either is the same for every placement)
        nothing = self.prices.parts(kind, tokens, ExpertShares(np.zeros((1, 1)), np.zeros((1, 1))))
        excess_s, beyond = self.prices.excess(kind, tokens)
        full = ExpertShares(np.ones((1, 1)), np.zeros((1, 1)))
        touched = ExpertShares(np.zeros((1, 1)), np.ones((1, 1)))
        load_s = self.prices.parts(kind, tokens, full)["routed_experts"]
        touch_s = self.prices.parts(kind, tokens, touched)["routed_experts"]
        moved_s, moved_beyond_s = self.prices.moved_s(kind, tokens)
        latency_s = self.prices.exchange_latency_s() / len(EXCHANGE)
        skew_s = [nothing[part] - latency_s for part in EXCHANGE]
        if not self.halved:
            skew_s = [sum(skew_s)]
        skewed = float(self.prices.rates.skewed)
        name = f"{layer},{rows:g},{float(tokens.fill):g}"
        excess = up(excess_s, TIME_UNIT_S)
        busiest = model.new_int_var(0, LONGEST, f"experts_time[{name}]")
        moving = model.new_int_var(0, LONGEST, f"experts_moving[{name}]")
        exchange = [
            model.new_int_var(up(own, TIME_UNIT_S), LONGEST, f"exchange_time[{name},{part}]")
            for part, own in enumerate(skew_s)
        ]
        for g in range(chips):
            loaded, reached, received, carried = [], [], [], []
            for e in range(moe.num_experts):
                for r in range(1, chips + 1):
                    here = self.u[layer, e, g, r]
                    share = float(loads[e]) / r
                    tokens_in_pass = rows * shape.attention_dp * tokens.fill
                    touch = float(
                        touch_probability(loads[e : e + 1], moe.top_k, tokens_in_pass, float(r))[0]
                    )
                    loaded.append(up(load_s * share, TIME_UNIT_S) * here)
                    carried.append(up(moved_s * share, TIME_UNIT_S) * here)
                    reached.append(up(touch_s * touch, TIME_UNIT_S) * here)
                    received.append((share * chips, here))
            model.add(busiest >= sum(loaded) + excess)
            model.add(moving >= sum(carried) + up(moved_beyond_s, TIME_UNIT_S))
            model.add(busiest >= sum(reached) + moving)
            for sent, own in zip(exchange, skew_s, strict=True):
                stretched_s = own * skewed
                moved = [up(stretched_s * share, TIME_UNIT_S) * here for share, here in received]
                model.add(sent >= sum(moved) + up(stretched_s * beyond, TIME_UNIT_S))
        fixed = nothing | dict.fromkeys(EXCHANGE, latency_s)
        if not self.halved:
            return [self._units(fixed)[0] + busiest + exchange[0]]
        rest, experts, dispatch, combine = self._units(fixed)
        return [rest, experts + busiest, dispatch + exchange[0], combine + exchange[1]]

    def together(self, times: list[Any]) -> Any:
        """Time of a stage from its parts: :func:`costmodel.passes.overlap.both_halves` where there are several."""
        if not self.halved:
            return times[0]
        rest, experts, dispatch, combine = times
        longer: list[Any] = []
        for computed in (rest, experts):
            for sent in (dispatch, combine):
                own = self.model.new_int_var(0, LONGEST, f"turn[{len(longer)}]")
                self.model.add(own >= computed)
                self.model.add(own >= sent)
                longer.append(own)
        return sum(longer)
