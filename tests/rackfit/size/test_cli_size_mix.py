"""``rackfit size`` of several kinds: the cheapest mix, its replays, and what it says of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rackfit.report.size_words import mix_line
from solver.plan.sizing.mix import Mix
from solver.plan.sizing.mix_replay import MixReplay
from tests.rackfit.size.test_cli_size import run
from topology.errors import InstanceError


def test_several_kinds_are_mixed() -> None:
    """Three nodes of B200, or two and one of H100 that carries the rest."""
    asked = ("--model", "llama-3.1-70b", "--tpot", "30ms", "--rate", 140, "--buy")
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


@pytest.mark.parametrize(("engine", "words"), [("vllm", "vLLM"), ("any", "TensorRT-LLM")])
def test_a_kind_that_an_engine_does_not_run_on_is_left_out(engine: str, words: str) -> None:
    """It refused all kinds."""
    asked = ("--engine", engine, "--rate", 50, "--buy")
    document = json.loads(run(*asked, "mi300x,hgx-h100,hgx-h200", "--json").stdout)
    assert {kind["kind"] for kind in document["kinds"]} == {"hgx-h100", "hgx-h200"}
    assert document["mix"] is not None
    (out,) = document["left_out"]
    assert out["kind"] == "mi300x"
    assert words in out["reason"]
    assert "does not run on mi300x" in out["reason"]
    assert f"mi300x: {out['reason']}" in run(*asked, "mi300x,hgx-h100").stdout
    refused = run(*asked, "mi300x,mi325x").exception
    assert isinstance(refused, InstanceError)
    kinds = {one.message.split(" does not run on ")[1].split()[0] for one in refused.problems}
    assert kinds == {"mi300x", "mi325x"}


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
    assert mix_line(found, replays=True).splitlines() == [
        "the cheapest mix: 2 a and 1 b, $40.00/h, 20.0% less than one kind (proven within 0.1%), "
        "10.0% over the peak after the worst loss",
        "its 1,000 replayed requests, after every loss: TTFT P99 0.25 s, TPOT P99 30.0 ms; "
        "each kind's share meets the targets",
    ]
    assert mix_line(replace(found, replays=()), replays=True).endswith("loss; not replayed")
