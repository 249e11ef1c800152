"""One question asked from end to end, and everything that must hold of its answer.

solve -> evaluate the written document -> export -> import -> evaluate; layouts around the answer and those of
other questions against its bound; the relations of :mod:`benchmarks.hunt.variants`.
"""

from __future__ import annotations

import io
import json
import math
import time
from collections.abc import Iterable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from random import Random

from benchmarks.hunt.neighbours import elsewhere, neighbours
from benchmarks.hunt.outcome import ROUNDING, Outcome, differing
from benchmarks.hunt.questions import Question, draw_question
from benchmarks.hunt.variants import Variant, draw_variants, unlimited_nics
from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import load_scenario
from rackfit.api import solve
from rackfit.documents.result import Result, read_result
from rackfit.exporters.export import export_layout, write_files
from rackfit.exporters.launch.engine_limits import under_engine
from rackfit.importers.deployment import import_deployment
from rackfit.importers.files import ENGINES
from rackfit.report.render import print_evaluation, print_result
from rackfit.report.report import report_page
from solver.answer import SearchResult
from solver.clock import Clock
from solver.explain.conflicts import explain_conflict
from solver.search import search
from topology.errors import (
    ExportError,
    InstanceError,
    NoFeasibleLayout,
    NoLayoutInTime,
)

#: a question that takes longer is a fault, seconds
LONGEST_S = 60.0
#: refusals that a drawn question may meet
REFUSALS = ("has no usable chip", "does not run on", "does not serve", "has no class for")
_TARGETS = ("sglang", "vllm", "trtllm", "vllm-ascend", "dynamo", "slurm", "json", "dot", "graphml")
_FIGURES = ("usd_per_m_output_tokens", "output_tokens_per_s", "ttft_s", "tpot_s", "chips_used")


def ask(seed: int, folder: Path, *, time_limit_s: float = 20.0, gap: float = 0.01) -> Outcome:
    """Draw the question of a seed, ask it, and check all that follows. Files go under ``folder``."""
    outcome = Outcome(seed)
    started = time.perf_counter()
    with outcome.guarded("hunt"):
        question = draw_question(seed, folder)
        instance = resolve_instance(load_scenario(str(question.write(folder))))
        Asker(outcome, folder, time_limit_s, gap).run(question, instance)
    if not outcome.answer:
        _refused(outcome)
    outcome.wall_s = time.perf_counter() - started
    return outcome


def _refused(outcome: Outcome) -> None:
    """A question that was refused before it was asked: fine for a few reasons only."""
    outcome.answer = "refused"
    told = [one["detail"] for one in outcome.failures]
    if all("InstanceError" in text and any(w in text for w in REFUSALS) for text in told):
        outcome.failures.clear()


class Asker:
    """Checks of one question; faults go to its outcome."""

    def __init__(self, outcome: Outcome, folder: Path, time_limit_s: float, gap: float):
        self.outcome = outcome
        self.folder = folder
        self.time_limit_s = time_limit_s
        self.gap = gap

    def run(self, question: Question, instance: Instance) -> None:
        """Solve, then check."""
        started = time.perf_counter()
        result = self._solve(instance)
        self.outcome.solve_s = time.perf_counter() - started
        if self.outcome.solve_s > LONGEST_S:
            self.outcome.fail("over 60 s", f"{self.outcome.solve_s:.1f} s")
        if result is None:
            if self.outcome.answer == "infeasible" and question.seed % 10 == 0:
                with self.outcome.guarded("explain"), suppress(NoLayoutInTime):
                    if explain_conflict(instance, clock=Clock(10.0)) is None:
                        self.outcome.fail("contradiction", "explain finds a layout, solve none")
            if self.outcome.answer in ("infeasible", "not found"):
                self._binding(question, instance, None)
                self._variants(question, instance, None, (), count=1)
            return
        with self.outcome.guarded("document"):
            self._document(instance, result)
        with self.outcome.guarded("bound"):
            self._bound(instance, result)
        with self.outcome.guarded("export"):
            self._export(question, instance, result)
        self._binding(question, instance, result)
        used = {
            instance.cluster.chip(chip).domain for r in result.layout.replicas for chip in r.chips
        }
        idle = set(range(len(question.cluster.domains))) - used
        self._variants(question, instance, result.search, idle, count=2)

    def _solve(self, instance: Instance) -> Result | None:
        outcome = self.outcome
        try:
            result = solve(
                instance, time_limit_s=self.time_limit_s, gap=self.gap, seed=0, workers=1
            )
        except NoFeasibleLayout as error:
            outcome.answer = "infeasible" if error.proven else "not found"
            return None
        except NoLayoutInTime:
            outcome.answer = "no layout in time"
            return None
        except InstanceError:
            raise
        except Exception:
            outcome.answer = "fault"
            raise
        outcome.answer = result.status
        outcome.cost = result.evaluation.usd_per_m_output_tokens
        outcome.bound = result.certificate.bound_usd_per_m_output_tokens
        outcome.gap = result.certificate.gap
        return result

    def _document(self, instance: Instance, result: Result) -> None:
        """The written document is read back to the same question, the same figures and no violation."""
        path = self.folder / "answer.json"
        result.write(path)
        again, layout, document = read_result(path)
        if again.digest != instance.digest:
            self.outcome.fail("figures move", "the instance of the document has another digest")
        judged = evaluate(again, layout)
        if judged.violations:
            self.outcome.fail("figures move", f"violations: {judged.violations[0]}")
        now = json.loads(json.dumps(judged.as_dict()))
        if changed := differing(document["evaluation"], now):
            self.outcome.fail("figures move", f"evaluated again: {changed}")
        if self.outcome.seed % 5 == 0:
            with redirect_stdout(io.StringIO()):
                print_result(result)
                print_evaluation(again, layout, judged)
            report_page(instance, result.layout, result.evaluation, result.as_dict())

    def _bound(self, instance: Instance, result: Result) -> None:
        """Neither the answer, its runner-up nor a layout around it is cheaper than the bound."""
        cost, bound = self.outcome.cost, self.outcome.bound
        assert cost is not None
        assert bound is not None
        if not math.isclose(cost / bound - 1, result.certificate.gap, abs_tol=1e-6):
            self.outcome.fail("contradiction", f"gap {result.certificate.gap} of {cost} on {bound}")
        self.against(instance, result.layout, bound, "the answer")
        other = result.search.runner_up
        if other is not None:
            self.against(instance, other.layout, bound, "the runner-up", must_fit=True)
        others = elsewhere(instance.cluster, result.layout, Random(self.outcome.seed))
        for words, layout in (*neighbours(result.layout), *others):
            self.against(instance, layout, bound, words)

    def against(
        self,
        instance: Instance,
        layout: Layout,
        bound: float,
        words: str,
        *,
        must_fit: bool = False,
    ) -> float | None:
        """Judge a layout; a feasible one must not cost less than the bound. Its cost, if feasible."""
        judged = evaluate(instance, layout)
        if judged.violations:
            if must_fit:
                self.outcome.fail("contradiction", f"{words}: {judged.violations[0]}")
            return None
        cost = judged.usd_per_m_output_tokens
        assert cost is not None
        if cost < bound * (1 - ROUNDING):
            self.outcome.fail("bound beaten", f"{words}: {cost:.8g} under {bound:.8g}")
        return cost

    def _export(self, question: Question, instance: Instance, result: Result) -> None:
        """What an engine can run is exported; what was exported is read back to the same figures."""
        target = instance.scenario.engine or _TARGETS[question.seed % len(_TARGETS)]
        try:
            exported = export_layout(instance, result.layout, target)
        except ExportError as error:
            if instance.scenario.engine is not None:
                self.outcome.fail("export", f"{target}, whose engine was asked for: {error}")
            try:
                exported = export_layout(instance, result.layout, target, allow_approximate=True)
            except ExportError:
                return
        out = self.folder / "launch"
        write_files(exported.files, out)
        if target not in ENGINES:
            return
        instance = under_engine(instance, target)
        layout = import_deployment(instance, target, out).layout
        judged = evaluate(instance, layout)
        for name in _FIGURES:
            now, then = getattr(judged, name), getattr(exported.deployed, name)
            if now is None or not math.isclose(now, then, rel_tol=1e-6):
                self.outcome.fail("import", f"{target}: {name} {now} instead of {then}")

    def _binding(self, question: Question, instance: Instance, result: Result | None) -> None:
        """Whether an uplink binds: the same question with unlimited NICs is cheaper."""
        if question.cluster.scale_out is None or len(question.cluster.domains) < 2:
            return
        variant = unlimited_nics(question)
        with self.outcome.guarded(variant.name):
            found = self._variant(variant, instance, result.search if result else None)
            if found is None:
                return
            free = found.evaluation.usd_per_m_output_tokens
            cost, bound = self.outcome.cost, self.outcome.bound
            assert free is not None
            if bound is None or cost is None:
                self.outcome.binding = "proven" if self.outcome.answer == "infeasible" else "found"
            elif free < bound * (1 - ROUNDING):
                self.outcome.binding = "proven"
            elif free < cost / (1 + self.gap):
                self.outcome.binding = "found"

    def _variants(
        self, question: Question, instance: Instance, base: SearchResult | None,
        idle: Iterable[int], count: int,
    ) -> None:  # fmt: skip
        for variant in draw_variants(question, idle, count):
            with self.outcome.guarded(variant.name):
                self._variant(variant, instance, base)

    def _variant(
        self, variant: Variant, instance: Instance, base: SearchResult | None
    ) -> SearchResult | None:
        """Solve a variant and hold both answers against both bounds."""
        path = variant.question.write(self.folder / variant.name.replace(" ", "-"))
        other = resolve_instance(load_scenario(str(path)))
        self.outcome.relations += 1
        try:
            found = search(other, clock=Clock(self.time_limit_s), gap=self.gap)
        except NoFeasibleLayout as error:
            if base is not None:
                self._only_here(variant, other, base, str(error), proven=error.proven)
            return None
        except NoLayoutInTime:
            return None
        bound = found.certificate.bound_usd_per_m_output_tokens
        if base is not None:
            self.against(
                other, variant.here(base.layout), bound,
                f"{variant.name}: the question's answer there", must_fit=True,
            )  # fmt: skip
            self._fits_back(variant, instance, found, base)
        elif variant.exact or not evaluate(instance, variant.back(found.layout)).violations:
            self.outcome.fail(
                "contradiction", f"{variant.name}: its answer fits, and none was found"
            )
        return found

    def _only_here(
        self, variant: Variant, other: Instance, base: SearchResult, why: str, *, proven: bool
    ) -> None:
        said = "nothing fits" if proven else "none found"
        judged = evaluate(other, variant.here(base.layout))
        fits = "fits there" if not judged.violations else f"breaks {judged.violations[0]}"
        self.outcome.fail(
            "contradiction", f"{variant.name}: {said} ({why[:120]}); the answer {fits}"
        )

    def _fits_back(
        self, variant: Variant, instance: Instance, found: SearchResult, base: SearchResult
    ) -> None:
        """The variant's answer, where it is a layout of the question too, is not below its bound."""
        bound = base.certificate.bound_usd_per_m_output_tokens
        layout = variant.back(found.layout)
        if all(chip in instance.cluster for replica in layout.replicas for chip in replica.chips):
            self.against(
                instance, layout, bound, f"{variant.name}: its answer here", must_fit=variant.exact
            )
