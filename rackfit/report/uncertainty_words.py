"""The ranges of figures and the runner-up in words."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.layout.layout import Shape
from costmodel.question.choices.options import value_words
from costmodel.question.uncertainty import Ends, Intervals
from rackfit.documents.distance import measured_distance
from rackfit.documents.result import Result, for_traffic, replica_counts
from rackfit.report.traffic_words import traffic_lines
from rackfit.wording import amount, at_least, by_how_much
from solver.answer import Chosen
from solver.choices import values_words


def interval_words(intervals: Intervals) -> str:
    """The ends of the figures that are printed."""
    parts = [f"TPOT {_ends(intervals.tpot_s, 1e3)} ms"]
    if intervals.ttft_s is not None:
        parts.append(f"TTFT {_ends(intervals.ttft_s, 1e3)} ms at worst")
    if intervals.output_tokens_per_s is not None:
        low, high = intervals.output_tokens_per_s
        # a rate that is asked for and met at both ends is no range
        same = f"{_number(low)} output tokens/s, as asked for,"
        parts.append(
            f"{same} at either end"
            if low == high
            else f"{_ends(intervals.output_tokens_per_s)} output tokens/s"
        )
    if intervals.usd_per_m_output_tokens is not None:
        low, high = intervals.usd_per_m_output_tokens
        ends = f"${amount(low)}" if low == high else f"${amount(low)} to ${amount(high)}"
        parts.append(f"{ends} per million output tokens")
    return "; ".join(parts)


def lines_beside(result: Result) -> list[str]:
    """What is said beside an answer: its traffic, its runner-up, the engines, what was measured."""
    parts = (worlds_lines, runner_up_lines, engine_lines, choice_lines, measured_lines)
    said = [line for part in parts for line in part(result)]
    return [*traffic_lines(for_traffic(result.search.traffic)), *said]


def worlds_lines(result: Result) -> list[str]:
    """What the answer costs at the confidence asked for, and what the cheapest at the fitted parameters costs there."""
    found = result.search.worlds
    if found is None or found.confidence is None:
        return []
    cost, plain = found.usd_per_m_output_tokens, found.plain_usd_per_m_output_tokens
    bound = found.bound_usd_per_m_output_tokens
    assert bound is not None, "a confidence that is asked for is bounded"
    share = (
        f"{found.confidence:.0%} of {len(found.best)} parameter sets that the measurements allow"
    )
    lines = [
        f"in {share}: at most ${amount(cost)} per million output tokens with every target met. At best "
        f"${at_least(bound)} is possible. Targets are met in {found.share_kept:.0%} of the sets; in "
        f"{found.share_close:.0%} this layout costs at most 1% more than the best found."
    ]
    if plain is not None and plain > (cost or 0.0):
        other = "misses a target" if plain == float("inf") else f"costs ${amount(plain)}"
        lines.append(
            f"the layout that is cheapest at the fitted parameters {other} at this confidence"
        )
    return lines


def runner_up_lines(result: Result) -> list[str]:
    """What the best layout without the main shape is, and whether the difference is within the noise."""
    other, compared = result.search.runner_up, result.comparison
    if other is None or compared is None:
        return []
    experts = result.instance.operations.moe is not None
    replicas = ", ".join(
        f"{count} {role} tp {shape.tp}"
        + (_experts_words(shape) if experts else "")
        + (f" pp {shape.pp}" if shape.pp > 1 else "")
        for (role, shape), count in replica_counts(other.layout).items()
    )
    least = other.least_usd_per_m_output_tokens
    proven = "" if least is None else f" No such layout costs less than ${at_least(least)}."
    first = (
        f"next best without {other.without.words(experts=experts)}: "
        f"${amount(other.evaluation.usd_per_m_output_tokens)}, {by_how_much(compared.excess, 2)}, with "
        f"{replicas}.{proven}"
    )
    if compared.noise is None or compared.turned is None or compared.confidence is None:
        return [
            first,
            f"profile {result.instance.profile.name} was not compared with measurements: the error of "
            "this difference is not known",
        ]
    verdict = "is smaller than" if compared.within_noise else "exceeds"
    second = (
        f"this difference {verdict} the model's error: for {compared.confidence:.0%} of measured pairs of "
        f"layouts the predicted ratio of costs is within {compared.noise:.0%} of the measured one. For "
        f"{compared.turned:.0%} of the pairs the error would reverse this order."
    )
    return [first, second]


def _experts_words(shape: Shape) -> str:
    """How the experts of a replica lie: over so many chips, whole or each cut."""
    cut = shape.ep == 1 < shape.chips_per_stage
    return f" experts cut over {shape.chips_per_stage}" if cut else f" ep {shape.ep}"


def measured_lines(result: Result) -> list[str]:
    """What nobody measured of the answer, and what staying within what was measured costs."""
    absent = measured_distance(result.instance, result.layout)["not_measured"]
    if any(replica.apart is not None for replica in result.layout.replicas):
        absent = [*absent, "experts apart"]
    here = result.evaluation.usd_per_m_output_tokens
    within = result.within_measured_usd_per_m_output_tokens
    if not absent and within is not None and within == here:
        return ["every kind of replica of this answer was measured"]
    said = [f"not measured of this answer: {', '.join(absent)}."] if absent else []
    if result.search.traffic is None:  # for requests over time it is not looked for
        # no run with experts apart was measured: even a question for nothing else is asked without
        other = ", with experts beside attention," if result.instance.scenario.apart else ""
        said.append(
            "No layout within what was measured was found."
            if within is None or here is None
            else f"${amount(within)}{other} within what was measured, ${amount(here)} beyond."
        )
    return [" ".join(said)] if said else []


def engine_lines(result: Result) -> list[str]:
    """What each engine alone costs, cheapest first, where the engine was a choice."""
    if not result.search.engines:
        return []
    chosen = result.instance.scenario.engine
    lines = []
    for one in sorted(
        result.search.engines,
        key=lambda one: (one.usd_per_m_output_tokens is None, one.usd_per_m_output_tokens or 0.0),
    ):
        if one.usd_per_m_output_tokens is None:
            lines.append(f"{one.label} alone: nothing ({one.reason})")
            continue
        here = " (this answer)" if one.engine == chosen else ""
        lines.append(
            f"{one.label} alone: ${amount(one.usd_per_m_output_tokens)}, at least "
            f"${at_least(one.bound_usd_per_m_output_tokens)}, {one.wall_s:.1f} s{here}"
        )
    return lines


def choice_lines(result: Result) -> list[str]:
    """What was chosen, and what each other value of an option costs at best, whatever the other options."""
    every = result.search.choices
    if not every:
        return []
    best = min(every, key=lambda one: one.usd_per_m_output_tokens or float("inf"))
    lines = [f"chosen: {values_words(best.values)}"]
    for name, chosen in best.values.items():
        others = dict.fromkeys(one.values[name] for one in every if one.values[name] != chosen)
        told = [
            f"{value_words(name, value)} {_least([one for one in every if one.values[name] == value])}"
            for value in others
        ]
        if told:
            lines.append(f"{name} {value_words(name, chosen)} (this answer); {'; '.join(told)}")
    return lines


def _least(those: Sequence[Chosen]) -> str:
    """The least cost found among some combinations, and what none of them costs less than."""
    costs = [c for one in those if (c := one.usd_per_m_output_tokens) is not None]
    bound = min(one.bound_usd_per_m_output_tokens for one in those)
    if bound == float("inf"):
        return f"fits nothing ({those[0].reason})"
    found = f"${amount(min(costs))}, " if costs else ""
    return f"{found}at least ${at_least(bound)}"


def _ends(ends: Ends, scale: float = 1.0) -> str:
    return " to ".join(_number(scale * value) for value in ends)


def _number(value: float) -> str:
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"
