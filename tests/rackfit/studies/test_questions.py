"""Each study's axes, and words that agree with its table."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from asking import ask
from typer.testing import CliRunner

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.cli.app import build_app
from rackfit.cli.commands.study import _cell
from rackfit.studies.base import ONE_RACK, Axes, Options, Row
from rackfit.studies.grid import make_points
from rackfit.studies.point import solve_instance
from rackfit.studies.questions.scale_up import network_share
from rackfit.studies.registry import find_study, studies
from rackfit.studies.run import StudyResult, study
from topology.errors import InstanceError

SMALL = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": "chat"}


@pytest.mark.parametrize("name", sorted(studies()))
def test_default_points_are_valid_scenarios(name: str) -> None:
    found = find_study(name)
    base = {**found.default, **found.fixed}
    over = {"slo.tpot": [0.02, 0.05]} if name == "grid" else {}
    blocks = found.blocks(base, over)
    points = [p for block in blocks for p in make_points(base, block, found.parameters)]
    assert points
    assert len({str(point.axes) for point in points}) == len(points)
    assert not set(found.parameters) & set(Scenario.model_fields)


def test_scale_up_keeps_576_chips() -> None:
    found = find_study("scale-up")
    base = {**found.default, **found.fixed}
    sizes = found.blocks(base, {})[0]
    clusters = [point.scenario.cluster for point in make_points(base, sizes)]
    assert clusters == ["nvl-8@72", "nvl-16@36", "nvl-36@16", "nvl-72@8", "nvl-144@4", "nvl-576@1"]


def test_batch_costs_less_and_takes_longer(tmp_path: Path) -> None:
    result = ask("batch", {"limits.max_sequences_per_rank": [1, 16, 128]}, **SMALL)
    costs = [row["usd_per_m_output_tokens"] for row in result.rows]
    assert costs == sorted(costs, reverse=True)
    result.write(tmp_path)
    with (tmp_path / "batch.csv").open() as file:
        table = list(csv.DictReader(file))
    first, last = (float(table[i]["usd_per_m_output_tokens"]) for i in (0, -1))
    assert f"{first / last:.1f} times the least" in result.conclusion[0]


def test_frontier_falls_with_patience() -> None:
    over = {"cluster": ["hgx-h100"], "slo.tpot": [0.005, 0.02, None]}
    result = ask("frontier", over, **SMALL)
    costs = [row["usd_per_m_output_tokens"] for row in result.rows]
    bounds = [row["bound_usd_per_m_output_tokens"] for row in result.rows]
    assert all(bounds[i + 1] <= costs[i] for i in range(2))
    (factor,) = re.findall(r"costs ([\d.]+) times", result.conclusion[0])
    assert float(factor) == pytest.approx(costs[0] / costs[-1], abs=0.006)


def test_failures_keep_less_than_everything() -> None:
    lost = ["none", "r0g7", "r0g7+r0g6", "r0g7+r0g6+r0g5+r0g4"]
    over = {"solved_again": [True, False], "failed": lost}
    every = ask("failures", over, **SMALL, slo={"tpot": 0.02})
    result, left = list(every.rows[:4]), every.rows[4:]
    # replicas that go on as they are keep no more than a new layout may, to the gap that was proven
    for again, before in zip(result, left, strict=True):
        assert before["output_tokens_per_s"] <= again["output_tokens_per_s"] * 1.05
    # a replica is lost with any one of its chips
    healthy_scenario = Scenario.model_validate({**SMALL, "slo": {"tpot": 0.02}})
    layout = solve_instance(resolve_instance(healthy_scenario), Options(gap=0.05)).layout
    used = {chip for replica in layout.replicas for chip in replica.chips}
    for names, before in zip(lost, left, strict=True):
        gone = set(names.split("+"))
        assert names == "none" or gone <= used
        assert before["replicas_lost"] == sum(bool(gone & set(r.chips)) for r in layout.replicas)
    healthy = [row["chips_healthy"] for row in result]
    assert healthy == [8, 7, 6, 4]
    rates = [row["output_tokens_per_s"] for row in result]
    assert f"{rates[1] / rates[0]:.1%} of the throughput" in every.conclusion[0]
    # the intact node may always be run as a smaller one, to the gap that was proven
    assert all(rate <= rates[0] * 1.05 for rate in rates)


def test_what_goes_on_as_it_is_serves_no_more_than_is_asked_for() -> None:
    """Beside what is solved again for a rate, replicas that are left had been told by all that they could serve."""
    over = {"solved_again": [True, False], "failed": ["none", "r0g7"]}
    found = ask("failures", over, **SMALL, slo={"tpot": 0.02}, rate=0.5)
    asked_for = 0.5 * resolve_instance(Scenario.model_validate(SMALL)).workload.output_tokens
    assert [row["output_tokens_per_s"] for row in found.rows] == [
        pytest.approx(asked_for) for _ in found.rows
    ]


def test_fleets_are_sized_for_the_rate_of_the_scenario() -> None:
    (block,) = find_study("fleet-size").blocks({**SMALL, "rate": 40.0}, {})
    assert block["mean_rate"] == [40.0]
    volumes, _ = find_study("buy").blocks({**SMALL, "rate": 40.0}, {})
    assert volumes["mean_rate"] == [4.0, 40.0, 400.0]
    assert "mean_rate" not in find_study("fleet-size").blocks(SMALL, {})[0]


def row(size: int, cost: float, gap: float = 0.01) -> Row:
    return {
        "cluster.domain_size": size, "model_name": "m", "cluster_name": f"nvl-{size}",
        "domain_size": size, "status": "optimal", "error": "", "gap": gap,
        "usd_per_m_output_tokens": cost, "bound_usd_per_m_output_tokens": cost / (1 + gap),
        "ep": size, "domains_per_stage": 1, "sequences_per_chip": 10.0,
        "time_dispatch_s": 0.002, "time_combine_s": 0.001, "time_routed_experts_s": 0.005,
        "time_overhead_s": 0.002,
    }  # fmt: skip


def test_scale_up_says_where_more_buys_little() -> None:
    found = find_study("scale-up")
    rows = (row(8, 2.0), row(36, 1.01), row(72, 1.5, gap=0.5), row(576, 1.0))
    said = StudyResult(found, {}, {"cluster.domain_size": []}, rows, 0).conclusion
    assert "domains of 8 cost 2.00 times that" in said[0]
    assert said[1].startswith("Domains of 36 are within 2%")
    assert "72" not in said[2]
    assert said[-1] == ("Not settled: cluster.domain_size 72, between $1.0000 and $1.5000.")
    assert network_share(rows[0]) == pytest.approx(0.3)


def test_chips_are_lost_of_the_cluster_that_is_asked_about() -> None:
    """They were chips of the study's own rack, which a node does not have."""
    blocks = find_study("failures").blocks(ONE_RACK, {"cluster": ["hgx-h100@2"]})
    (block,) = blocks
    assert block["failed"] == ["none", "r0g7", "r0g7+r1g7", "r0g7+r1g7+r0g6+r1g6",
                               "r0g7+r1g7+r0g6+r1g6+r0g5+r1g5+r0g4+r1g4", "r1"]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "over", "said"),
    [
        ("buy", {"spare": [-1], "peak": [0]}, ["--over spare: expected a whole number from 0 to 1,000, got -1",
                                               "--over peak: expected a number from 1 to 1,000, got 0"]),
        ("fleet-size", {"mean_rate": ["many", None]}, ["--over mean_rate: expected a number from 0.000001 to 1,000,000,000, got 'many'",
                                                       "--over mean_rate: expected a number from 0.000001 to 1,000,000,000, got None"]),
        ("load", {"cv": [1.0, 0]}, ["--over cv: expected a number from 0.01 to 100, got 0"]),
        ("pipeline", {"stages": [2.5]}, ["--over stages: expected a whole number from 1 to 1,000,000, got 2.5"]),
        ("pipeline", {"board.pass_s": [0]}, ["--over board.pass_s: expected a number above 0, up to 1,000,000,000,000,000,000, got 0"]),
        ("failures", {"solved_again": [2]}, ["--over solved_again: expected true or false, got 2"]),
        ("grid", {"slo.tpot": [float("nan")]}, ["--over slo.tpot: expected a finite number, got nan"]),
    ],
)  # fmt: skip
def test_wrong_numbers_are_refused_before_any_point(name: str, over: Axes, said: list[str]) -> None:
    """They ended in internal errors, point by point, or in a table that no JSON holds."""
    with pytest.raises(InstanceError) as refused:
        study(name, over=over)
    assert [str(problem) for problem in refused.value.problems] == said


def test_compare_names_what_is_not_proven_dearer() -> None:
    rows = (row(8, 1.2, gap=0.5), row(72, 1.0), row(144, 3.0))
    said = find_study("compare").conclude([{**r, "output_tokens_per_s_per_gpu": 1.0} for r in rows])
    assert said[0].startswith("nvl-72 is the cheapest of 3: $1.0000")
    assert said[-1] == "Not proven dearer than the cheapest: nvl-8."


def test_a_longer_context_never_costs_less() -> None:
    over = {"model": ["llama-3.1-8b"], "workload.input_tokens": [1000, 16000]}
    result = ask("context", over, **SMALL)
    short, long = (row["usd_per_m_output_tokens"] for row in result.rows)
    assert long >= result.rows[0]["bound_usd_per_m_output_tokens"]
    assert f"prompt included, {long / short:.1f} times as dear" in result.conclusion[0]


def test_goodput_falls_with_load() -> None:
    slo = {"ttft": 0.5, "tpot": 0.02}
    result = ask("load", {"load": [0.5, 1.1], "cv": [1.0]}, **SMALL, slo=slo)
    easy, full = result.rows
    assert easy["goodput"] > 0.99 > full["goodput"]
    assert easy["ttft_p99_s"] < full["ttft_p99_s"]
    assert easy["stable"]
    assert not full["stable"]
    assert "99% of requests are within the targets up to 50%" in result.conclusion[1]
    assert len(result.study.figures(result.rows)) == 3


def test_what_has_no_price_is_said_and_no_cell_is_none(tmp_path: Path) -> None:
    """Columns of owned chips and of an API were empty without a word; a terminal had None in them."""
    path = tmp_path / "asked.yaml"
    path.write_text("{model: llama-3.1-8b, cluster: hgx-h200, workload: chat, slo: {tpot: 30 ms}}")
    found = CliRunner().invoke(
        build_app(), ["study", "buy", str(path), "--over", "mean_rate=1,2", "--time-limit", "20"]
    )
    assert found.exit_code == 0, found.output
    assert (
        "no price is known at which h200 is bought (owned_usd_per_chip gives one)" in found.output
    )
    assert "None" not in found.output


def test_numbers_of_a_table_have_no_power_of_ten() -> None:
    assert [_cell(value) for value in (10936.4, 0.0371, 5, None, "a")] == [
        "10,936",
        "0.0371",
        "5",
        "",
        "a",
    ]
