"""Axes from text, and the scenarios that they make."""

from __future__ import annotations

import pytest

from costmodel.question.workload import Workload
from rackfit.studies.axes import axis_names
from rackfit.studies.grid import make_points, parse_over, resized
from topology.errors import InstanceError

BASE = {"model": "llama-3.1-8b", "cluster": "nvl-72@2", "workload": "chat", "slo": {"tpot": 0.03}}


def test_over_reads_numbers_words_and_none() -> None:
    assert parse_over(["cluster=a,b@2", "slo.tpot=0.02, none", "rate=3"]) == {
        "cluster": ["a", "b@2"],
        "slo.tpot": [0.02, None],
        "rate": [3],
    }


def test_every_bad_over_is_reported() -> None:
    with pytest.raises(InstanceError) as caught:
        parse_over(["cluster", "=1", "a=1,,2", "b=1", "b=2"])
    assert len(caught.value.problems) == 4


def test_points_cross_the_axes_last_fastest() -> None:
    points = make_points(BASE, {"slo.tpot": [0.02, None], "workload.input_tokens": [100, 200]})
    got = [
        (p.scenario.slo.tpot, p.scenario.workload.input_tokens)
        for p in points
        if isinstance(p.scenario.workload, Workload)
    ]
    assert got == [(0.02, 100), (0.02, 200), (None, 100), (None, 200)]
    assert BASE["workload"] == "chat"
    assert BASE["slo"] == {"tpot": 0.03}


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(InstanceError, match="unknown key"):
        make_points(BASE, {"slo.tpto": [1]})
    with pytest.raises(InstanceError, match="has no parts"):
        make_points(BASE, {"model.name": ["x"]})


def test_all_that_is_wrong_with_a_grid_is_said_at_once() -> None:
    """The first wrong key, or the first point with a wrong value, was named alone."""
    axes = {
        "slo.tpto": [1], "clusterr": ["a"], "slo.ttft": [1, -1], "workload.input_tokens": [100, "x", 0], "model.name": ["x"],
    }  # fmt: skip
    with pytest.raises(InstanceError) as caught:
        make_points(BASE, axes)
    said = [str(problem) for problem in caught.value.problems]
    assert said[:2] == [
        "--over slo.tpto: unknown key; did you mean slo.tpot or slo.ttft?",
        f"--over clusterr: unknown key; did you mean cluster? axes: {', '.join(axis_names())}",
    ]
    assert said[2] == "model.name: model has no parts to vary"
    assert [one.partition("workload.input_tokens: ")[2] for one in said[3:5]] == [
        "expected a whole number, got 'x'",
        "must be at least 1, got 0",
    ]
    assert said[5].endswith("slo.ttft: must be positive, got -1")
    assert len(said) == 6


def test_domain_size_keeps_the_total() -> None:
    sizes = make_points(BASE, {"cluster.domain_size": [8, 144]})
    assert [p.scenario.cluster for p in sizes] == ["nvl-8@18", "nvl-144@1"]
    with pytest.raises(InstanceError, match="does not divide the 144 chips"):
        resized("nvl-72@2", 7)
    with pytest.raises(InstanceError, match="needs a cluster nvl-N"):
        resized("hgx-h100", 4)


def test_failed_parts_may_be_joined_in_text() -> None:
    (none, two) = make_points(BASE, {"failed": ["none", "r0g1+r1g0"]})
    assert none.scenario.failed == ()
    assert two.scenario.failed == ("r0g1", "r1g0")
