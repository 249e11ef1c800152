"""A deployment that already runs, priced and printed; and what Rackfit would do instead."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.documents.output import say, write_whole
from rackfit.documents.result import SCHEMA_VERSION, Result, layout_dict
from rackfit.exporters.engine_limits import under_engine
from rackfit.importers.deployment import import_deployment
from topology.errors import NoFeasibleLayout, NoLayoutInTime


@dataclass(frozen=True)
class Running:
    """A running deployment, its price, and the best found in its place (if asked for)."""

    instance: Instance
    layout: Layout
    evaluation: Evaluation
    notes: tuple[str, ...]
    instead: Result | None = None
    nothing_instead: str = ""

    @property
    def excess(self) -> float | None:
        """Relative excess of its $ per million output tokens over what Rackfit found."""
        now = self.evaluation.usd_per_m_output_tokens
        best = self.instead.evaluation.usd_per_m_output_tokens if self.instead else None
        return now / best - 1 if now and best else None

    def as_dict(self) -> dict[str, Any]:
        """The published document."""
        data: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "instance": self.instance.describe(),
            "evaluation": self.evaluation.as_dict(),
            "layout": layout_dict(self.layout),
            "notes": list(self.notes),
        }
        if self.instead is not None:
            data["instead"] = {
                "excess": self.excess,
                "evaluation": self.instead.evaluation.as_dict(),
                "layout": layout_dict(self.instead.layout),
            }
        return data


def evaluate_running(
    scenario: Scenario, engine: str, path: Path, *, balanced: bool = False, compare: bool = False
) -> Running:
    """Price the deployment that an engine's files describe.

    With ``compare`` the same question is solved too, within the limits of its engine where it names
    one; ``nothing_instead`` says why that found no layout. Raises ``InstanceError`` for files that
    cannot be read.
    """
    asked = resolve_instance(scenario)
    instance = under_engine(asked, engine)
    imported = import_deployment(instance, engine, path, balanced=balanced)
    evaluation = evaluate(instance, imported.layout)
    # what runs does run: which layouts an engine takes is for the answer in its place
    judged = tuple(one for one in evaluation.violations if one.rule != "engine_runs")
    evaluation = replace(evaluation, violations=judged)
    instead, nothing = None, ""
    if compare:
        from rackfit.api import solve

        try:
            instead = solve(asked)
        except (NoFeasibleLayout, NoLayoutInTime) as error:
            nothing = str(error)
    return Running(instance, imported.layout, evaluation, imported.notes, instead, nothing)


def price_running(
    scenario: Scenario,
    engine: str,
    path: Path,
    *,
    balanced: bool,
    compare: bool,
    out: Path | None,
    as_json: bool,
) -> bool:
    """Print the price of a running deployment. Returns whether a rule is broken."""
    running = evaluate_running(scenario, engine, path, balanced=balanced, compare=compare)
    text = json.dumps(running.as_dict(), indent=1, allow_nan=False) + "\n"
    if out is not None:
        write_whole(text, out)
    for note in running.notes:
        say(f"note: {note}")
    if as_json:
        write_whole(text, None)
        return bool(running.evaluation.violations)
    from rackfit.report.render import print_evaluation, print_instead

    print_evaluation(running.instance, running.layout, running.evaluation, title="What is deployed")
    if running.instead is not None:
        print_instead(running.instead)
    print(verdict(running), end="")
    return bool(running.evaluation.violations)


def verdict(running: Running) -> str:
    """What the deployment costs against the best found, as a line; empty if not compared."""
    if running.nothing_instead:
        but = ", though this one fits" if running.evaluation.feasible else ""
        return f"Rackfit found no layout in its place{but}: {running.nothing_instead}\n"
    if running.instead is None or running.excess is None:
        return ""
    engine = running.instead.instance.engine
    best = "optimal" if engine is None else f"the best that {engine.title} runs"
    found = (
        f"${running.instead.evaluation.usd_per_m_output_tokens:.4f} per million output tokens, "
        f"proven within {max(running.instead.certificate.gap, 1e-5):.3%} of {best}"
    )
    if running.excess <= 0:
        return f"Rackfit found nothing cheaper: {found}\n"
    return f"you pay {running.excess:.1%} more than needed: Rackfit found {found}\n"
