"""The judge's word on what a search claims, and on which of two answers is better."""

from __future__ import annotations

from costmodel.evaluate import Evaluation
from costmodel.question.instance import Instance
from topology.errors import VerificationError

#: the evaluator may differ from the solver's own sums by this much, relatively
ROUNDING = 1e-6


def verify(instance: Instance, cost: float, evaluation: Evaluation) -> float:
    """Cost of the chips by the evaluator. Raises ``VerificationError`` where it contradicts the solver's."""
    if evaluation.violations:
        listed = "; ".join(str(violation) for violation in evaluation.violations[:3])
        raise VerificationError(f"the evaluator rejects the solver's layout: {listed}")
    assert evaluation.usd_per_m_output_tokens is not None
    assert evaluation.usd_per_hour is not None
    chips = (
        1.0 - evaluation.tiers_usd_per_hour / evaluation.usd_per_hour
    )  # rent is no part of a search
    judged = evaluation.usd_per_m_output_tokens * chips / usd_per_m_output(instance)
    if judged > cost * (1 + ROUNDING):
        raise VerificationError(
            f"the evaluator finds a cost {judged / cost - 1:.3%} above what the solver claimed"
        )
    return judged


def usd_per_m_output(instance: Instance) -> float:
    """$/M output tokens of one dollar per hour and (request per second)."""
    factor = instance.scenario.prices.chip_price_factor
    return factor / 3600.0 / instance.workload.output_tokens * 1e6


def better(one: Evaluation, other: Evaluation | None) -> bool:
    """Whether one answer is the better: cheaper; as dear, and serving more; then lower TTFT, then lower TPOT.

    Figures within rounding of each other are equal.
    """
    if other is None:
        return True
    for lower, higher in zip(_ranked(one), _ranked(other), strict=True):
        if lower < higher - ROUNDING * abs(higher):
            return True
        if lower > higher + ROUNDING * abs(higher):
            return False
    return False


def _ranked(evaluation: Evaluation) -> tuple[float, ...]:
    """What decides between two answers, each the lower the better."""
    cost = evaluation.usd_per_m_output_tokens
    return (
        float("inf") if cost is None else cost,
        -evaluation.priced.requests_per_s,
        evaluation.ttft_s or 0.0,
        evaluation.tpot_s or 0.0,
    )
