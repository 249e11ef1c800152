"""``rackfit size``: the fewest units, what proves it, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner, Result

from costmodel.question.scenario import Scenario
from costmodel.question.traffic.load import load_traffic
from costmodel.question.workload import Slo, Workload
from costmodel.replay.targets import Targets
from rackfit import solve
from rackfit.cli.app import build_app
from rackfit.cli.commands.size import _mix_line
from rackfit.studies.run import study
from solver.clock import Clock
from solver.plan.sizing.mix import Mix
from solver.plan.sizing.mix_replay import MixReplay
from solver.plan.sizing.size import Wanted, size
from solver.traffic.asked import Asked
from topology.errors import InstanceError

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
    near = ("--rate", 141.5, "--peak", 3, "--spare", "node", "--buy", "hgx-h100", "--ttft", "400ms")
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


def test_kinds_are_cheapest_first() -> None:
    found = run("--rate", 50, "--buy", "hgx-h200,hgx-h100", "--json")
    kinds = json.loads(found.stdout)["kinds"]
    assert {kind["kind"] for kind in kinds} == {"hgx-h200", "hgx-h100"}
    assert kinds[0]["usd_per_hour"] <= kinds[1]["usd_per_hour"]


def test_several_kinds_are_mixed() -> None:
    """Three nodes of B200, or two and one of H100 that carries the rest."""
    asked = ("--model", "llama-3.1-70b", "--tpot", "30ms", "--rate", 130, "--buy")
    both = (*asked, "hgx-b200,hgx-h100")
    document = json.loads(run(*both, "--json").stdout)
    found = document["mix"]
    assert found["units"] == {"hgx-b200": 2, "hgx-h100": 1}
    assert found["one_kind_usd_per_hour"] == document["kinds"][0]["usd_per_hour"]
    assert found["usd_per_hour"] < found["one_kind_usd_per_hour"]
    assert found["gap"] < 1e-9
    words = run(*both).stdout
    assert (
        "the cheapest mix: 2 hgx-b200 and 1 hgx-h100, $41.60/h, 11.1% less than one kind" in words
    )
    assert json.loads(run(*asked, "hgx-b200", "--json").stdout)["mix"] is None
    enough = run(*asked, "hgx-h100,hgx-h200").stdout
    assert "no mix of these kinds costs less than $" in enough


def test_a_mix_of_random_arrivals_is_replayed_after_every_loss() -> None:
    """Two nodes of B200 and one of H100: what is left after either loss is run with its own split of the requests."""
    asked = ("--tpot", "30ms", "--rate", 340, "--peak", 2, "--spare", "node", "--replay")
    both = (*asked, "--buy", "hgx-b200,hgx-h100")
    document = json.loads(run(*both, "--json").stdout)
    found = document["mix"]
    assert found["units"] == {"hgx-b200": 2, "hgx-h100": 1}
    assert found["usd_per_hour"] < min(kind["usd_per_hour"] for kind in document["kinds"])
    assert found["bound_usd_per_hour"] <= found["usd_per_hour"]
    left = {"hgx-b200": [1, 1], "hgx-h100": [2, 0]}
    assert {tuple(seen["lost"]) for seen in found["replays"]} == {(kind,) for kind in left}
    for seen in found["replays"]:
        (lost,) = seen["lost"]
        units = {part["kind"]: part["units"] for part in seen["parts"]}
        assert [units.get(kind, 0) for kind in ("hgx-b200", "hgx-h100")] == left[lost]
        assert sum(part["requests_per_s"] for part in seen["parts"]) == pytest.approx(680)
        assert sum(part["requests"] for part in seen["parts"]) == seen["requests"]
        worst = max(part["ttft_p99_s"] for part in seen["parts"])
        assert seen["ttft_p99_s"] <= worst <= 1.0
        assert seen["tpot_p99_s"] <= max(part["tpot_p99_s"] for part in seen["parts"]) <= 0.03
        assert seen["goodput"] >= 0.98


def test_a_mix_says_what_all_of_its_requests_met() -> None:
    seen = [
        MixReplay({kind: 1}, (), 500, 0.25, at, 0.99) for kind, at in (("a", 0.02), ("b", 0.03))
    ]
    found = Mix({"a": 2, "b": 1}, 40.0, 1.0, 110.0, 0.1, 40.0, 50.0, replays=tuple(seen))
    assert _mix_line(found, replays=True).splitlines() == [
        "the cheapest mix: 2 a and 1 b, $40.00/h, 20.0% less than one kind (proven within 0.0%), "
        "10.0% over the peak after the worst loss",
        "its 1,000 replayed requests, after every loss: TTFT P99 0.25 s, TPOT P99 30.0 ms; "
        "each kind's share meets the targets",
    ]
    assert _mix_line(replace(found, replays=()), replays=True).endswith("loss; not replayed")


TRAFFIC = (
    "--model", "llama-3.1-8b", "--traffic", "azure-conversation-2023", "--ttft-p99", "400ms", "--tpot-p99", "20ms",
    "--buy", "hgx-h100",
)  # fmt: skip


def test_traffic_is_sized_by_replays() -> None:
    """Unlike lengths and bursts take more than the mean lengths in a steady state."""
    asked = (*TRAFFIC, "--rate", 105, "--peak", 3, "--spare", "node")
    found = CliRunner().invoke(build_app(), ["size", *map(str, asked), "--json"])
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    (kind,) = document["kinds"]
    assert document["mix"] is None
    assert document["wanted"]["rate"] == 105.0
    standing = kind["count"] - 1
    tried = {one["units"]: one for one in kind["tried"]}
    carried = tried[standing]["requests_per_s"]
    assert 315.0 < carried <= tried[standing]["most"]
    assert kind["headroom"] == pytest.approx(carried / 315.0 - 1)
    assert kind["least"] <= kind["count"]
    assert all(tried[n]["most"] < 315.0 for n in range(1, kind["least"] - 1) if n in tried)
    requests = load_traffic("azure-conversation-2023", rate=315.0).whole_prompts()
    targets = Targets(0.4, 0.02)
    again = solve(
        Scenario(model="llama-3.1-8b", cluster=f"hgx-h100@{standing}", workload="chat"),
        traffic=Asked(requests, targets), gap=0.99,
    )  # fmt: skip
    assert again.evaluation.feasible
    even = Workload(
        input_tokens=round(float(requests.input_tokens.mean())),
        output_tokens=round(float(requests.output_tokens.mean())),
    )
    scenario = Scenario(
        model="llama-3.1-8b", cluster="hgx-h100", workload=even, slo=Slo(ttft=0.4, tpot=0.02)
    )
    (steady,) = size(scenario, ["hgx-h100"], Wanted(105.0, 3.0, 1), clock=Clock())
    assert steady.count is not None
    assert steady.count < kind["count"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--traffic", "azure-conversation-2023"), "--traffic: has no target: give --ttft-p99"),
        (("--rate", "5", "--goodput", "0.9"), "--goodput: has no target"),
    ],
)
def test_traffic_needs_a_target_and_its_options_traffic(
    words: tuple[str, ...], message: str
) -> None:
    found = CliRunner().invoke(
        build_app(), ["size", "--model", "llama-3.1-8b", "--buy", "hgx-h100", *words]
    )
    assert isinstance(found.exception, InstanceError)
    assert message in str(found.exception)


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
    assert len(found.study.figures(found.rows)) == 1
    (words,) = found.conclusion
    assert "units of hgx-h100" in words
    assert "that are solved" in words


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rate", 1), "--buy: is missing"),
        (("--buy", "hgx-h100"), "--rate: is missing"),
        (("--rate", "1e-300", "--buy", "hgx-h100"), "per second from 0.000001, got 1e-300"),
        (("--rate", 1, "--buy", "hgx-h100", "--time-limit", "nan"), "positive seconds, got nan"),
        (("--rate", 1, "--buy", "hgx-h100", "--time-limit", -1), "positive seconds, got -1"),
        (("--rate", 1, "--buy", "hgx-h100@2"), "name one unit, without a count"),
        (("--rate", 1, "--buy", "hgx-h100", "--peak", 0.5), "--peak: expected 1 to 1000"),
        (("--rate", 1, "--buy", "hgx-h100", "--spare", "row"), "--spare: expected node, rack"),
    ],
)
def test_bad_options_are_refused(words: tuple[object, ...], message: str) -> None:
    found = run(*words)
    assert isinstance(found.exception, InstanceError)
    assert message in str(found.exception)


def test_a_replay_asks_for_a_target() -> None:
    words = ["size", "--model", "llama-3.1-8b", "--rate", "1", "--buy", "hgx-h100", "--replay"]
    found = CliRunner().invoke(build_app(), words)
    assert isinstance(found.exception, InstanceError)
    assert "give --ttft or --tpot" in str(found.exception)
