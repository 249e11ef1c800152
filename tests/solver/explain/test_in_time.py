"""An explanation that its time ends says what it knows by then, and what it did not look at."""

from __future__ import annotations

import json
import time
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.cli.app import build_app
from solver.answer import SearchResult
from solver.clock import Clock
from solver.explain.conflicts import Conflict
from topology.errors import NoFeasibleLayout, NoLayoutInTime


def impossible() -> Instance:
    """Two targets that one node misses, each by itself."""
    return resolve_instance(
        Scenario.model_validate(
            {
                "model": "llama-3.1-8b",
                "cluster": "hgx-h100",
                "workload": {"input_tokens": 2000, "output_tokens": 500},
                "limits": {"max_pipeline_stages": 2, "max_domains_per_replica": 2},
                "slo": {"tpot": 1e-3, "ttft": 1e-3},
            }
        )
    )


class Ended(Conflict):
    """One whose time ends with a given solve."""

    last = 10**6
    #: what the search said of each question: explanations that end early ask the same ones
    said: ClassVar[dict[str, SearchResult | NoFeasibleLayout]] = {}

    def solve(self, instance: Instance) -> SearchResult:
        """What the search says, as long as there is time."""
        if self.solves >= self.last:
            raise self.clock.late("the first verified layout")
        key = instance.digest
        if key in self.said:
            self.solves += 1
        else:
            try:
                self.said[key] = super().solve(instance)
            except NoFeasibleLayout as refusal:
                self.said[key] = refusal
        found = self.said[key]
        if isinstance(found, NoFeasibleLayout):
            raise found
        return found


def test_what_is_known_by_then_is_part_of_the_whole_answer() -> None:
    instance = impossible()
    whole = Ended(instance, Clock(), 0)
    answer = whole.explain()
    assert answer is not None
    assert answer.not_looked_at == ()
    assert [[limit.key for limit in each] for each in answer.conflicts] == [["tpot"], ["ttft"]]
    ((tpot, ttft),) = answer.repairs
    seen = set()
    for last in range(1, answer.solves):
        early = Ended(instance, Clock(), 0)
        early.last = last
        known = early.explain()
        assert known is not None
        assert known.not_looked_at
        assert known.reason == answer.reason
        keys = [[limit.key for limit in each] for each in known.conflicts]
        assert keys == [["tpot"], ["ttft"]][: len(keys)]
        assert known.words()[-1].startswith("Not looked at in the time: ")
        assert not any("No limit is to blame" in line for line in known.words())
        for repair in known.repairs:  # coarser than the whole answer's, and around it
            assert repair[0].value == tpot.value
            assert repair[1].fails_at <= 1.01 * ttft.value
            assert ttft.value <= repair[1].value < repair[1].limit.loosest
        seen.add((len(known.conflicts), len(known.repairs), known.not_looked_at))
    assert (0, 0, ("which limits conflict", "what would fit")) in seen
    assert (1, 0, ("whether more limits conflict", "what would fit")) in seen
    assert (2, 1, ("the nearest value of TPOT and TTFT that solves",)) in seen


def test_no_time_at_all_is_no_answer() -> None:
    early = Ended(impossible(), Clock(), 0)
    early.last = 0
    with pytest.raises(NoLayoutInTime, match="before it was known whether anything fits"):
        early.explain()


def test_command_returns_by_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that does not look at the clock is left, and what it knew is said."""

    def long(self: Conflict, kept: Any) -> bool:
        while True:
            time.sleep(0.05)

    monkeypatch.setattr(Conflict, "meets", long)
    flags = ["explain", "--model", "llama-3.1-8b", "--cluster", "hgx-h100", "--tpot", "1 ms"]
    started = time.perf_counter()
    result = CliRunner().invoke(build_app(), [*flags, "--time-limit", "6", "--json"])
    assert time.perf_counter() - started < 15
    assert result.exit_code == 0
    answer = json.loads(result.stdout)["explanation"]
    assert answer["fits"] is False
    assert answer["conflicts"] == []
    assert answer["not_looked_at"] == ["which limits conflict", "what would fit"]


def test_limits_of_an_early_layout_are_not_said_to_be_the_best_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def late(instance: Instance, *, clock: Clock, **_: Any) -> SearchResult:
        clock.stop()
        raise clock.late("the first verified layout")

    flags = ["explain", "--model", "llama-3.1-8b", "--cluster", "hgx-h100", "--tpot", "50 ms"]
    monkeypatch.setattr("solver.search.search", late)  # the first layout comes from another name
    result = CliRunner().invoke(build_app(), flags)
    assert result.exit_code == 0
    assert "a layout fits" in result.stdout
    assert "Not looked at in the time: cheaper layouts" in result.stdout
