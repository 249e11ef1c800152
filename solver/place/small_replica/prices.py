"""Seconds of one small replica, by the cost model's own passes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel.layout.layout import Replica
from costmodel.passes.communication import GroupRates, hand_off_s
from costmodel.passes.group import ChipGroup
from costmodel.passes.operations import LayerKind
from costmodel.passes.pass_time import pass_time
from costmodel.passes.routed import excess_tokens
from costmodel.passes.tokens import ExpertShares, Tokens
from costmodel.question.instance import Instance
from costmodel.question.profile import Efficiency
from topology import Chip


@dataclass(frozen=True)
class ReplicaPrices:
    """What passes of one replica cost whose stages all have ``rates`` and the same type of chip."""

    instance: Instance
    draft: Replica
    chip: Chip
    efficiency: Efficiency
    rates: GroupRates

    @cached_property
    def group(self) -> ChipGroup:
        """The chips of a stage."""
        shape = self.draft.shape
        return ChipGroup.of(
            self.instance.operations, shape.tp, shape.attention_dp, self.chip, self.efficiency,
            self.rates,
        )  # fmt: skip

    @cached_property
    def quiet(self) -> ChipGroup:
        """The same where a pass's tokens fall on the chips as expected."""
        shape = self.draft.shape
        return ChipGroup.of(
            self.instance.operations, shape.tp, shape.attention_dp, self.chip,
            self.efficiency.model_copy(update={"routing_noise": 0.0}), self.rates,
        )  # fmt: skip

    def parts(
        self, kind: LayerKind, tokens: Tokens, shares: ExpertShares | None
    ) -> dict[str, float]:
        """Seconds of one layer of a kind, by operation, where tokens fall as expected."""
        timed = pass_time(self.quiet, [(kind, 1.0)], tokens, [shares], with_head=False)
        return {part: float(seconds) for part, seconds in timed.parts.items()}

    def excess(self, kind: LayerKind, tokens: Tokens) -> tuple[float, float]:
        """Seconds of the tokens that the busiest chip has beyond its expected share, and these over the mean share."""
        assert kind.moe is not None
        nothing = ExpertShares(np.zeros((1, 1)), np.zeros((1, 1)))
        timed = pass_time(self.group, [(kind, 1.0)], tokens, [nothing], with_head=False)
        shape, moe = self.draft.shape, kind.moe
        sent = float(tokens.rows) * shape.attention_dp * moe.top_k
        met, chips = np.asarray(float(tokens.fill) * sent), shape.chips_per_stage
        noise = self.efficiency.routing_noise
        excess = float(excess_tokens(met, np.asarray(float(chips)), noise))
        return float(timed.parts["routed_experts"]), excess * chips / max(sent, 1e-300)

    def moved_s(self, kind: LayerKind, tokens: Tokens) -> tuple[float, float]:
        """Seconds that a chip moves what all routed tokens leave between kernels, and what those beyond its share leave.

        They add to whichever of arithmetic and reads takes longer.
        """
        ones, none = np.ones((1, 1)), np.zeros((1, 1))

        def seconds(group: ChipGroup, load: NDArray[np.float64]) -> float:
            shares = ExpertShares(load, none)
            timed = pass_time(group, [(kind, 1.0)], tokens, [shares], with_head=False, record=True)
            return sum(
                float(one.memory_s)
                for one in timed.terms or ()
                if one.part == "routed_experts" and one.stream == "activations"
            )

        return seconds(self.quiet, ones), seconds(self.group, none)

    def head_parts(self, tokens: Tokens) -> dict[str, float]:
        """Seconds of what only the last stage runs, by operation."""
        timed = pass_time(self.group, [], tokens, [])
        return {part: float(seconds) for part, seconds in timed.parts.items()}

    def exchange_latency_s(self) -> float:
        """Latency of a layer's dispatch and combine."""
        if self.draft.shape.attention_dp == 1:
            return 0.0
        return 2.0 * float(self.rates.dispatch_latency_s)

    def hop_s(self, tokens: Tokens) -> float:
        """Seconds that a pass spends between stages."""
        shape = self.draft.shape
        if shape.pp == 1:
            return 0.0
        hop = hand_off_s(self.instance.operations, self.rates, float(tokens.rows), shape.tp)
        return shape.pp * float(hop)
