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
from rackfit.documents.output import say, write_folder, write_whole
from rackfit.documents.result import SCHEMA_VERSION, Result, layout_dict
from rackfit.exporters.export import export_layout
from rackfit.exporters.launch.engine_limits import under_engine
from rackfit.importers.change import Change, Fuller, change_to, filled, placed_anew
from rackfit.importers.deployment import build_layout
from rackfit.importers.files import read_servers
from rackfit.quoting import shell_word
from rackfit.report.compare import built_words
from rackfit.wording import amount, at_most, some
from topology.errors import (
    ExportError,
    InstanceError,
    NoFeasibleLayout,
    NoLayoutInTime,
    on_command_line,
)

#: relative rise of throughput that a change of placement is named for
_WORTH = 1e-3


@dataclass(frozen=True)
class Running:
    """A running deployment, its price, and the best found in its place (if asked for)."""

    instance: Instance
    layout: Layout
    evaluation: Evaluation
    notes: tuple[str, ...]
    instead: Result | None = None
    nothing_instead: str = ""
    keep: Change | None = None
    nothing_kept: str = ""
    fuller: Fuller | None = None
    best: Change | None = None
    compared: bool = False

    @property
    def excess(self) -> float | None:
        """Relative excess of its $ per million output tokens over what Rackfit found."""
        now = self.evaluation.usd_per_m_output_tokens
        best = self.instead.evaluation.usd_per_m_output_tokens if self.instead else None
        return now / best - 1 if now and best else None

    @property
    def filled(self) -> Fuller | None:
        """What as many sequences as fit bring, where that is worth a word."""
        if self.fuller is None or not (self.fuller.mends or self.fuller.change.faster >= _WORTH):
            return None
        return self.fuller

    def as_dict(self) -> dict[str, Any]:
        """The published document."""
        data: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "instance": self.instance.describe(),
            "evaluation": self.evaluation.as_dict(),
            "layout": layout_dict(self.layout),
            "notes": list(self.notes),
            "words": [*verdict(self).splitlines(), *change_words(self)],
        }
        if self.keep is not None:
            data["keep"] = {"layout": layout_dict(self.keep.layout), **self.keep.as_dict()}
        if self.filled is not None:
            change = self.filled.change
            data["fuller"] = {"layout": layout_dict(change.layout), **change.as_dict()}
        if self.instead is not None:
            data["instead"] = {
                "excess": self.excess,
                "evaluation": self.instead.evaluation.as_dict(),
                "layout": layout_dict(self.instead.layout),
                "change": None if self.best is None else self.best.as_dict(),
            }
        return data


def evaluate_running(
    scenario: Scenario,
    engine: str,
    path: Path,
    *,
    balanced: bool = False,
    compare: bool = False,
    time_limit_s: float | None = None,
) -> Running:
    """Price the deployment that an engine's files describe.

    With ``compare`` the same question is solved too, within the limits of its engine where it names
    one and within ``time_limit_s``; ``nothing_instead`` says why that found no layout. Raises ``InstanceError`` for files that
    cannot be read.
    """
    asked = resolve_instance(scenario)
    instance = under_engine(asked, engine)
    servers = read_servers(engine, path)
    imported = build_layout(instance, servers, balanced=balanced)
    evaluation = evaluate(instance, imported.layout)
    # what runs does run: which layouts an engine takes is for the answer in its place
    judged = tuple(one for one in evaluation.violations if one.rule != "engine_runs")
    evaluation = replace(evaluation, violations=judged)
    instead, nothing = None, ""
    keep, not_kept, fuller, best = None, "", None, None
    if compare:
        running = (imported.layout, evaluation)
        anew, not_kept = placed_anew(instance, imported.layout)
        keep = None if anew is None else change_to(instance, running, anew, instance)
        fuller = filled(instance, running, servers, balanced=balanced)
        from rackfit.api import solve

        try:
            instead = solve(asked, time_limit_s=time_limit_s)
            best = change_to(instance, running, instead.layout, instead.instance)
        except (NoFeasibleLayout, NoLayoutInTime) as error:
            nothing = str(error)
    return Running(
        instance,
        imported.layout,
        evaluation,
        imported.notes,
        instead,
        nothing,
        keep,
        not_kept,
        fuller,
        best,
        compare,
    )


def price_running(
    scenario: Scenario,
    engine: str,
    path: Path,
    *,
    balanced: bool,
    compare: bool,
    out: Path | None,
    into: Path | None,
    as_json: bool,
    time_limit_s: float | None = None,
) -> bool:
    """Print the price of a running deployment, write the layouts of the change into a folder.

    Returns whether a rule is broken.
    """
    running = evaluate_running(
        scenario, engine, path, balanced=balanced, compare=compare, time_limit_s=time_limit_s
    )
    text = json.dumps(running.as_dict(), indent=1, allow_nan=False) + "\n"
    if out is not None:
        write_whole(text, out)
    if into is not None:
        write_folder(change_files(running), into)
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
    if compare:
        print("\n".join([*change_words(running), *_commands(running, engine, into)]))
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
        f"${amount(running.instead.evaluation.usd_per_m_output_tokens)} per million output tokens, "
        f"proven within {at_most(running.instead.certificate.gap, 3)} of {best}"
    )
    if running.excess <= 0:
        return f"Rackfit found nothing cheaper: {found}\n"
    return f"you pay {some(running.excess)} more than needed: Rackfit found {found}\n"


def change_files(running: Running) -> dict[str, str]:
    """``keep.json``, ``fuller.json`` and ``best.json``: what `rackfit export` makes launch files of."""
    found = {}
    changes = {
        "keep.json": (running.instance, running.keep),
        "fuller.json": (running.instance, running.filled.change if running.filled else None),
        "best.json": (running.instead.instance if running.instead else None, running.best),
    }
    for name, (instance, change) in changes.items():
        if instance is None or change is None:
            continue
        data = {
            "schema_version": SCHEMA_VERSION,
            "instance": instance.describe(),
            "evaluation": change.evaluation.as_dict(),
            "layout": layout_dict(change.layout),
        }
        found[name] = json.dumps(data, indent=1, allow_nan=False) + "\n"
    return found


def change_words(running: Running) -> list[str]:
    """The change in words: what to keep, what to load, what it brings; none where nothing was compared."""
    if not running.compared:
        return []
    if running.keep is None:
        found = [f"keep the servers: {running.nothing_kept or 'they have no price'}"]
    elif running.keep.faster < _WORTH:
        found = ["keep the servers and their expert placement: another brings under 0.1%"]
    else:
        found = [
            f"keep the servers ({built_words(running.layout)}) and load another expert placement: {running.keep.words()}"
        ]
    if running.filled is not None:
        met = "meets the targets, " if running.filled.mends else ""
        found.append(
            "keep the servers and let them run as many sequences as targets and HBM allow "
            f"({running.filled.words}): {met}{running.filled.change.words()}"
        )
    if running.best is not None:
        found.append(
            f"the best layout altogether ({built_words(running.best.layout)}): {running.best.words()}"
        )
    return found


def _commands(running: Running, engine: str, into: Path | None) -> list[str]:
    """How the layouts of the change become launch files."""
    worth = running.keep is not None and running.keep.faster >= _WORTH
    written = ["keep"] * worth + ["fuller"] * (running.filled is not None)
    written += ["best"] * (running.best is not None)
    if into is None:
        told = on_command_line("--into DIR writes these layouts for rackfit export")
        return [told] if written and told else []
    found = []
    for name in written:
        folder = str(into / name)
        if name == "best" and not _runs(running, engine):
            found.append(
                f"{engine} cannot run that one as it is; --engine {engine} asks for the best that it runs"
            )
            continue
        found.append(
            f"rackfit export {shell_word(folder + '.json')} --to {engine} --out {shell_word(folder)}"
        )
    return found


def _runs(running: Running, engine: str) -> bool:
    """Whether the engine's launch files can say the best layout."""
    assert running.instead is not None
    try:
        export_layout(running.instead.instance, running.instead.layout, engine)
    except (ExportError, InstanceError):
        return False
    return True
