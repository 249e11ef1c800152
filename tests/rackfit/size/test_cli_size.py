"""``rackfit size``: the fewest units, and what proves it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from costmodel.question.scenario import Scenario
from costmodel.question.traffic.description import Arrivals, BothLengths, Description, Lengths
from costmodel.question.traffic.load import load_traffic
from costmodel.question.workload import Slo, Workload
from costmodel.replay.targets import Targets
from rackfit import solve
from rackfit.cli.app import build_app
from rackfit.studies.run import study
from solver.clock import Clock
from solver.plan.sizing.carried import Capability, Units
from solver.plan.sizing.size import Wanted, size
from solver.traffic.asked import Asked
from tests.solver.traffic.few_draws import few_draws
from topology.errors import NoLayoutInTime

WORDS = (
    "--model", "llama-3.1-8b", "--input-tokens", "1000", "--output-tokens", "200",
    "--ttft", "1s", "--tpot", "20ms",
)  # fmt: skip


def run(*words: object) -> Result:
    return CliRunner().invoke(build_app(), ["size", *WORDS, *map(str, words)])


def test_the_number_carries_the_peak_and_one_fewer_does_not() -> None:
    found = run("--rate", 100, "--peak", 3, "--spare", "node", "--buy", "hgx-h100", "--json")
    assert found.exit_code == 0, found.output
    (kind,) = json.loads(found.stdout)["kinds"]
    assert kind["spare"] == 1
    assert kind["least"] == kind["count"]
    standing = kind["count"] - 1
    scenario = Scenario(
        model="llama-3.1-8b",
        cluster=f"hgx-h100@{standing}",
        workload=Workload(input_tokens=1000, output_tokens=200),
        slo=Slo(ttft=1.0, tpot=0.02),
        rate=300.0,
    )
    assert solve(scenario).evaluation.feasible
    fewer = [tried for tried in kind["tried"] if tried["units"] == standing - 1]
    assert fewer
    assert fewer[0]["most"] < 300.0
    hourly = kind["usd_per_hour"]
    assert kind["usd_per_m_output_tokens"] == pytest.approx(hourly / 3600 / (100 * 200) * 1e6)


def test_random_arrivals_take_more_units_than_even_ones() -> None:
    near = ("--rate", 137, "--peak", 3, "--spare", "node", "--buy", "hgx-h100", "--ttft", "400ms")
    (even,) = json.loads(run(*near, "--json").stdout)["kinds"]
    (kind,) = json.loads(run(*near, "--replay", "--json").stdout)["kinds"]
    assert even["met"] is None
    assert even["replays"] == []
    assert kind["met"] is True
    assert kind["count"] > even["count"]
    assert kind["least"] == even["least"]
    assert kind["gap"] == pytest.approx(kind["count"] / kind["least"] - 1)
    first, last = kind["replays"][0], kind["replays"][-1]
    assert (first["units"], first["meets"]) == (even["count"] - even["spare"], False)
    assert max(first["ttft_p99_s"] / 0.4, first["tpot_p99_s"] / 0.02) > 1
    assert (last["units"], last["meets"]) == (kind["count"] - kind["spare"], True)
    assert last["ttft_p99_s"] <= 0.4
    assert last["tpot_p99_s"] <= 0.02
    words = run(*near, "--replay").stdout
    assert f"meets; {first['units']}, enough for even arrivals, miss" in words


def test_a_time_limit_leaves_what_even_arrivals_take() -> None:
    class Over(Clock):
        """A clock whose time is over once kinds are sized."""

        sized = False

        @property
        def over(self) -> bool:
            return self.sized

    clock = Over()

    def sized(_: object) -> None:
        clock.sized = True

    scenario = Scenario(
        model="llama-3.1-8b", cluster="hgx-h100", slo=Slo(ttft=0.4, tpot=0.02),
        workload=Workload(input_tokens=1000, output_tokens=200),
    )  # fmt: skip
    (one,) = size(
        scenario, ["hgx-h100"], Wanted(141.5, 3.0, 1), clock=clock, replays=True, on_sized=sized
    )
    assert one.count is not None
    assert one.met is None


def test_a_rate_that_one_unit_may_carry_is_looked_for_on_one() -> None:
    """As many as have 256 chips were searched first, which took most of the time."""
    found = json.loads(run("--rate", 5, "--buy", "nvl-36", "--json").stdout)["kinds"][0]
    assert (found["count"], found["least"]) == (1, 1)
    assert [tried["units"] for tried in found["tried"]] == [1]


def test_kinds_are_cheapest_first() -> None:
    found = run("--rate", 50, "--buy", "hgx-h200,hgx-h100", "--json")
    kinds = json.loads(found.stdout)["kinds"]
    assert {kind["kind"] for kind in kinds} == {"hgx-h200", "hgx-h100"}
    assert kinds[0]["usd_per_hour"] <= kinds[1]["usd_per_hour"]


def test_each_kind_says_what_its_figures_rest_on() -> None:
    """Nothing told that no run on a kind was measured."""
    both = ("--rate", 50, "--buy", "hgx-h100,hgx-h20")
    known = {
        kind["kind"]: kind["provenance"]
        for kind in json.loads(run(*both, "--json").stdout)["kinds"]
    }
    assert known["hgx-h100"]["times"].startswith("measured: ")
    assert known["hgx-h20"]["times"].startswith("assumed: ")
    said = run(*both).stdout
    for kind, basis in known.items():
        assert f"basis of {kind}: times {basis['times']}; money {basis['money']}" in said


def test_a_kind_on_which_nothing_fits_is_named_beside_the_others() -> None:
    """It was left out without a word."""
    both = ("--tpot", "3ms", "--rate", 5, "--buy", "rtx4090,hgx-h100")
    document = json.loads(run(*both, "--json").stdout)
    assert [kind["kind"] for kind in document["kinds"]] == ["hgx-h100"]
    (out,) = document["left_out"]
    assert out["kind"] == "rtx4090"
    assert "TPOT: the target is 3 ms" in out["reason"]
    assert "rtx4090: no layout of llama-3.1-8b on rtx4090@512" in run(*both).stdout


def test_a_time_limit_leaves_the_kinds_that_were_sized(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of the first kind was lost where the second had no time left."""
    first = Units.first

    def late(units: Units, peak: float) -> Capability:
        if units.kind == "hgx-h200":
            raise NoLayoutInTime("the time limit came")
        return first(units, peak)

    monkeypatch.setattr(Units, "first", late)
    found = run("--rate", 50, "--buy", "hgx-h100,hgx-h200", "--json")
    assert found.exit_code == 0
    document = json.loads(found.stdout)
    assert [kind["kind"] for kind in document["kinds"]] == ["hgx-h100"]
    late_one = {"kind": "hgx-h200", "reason": "the time limit came before it was sized"}
    assert document["left_out"] == [late_one]
    words = run("--rate", 50, "--buy", "hgx-h100,hgx-h200").stdout
    assert "hgx-h200: the time limit came before it was sized" in words


def test_a_kind_that_takes_long_leaves_time_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """All the time had been the first one's."""
    first, had = Units.first, dict[str, float]()

    def timed(units: Units, peak: float) -> Capability:
        assert units.clock.limit_s is not None
        had[units.kind] = units.clock.limit_s
        return first(units, peak)

    monkeypatch.setattr(Units, "first", timed)
    run("--rate", 50, "--buy", "hgx-h100,hgx-h200", "--time-limit", 1000)
    assert had["hgx-h100"] <= 500
    assert had["hgx-h200"] > 500


def test_chips_that_may_be_lost_are_units_of_each_kind() -> None:
    """A kind's spare units were those of the smallest kind beside it."""
    words = ("--rate", 50, "--spare", 16, "--json", "--buy")
    alone = json.loads(run(*words, "gh200-nvl32").stdout)["kinds"][0]
    beside = {
        one["kind"]: one for one in json.loads(run(*words, "gh200-nvl32,hgx-h100").stdout)["kinds"]
    }
    assert beside["gh200-nvl32"] == alone
    assert alone["spare"] == 1
    assert beside["hgx-h100"]["spare"] == 2
    said = run("--rate", 50, "--spare", 16, "--buy", "hgx-h100").stdout
    assert "50 at the peak, as many units lost as hold 16 chips" in said


def test_a_number_that_is_too_large_to_solve_is_no_proof() -> None:
    """What more chips than are solved would carry is an estimate; it stood as the least that is proven."""
    found = run("--rate", 1e6, "--buy", "hgx-h100", "--json")
    (kind,) = json.loads(found.stdout)["kinds"]
    assert kind["count"] is None
    assert kind["gap"] is None
    assert kind["about"] * 8 > 4608
    assert kind["least"] == max(one["units"] for one in kind["tried"] if one["most"] < 1e6) + 1
    words = run("--rate", 1e6, "--buy", "hgx-h100").stdout
    assert "proven least" not in words
    assert "hgx-h100: needs about" in words


def bursts(folder: Path) -> Path:
    """A trace of 2,000 requests of unlike lengths that come in bursts."""
    lengths = BothLengths(input=Lengths(mean=1200, std=1000), output=Lengths(mean=20, std=20))
    arrivals = Arrivals(process="gamma", cv=4, rate=60)
    drawn = Description(arrivals=arrivals, lengths=lengths).draw(2000, 0)
    path = folder / "bursts.csv"
    columns = (drawn.arrival_s, drawn.input_tokens, drawn.output_tokens)
    rows = (f"{at:.4f},{prompt},{answer}" for at, prompt, answer in zip(*columns, strict=True))
    path.write_text("\n".join(("t_s,input_tokens,output_tokens", *rows)) + "\n")
    return path


@few_draws()
def test_traffic_is_sized_by_replays(tmp_path: Path) -> None:
    """Unlike lengths and bursts take more than the mean lengths in a steady state."""
    traffic = str(bursts(tmp_path))
    asked = (
        "--model", "llama-3.1-8b", "--traffic", traffic, "--ttft-p99", "600ms", "--tpot-p99", "30ms",
        "--buy", "hgx-a100", "--rate", "50", "--peak", "3", "--spare", "node",
    )  # fmt: skip
    found = CliRunner().invoke(build_app(), ["size", *asked, "--json"])
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    (kind,) = document["kinds"]
    assert document["mix"] is None
    assert document["wanted"]["rate"] == 50.0
    standing = kind["count"] - 1
    tried = {one["units"]: one for one in kind["tried"]}
    carried = tried[standing]["requests_per_s"]
    assert 150.0 < carried <= tried[standing]["most"]
    assert kind["headroom"] == pytest.approx(carried / 150.0 - 1)
    assert kind["least"] <= kind["count"]
    assert all(tried[n]["most"] < 150.0 for n in range(1, kind["least"] - 1) if n in tried)
    requests = load_traffic(traffic, rate=150.0).whole_prompts()
    targets = Targets(0.6, 0.03)
    again = solve(
        Scenario(model="llama-3.1-8b", cluster=f"hgx-a100@{standing}", workload="chat"),
        traffic=Asked(requests, targets), gap=0.99,
    )  # fmt: skip
    assert again.evaluation.feasible
    even = Workload(
        input_tokens=round(float(requests.input_tokens.mean())),
        output_tokens=round(float(requests.output_tokens.mean())),
    )
    scenario = Scenario(
        model="llama-3.1-8b", cluster="hgx-a100", workload=even, slo=Slo(ttft=0.6, tpot=0.03)
    )
    (steady,) = size(scenario, ["hgx-a100"], Wanted(50.0, 3.0, 1), clock=Clock())
    assert steady.count is not None
    assert steady.count < kind["count"]


def test_the_study_asks_the_same_question() -> None:
    asked = {
        "model": "llama-3.1-8b", "cluster": "hgx-h100", "slo": {"ttft": 1.0, "tpot": 0.02},
        "workload": {"input_tokens": 1000, "output_tokens": 200},
    }  # fmt: skip
    own = {"mean_rate": [50.0, 1e6], "peak": [1.0], "spare": [0]}
    found = study("fleet-size", asked, over={"cluster": ["hgx-h100"], "slo.tpot": [0.02], **own})
    few, many = found.rows
    alone = json.loads(run("--rate", 50, "--buy", "hgx-h100", "--json").stdout)["kinds"][0]
    assert few["units"] == alone["count"]
    assert few["usd_per_hour"] == alone["usd_per_hour"]
    assert many["units"] is None
    # each rate has a line of its own: units of both stood side by side
    at_few, at_many = found.conclusion
    assert at_few.startswith("mean_rate 50.0: At 20 ms per token: 1 unit of hgx-h100 at $")
    assert at_many.startswith("mean_rate 1000000.0: At 20 ms per token: hgx-h100 would need about")
    (chart,) = found.study.figures(found.rows)
    assert [series.name for series in chart.series] == ["hgx-h100, mean_rate 50.0"]


def test_the_study_says_what_its_figures_rest_on() -> None:
    """Table, sentences and chart: nothing told that runs on a kind are published ones alone."""
    asked = {
        "model": "llama-3.1-8b", "cluster": "hgx-h100", "slo": {"ttft": 1.0, "tpot": 0.02},
        "workload": {"input_tokens": 1000, "output_tokens": 200},
    }  # fmt: skip
    over = {"cluster": ["hgx-h100", "mi355x"], "slo.tpot": [0.02], "mean_rate": [50.0]}
    found = study("fleet-size", asked, over=over)
    known = {row["cluster"]: row["assumed"] for row in found.rows}
    assert known == {"hgx-h100": "", "mi355x": "efficiency (published runs alone) of mi355x"}
    assert "Assumed: efficiency (published runs alone) of mi355x." in found.conclusion
    (figure,) = found.figures().values()
    assert "published runs alone" in figure
