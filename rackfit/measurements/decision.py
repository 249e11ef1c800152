"""What own measurements change in a decision: the best layout before and after, and what it gains on what runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import resolve_instance
from costmodel.question.profile import Profile
from costmodel.question.scenario import Scenario
from rackfit.exporters.launch.engine_limits import under_engine
from rackfit.importers.deployment import import_deployment
from rackfit.report.compare import built
from rackfit.wording import amount, by_how_much, some
from topology.errors import NoFeasibleLayout, NoLayoutInTime


@dataclass(frozen=True)
class Decision:
    """Best layouts under the former and the own profile; ``kept``: the former best under the own profile.
    ``same``: both have as many replicas of each role and widths; ``runs``: what is deployed under either profile. ``None``: there is no such layout, or none was given.
    """

    before: Evaluation | None
    after: Evaluation | None
    kept: Evaluation | None
    same: bool
    runs: tuple[Evaluation, Evaluation] | None = None

    def lines(self) -> list[str]:
        """In words."""
        if self.before is None or self.after is None or self.kept is None:
            had, has = (
                "an answer" if one is not None else "no answer" for one in (self.before, self.after)
            )
            return [f"the question had {had} under the former profile and has {has} under this one"]
        was, now, kept = (_usd(one) for one in (self.before, self.after, self.kept))
        if self.same:
            found = [
                f"the same layout stays best: ${amount(now)} per million output tokens, not ${amount(was)}"
            ]
        else:
            found = [
                f"another layout becomes best: ${amount(now)} per million output tokens; the former best was thought to "
                f"cost ${amount(was)}"
            ]
            if self.kept.violations:
                found.append(f"the former best now breaks {self.kept.violations[0].rule}")
            else:
                found.append(
                    f"the former best costs ${amount(kept)} now, {by_how_much(kept / now - 1)}"
                )
        if self.runs is not None:
            old, new = (_usd(one) for one in self.runs)
            found.append(
                f"against what runs it saves {_saved(new, now)}, not {_saved(old, was)}"
                if self.same
                else f"against what runs it saves {_saved(new, now)}; the former best was thought to save "
                f"{_saved(old, was)}"
            )
        return found


def _usd(one: Evaluation) -> float:
    assert one.usd_per_m_output_tokens is not None
    return one.usd_per_m_output_tokens


def _saved(runs: float, best: float) -> str:
    share = 1 - best / runs
    return some(share) if share >= 0 else f"nothing: the best found costs {by_how_much(-share)}"


def decide(
    scenario: Scenario, profile: Profile, engine: str | None = None, running: Path | None = None
) -> Decision:
    """Solve a question under its own profile and under another. Raises ``InstanceError``."""
    from rackfit.api import solve

    former = resolve_instance(scenario)
    named = former.scenario.engine
    own = profile if named is None else profile.of_engine(named.partition("@")[0])
    later = replace(former, profile=own.routed_as(former.workload.expert_load))
    layouts: list[Layout | None] = []
    for question in (former, later):
        try:
            layouts.append(solve(question).layout)
        except (NoFeasibleLayout, NoLayoutInTime):
            layouts.append(None)
    first, second = layouts
    runs = None
    if engine is not None and running is not None:
        asked = under_engine(former, engine)
        deployed = import_deployment(asked, engine, running).layout
        priced = (evaluate(asked, deployed), evaluate(under_engine(later, engine), deployed))
        if all(one.usd_per_m_output_tokens is not None for one in priced):
            runs = priced
    return Decision(
        None if first is None else evaluate(former, first),
        None if second is None else evaluate(later, second),
        None if first is None else evaluate(later, first),
        first is not None and second is not None and built(first) == built(second),
        runs,
    )
