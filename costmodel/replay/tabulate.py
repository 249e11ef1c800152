"""The table of a replica's passes, from the cost model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costmodel.layout.layout import Layout, Replica
from costmodel.passes.communication import GroupRates
from costmodel.passes.tokens import Tokens
from costmodel.question.instance import Instance
from costmodel.replay.pass_table import PARTS, STEP, Line, PassParts, PassTable
from costmodel.replica.replica import all_hand_offs_s, replica_rates
from costmodel.replica.stage_times import StagePass, stage_times

Array = NDArray[np.float64]

#: numbers below which the cost model is asked for each, and points at which it is asked beyond; points for contexts
_EACH, _POINTS, _CONTEXTS = 160, 60, 120


@dataclass(frozen=True)
class _Asked:
    """Seconds of some passes ``[passes, stages]``: attention over contexts, experts, exchange, the others."""

    attended: Array
    routed: Array
    exchanged: Array
    others: Array

    @property
    def total(self) -> Array:
        return self.attended + self.routed + self.exchanged + self.others


@dataclass(frozen=True)
class _Model:
    """The cost model of one replica's passes."""

    instance: Instance
    layout: Layout
    replica: Replica
    rates: GroupRates

    def ask(self, passes: Sequence[Tokens], *, experts: bool = True) -> _Asked:
        timed = stage_times(
            self.instance,
            self.layout,
            [StagePass(self.replica, tokens, self.rates) for tokens in passes],
            experts=experts,
        )
        none = np.zeros(len(self.replica.stages))

        def of(*names: str) -> Array:
            return np.array([sum((one.parts.get(n, none) for n in names), none) for one in timed])

        attended, routed = of("attention_context"), of("routed_experts")
        exchanged = of("dispatch", "combine")
        total = np.array([one.total_s for one in timed])
        return _Asked(attended, routed, exchanged, total - attended - routed - exchanged)

    def attended(self, passes: Sequence[Tokens]) -> Array:
        """Attention of passes with unlike contexts, which cannot be priced together."""
        return np.vstack([self.ask([tokens], experts=False).attended for tokens in passes])


def pass_table(
    instance: Instance, layout: Layout, replica: Replica, *, longest: int, most_rows: int
) -> PassTable:
    """Ask the cost model for the parts of a replica's passes.

    ``longest``: tokens of the longest context. ``most_rows``: tokens of one rank in the largest pass.
    """
    model = _Model(instance, layout, replica, replica_rates(instance, replica))
    speculative = instance.speculative
    verified = 1.0 if speculative is None else 1.0 + speculative.draft_tokens
    ranks = replica.shape.attention_dp
    rows = _spaced(most_rows + 1, _EACH)
    end = float(rows[-1] + 1)  # prompts that end beyond the pass reach no head
    prompts = [Tokens(prefill=float(n), prefill_end=end) for n in rows]
    alone = model.ask([replace(one, fill=1.0 / (ranks * float(one.rows))) for one in prompts])
    totals = _spaced((most_rows + 1) * ranks, _EACH)
    routed = model.ask(
        [
            Tokens(prefill=max(n / ranks, 1.0), prefill_end=end, fill=min(n / ranks, 1.0))
            for n in totals
        ]
    ).routed
    decodes = model.ask(
        [Tokens(decode=n / verified, context=float(STEP), verified=verified) for n in rows]
    )
    contexts = _spaced(max(longest, STEP) + STEP, 1, _CONTEXTS)
    decode = model.attended(
        [Tokens(decode=1.0, context=float(n), verified=verified) for n in contexts]
    )
    prompt = model.attended([Tokens(prefill=float(n), prefill_end=float(n)) for n in contexts])
    latency = alone.exchanged[0]
    shares = (np.arange(PARTS) + 1.0) / PARTS
    filled = model.ask([replace(prompts[-1], fill=share) for share in shares]).exchanged - latency

    def parts(reduced: _Reduced) -> PassParts:
        least = reduced(alone.exchanged - latency)
        skew = np.ones(PARTS + 1)
        if (
            least[-1] > 0
        ):  # the busiest receiver stretches the exchange of some layers, not of others
            skew[1:] = np.maximum(reduced(filled) / least[-1], 1.0)
        plain = reduced(alone.others + latency)
        return PassParts(
            rows=_line(rows, plain, most_rows, plain[0]),
            routed=_line(totals, reduced(routed), most_rows * ranks, 0.0),
            exchanged=_line(rows, least, most_rows, 0.0),
            sampled=_line(rows, reduced(decodes.others - alone.others), most_rows, 0.0),
            decode=_line(contexts, reduced(decode), longest, None),
            prompt=_line(contexts, reduced(prompt), longest, 0.0),
            skew=_line(np.arange(PARTS + 1.0)[1:], skew[1:], PARTS, 1.0),
            ranks=ranks,
        )

    usual = model.ask([prompts[-1]]) if replica.role == "prefill" else decodes
    slowest = int(np.argmax(usual.total[-1]))
    hops = np.array([all_hand_offs_s(instance, replica, model.rates, float(n)) for n in rows])
    return PassTable(
        parts(_Reduced(None)), parts(_Reduced(slowest)), _line(rows, hops, most_rows, None),
        ranks, replica.shape.pp, verified, *(1.0, 0.0) if speculative is None else (speculative.emitted, speculative.spread),
    )  # fmt: skip


@dataclass(frozen=True)
class _Reduced:
    """Seconds of all stages together, or of one."""

    stage: int | None

    def __call__(self, column: Array) -> Array:
        return np.asarray(column.sum(axis=1) if self.stage is None else column[:, self.stage])


def _line(at: Array, values: Array, last: int, first: float | None) -> Line:
    """A line through points from 1 on; ``first`` is its value at 0 (``None``: that at the first point)."""
    start = values[0] if first is None else first
    return Line.through(np.concatenate([[0.0], at]), np.concatenate([[start], values]), last)


def _spaced(last: int, each_to: int, points: int = _POINTS) -> Array:
    """Whole numbers from 1 to ``last``: each one up to a number, and then farther and farther apart."""
    each = np.arange(1, min(each_to, last) + 1, dtype=float)
    beyond = np.geomspace(each_to, max(last, each_to + 1), points).round()
    return np.unique(np.concatenate([each, beyond[beyond <= last], [float(last)]]))
