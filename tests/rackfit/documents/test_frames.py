"""Results as data frames and in notebooks."""

from __future__ import annotations

import importlib
from html.parser import HTMLParser

import pytest

from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo, Workload
from rackfit.api import solve
from rackfit.documents.frames import chips_frame, replicas_frame, trajectory_frame
from rackfit.documents.result import Result
from topology.errors import RackfitError


@pytest.fixture(scope="module")
def answer() -> Result:
    """Llama on one node: prefill and decode replicas."""
    workload = Workload(input_tokens=4000, output_tokens=1000)
    slo = Slo(ttft=2.0, tpot=0.03)
    scenario = Scenario(model="llama-3.1-70b", cluster="hgx-h100", workload=workload, slo=slo)
    return solve(scenario, workers=1)


def test_replicas(answer: Result) -> None:
    pytest.importorskip("pandas")
    frame = replicas_frame(answer)
    assert list(frame["role"]) == [replica.role for replica in answer.layout.replicas]
    assert frame["chips"].sum() == answer.evaluation.chips_used
    assert frame["tpot_s"].max() == pytest.approx(answer.evaluation.tpot_s)


def test_chips(answer: Result) -> None:
    pytest.importorskip("pandas")
    frame = chips_frame(answer)
    assert len(frame) == answer.evaluation.chips_used
    parts = ["weights_bytes", "experts_bytes", "kv_bytes", "activations_bytes", "runtime_bytes"]
    assert (frame[parts].sum(axis=1) <= frame["capacity_bytes"]).all()


def test_trajectory(answer: Result) -> None:
    pytest.importorskip("pandas")
    frame = trajectory_frame(answer)
    assert len(frame) == len(answer.search.trajectory)
    assert frame["elapsed_s"].is_monotonic_increasing


def test_without_pandas(answer: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(RackfitError, match="pip install pandas"):
        replicas_frame(answer)


def test_notebook(answer: Result) -> None:
    class Cells(HTMLParser):
        cells = 0

        def handle_starttag(self, tag: str, attrs: object) -> None:
            self.cells += tag == "td"

    parser = Cells()
    parser.feed(answer._repr_html_())
    kinds = {(r.role, r.shape) for r in answer.layout.replicas}
    assert parser.cells == 8 * len(kinds)
