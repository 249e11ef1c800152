"""``rackfit plan``: what it prints and writes, and what it refuses."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from costmodel.evaluate import evaluate
from rackfit.cli.app import build_app
from rackfit.documents.result import read_result
from solver.plan import day, offers
from topology.errors import InstanceError

PLAN: dict[str, Any] = {
    "name": "p",
    "models": [
        {"model": "llama-3.1-8b", "slo": {"tpot": "30 ms"}, "requests_per_s": [20, 45, 20]},
        {"model": "llama-3.1-8b", "name": "short", "rates": "rates.csv",
         "workload": {"input_tokens": 1000, "output_tokens": 200}},
    ],
    "units": [{"cluster": "hgx-h100", "count": 10, "reserved": [0, 10], "on_demand_usd_per_hour": 25}],
    "spare": 1,
}  # fmt: skip


def written(folder: Path, **changes: Any) -> Path:
    """The plan's file, with its rates beside it."""
    (folder / "rates.csv").write_text(
        "t_s,requests_per_s\n0,400\n1800,20\n3600,30\n7200,10\n9000,10\n"
    )
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump({**PLAN, **changes}))
    return path


def run(*words: object) -> Result:
    return CliRunner().invoke(build_app(), ["plan", *map(str, words)])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """One plan as a document, and the folder where it lies."""
    folder = tmp_path_factory.mktemp("plan")
    found = run(written(folder), "--json", "--out", folder / "out", "--report", folder / "p.html")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout), folder


def test_every_hour_is_carried_after_a_loss(made: tuple[dict[str, Any], Path]) -> None:
    document, _ = made
    rates = {one["model"]: one["requests_per_s"] for one in document["columns"]}
    assert len(rates) == len(document["columns"]) == 2
    for hour in document["hours"]:
        for model, rate in hour["requests_per_s"].items():
            units = hour["fleet_by_model"][model]["hgx-h100"]
            assert (units - 1) * rates[model] >= rate
    assert [hour["requests_per_s"]["short"] for hour in document["hours"]] == [400, 30, 10]
    means = [hour["mean_requests_per_s"]["short"] for hour in document["hours"]]
    assert means == pytest.approx([210, 30, 10], rel=1e-3)
    assert document["survives"]["units"] == 1


def test_money_is_the_sum_of_the_hours_and_not_below_its_bounds(
    made: tuple[dict[str, Any], Path],
) -> None:
    document, _ = made
    total = sum(hour["usd"] for hour in document["hours"])
    assert document["usd_per_day"] == pytest.approx(total / 3 * 24)
    (bought,) = document["buy"]
    assert bought["usd"] + bought["on_demand_usd"] == pytest.approx(document["usd_per_day"])
    inner = document["of_these_layouts"]["bound_usd_per_day"]
    assert document["bound_usd_per_day"] <= inner * (1 + 1e-9)
    assert inner <= document["usd_per_day"]
    gap = document["usd_per_day"] / document["bound_usd_per_day"] - 1
    assert document["gap"] == pytest.approx(gap)


def test_layouts_of_all_hours_are_written_and_stand(made: tuple[dict[str, Any], Path]) -> None:
    document, folder = made
    files = {name for hour in document["hours"] for name in hour["layouts"]}
    found = {str(path.relative_to(folder / "out")) for path in (folder / "out").rglob("*.json")}
    assert found == files | {"plan.json"}
    assert json.loads((folder / "out" / "plan.json").read_text()) == document
    for name in files:
        instance, layout, _ = read_result(folder / "out" / name)
        assert evaluate(instance, layout).feasible
    page = (folder / "p.html").read_text()
    assert "Requests per second" in page
    assert "Hour by hour" in page


def test_a_plan_in_words(tmp_path: Path) -> None:
    path = written(tmp_path, spare=0, models=[PLAN["models"][0]])
    found = run(path, "--spare", "rack", "--replay")
    assert found.exit_code == 0, found.output
    # a model without traffic has even arrivals
    assert "replayed after every loss, hour by hour: 3 of 3 replays meet" in found.stdout
    assert "carried after the loss of any unit" in found.stdout
    assert "no layout more than" in found.stdout
    assert "basis: times measured: profile calibrated; " in found.stdout


def test_hours_that_are_rented_are_counted_per_day_as_their_money_is(tmp_path: Path) -> None:
    units = {"cluster": "hgx-h100", "count": 10, "reserved": 0, "on_demand_usd_per_hour": 25}
    path = written(tmp_path, models=[PLAN["models"][0]], units=[units])
    found = run(path, "--json")
    assert found.exit_code == 0, found.output
    (bought,) = json.loads(found.stdout)["buy"]
    assert bought["on_demand_usd"] == pytest.approx(25 * bought["on_demand_unit_hours"])
    assert f"({bought['on_demand_unit_hours']:g} unit-hours per day)" in run(path).stdout


@pytest.mark.parametrize("own", [True, False])
def test_a_plan_without_a_bound_is_not_said_to_be_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    """Time that ends before a bound left a gap of 0, or an infinite one that no JSON holds."""
    made = day.plan_kept

    def without(*words: Any, **more: Any) -> Any:
        return replace(made(*words, **more), bound_usd=0.0)

    monkeypatch.setattr(day, "bound_of", lambda *words, **more: 0.0)
    if not own:
        monkeypatch.setattr(day, "plan_kept", without)
    path = written(tmp_path, models=[PLAN["models"][0]])
    found = run(path, "--json")
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    assert document["status"] == "feasible"
    assert document["gap"] is None
    assert (document["of_these_layouts"]["gap"] is None) is not own
    said = run(path).stdout
    assert "proven" not in said
    assert "the time ended before a bound" in said
    assert ("of these layouts none costs less than $" in said) is own


def test_hours_are_replayed_after_every_loss(tmp_path: Path) -> None:
    rng = random.Random(1)
    rows = (
        f"{t / 40 + rng.random() / 40:.4f},{rng.choice((400, 900, 2600))},{rng.randint(5, 80)}"
        for t in range(1000)
    )
    text = "\n".join(("t_s,input_tokens,output_tokens", *rows)) + "\n"
    (tmp_path / "trace.csv.gz").write_bytes(gzip.compress(text.encode()))
    model = {
        "model": "llama-3.1-8b", "traffic": "trace.csv.gz", "requests_per_s": [15, 60, 0],
        "slo": {"ttft": "500 ms", "tpot": "30 ms"},
    }  # fmt: skip
    units = [{"cluster": "hgx-h100", "count": 6, "power_cap": "2 kW"}]
    found = run(written(tmp_path, models=[model], units=units), "--replay", "--gap", 0.05, "--json")
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    units_of = {column["name"]: column["units"] for column in document["columns"]}
    serving = [hour["fleet_by_model"]["llama-3.1-8b"] for hour in document["hours"]]
    replays = document["replays"]
    assert {one["hour"] for one in replays} == {0, 1}
    for one in replays:
        left = one["groups"] * units_of[one["column"]]
        assert 0 < left < serving[one["hour"]]["hgx-h100"]
        assert round(one["requests_per_s"], 9) <= [15, 60][one["hour"]]
        assert one["meets"]
        assert one["ttft_p99_s"] <= 0.5
        assert one["tpot_p99_s"] <= 0.03


PLACES = [
    {"cluster": "hgx-h100", "name": "north", "count": 6},
    {"cluster": "hgx-h100", "name": "south", "count": 4},
]


def test_places_of_one_kind_are_searched_once_and_planned_by_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        offers, "offer", lambda model, units, *words, _do=offers.offer, **more: (
            asked.append(f"{model.called} {units.called}") or _do(model, units, *words, **more)
        ),
    )  # fmt: skip
    path = written(tmp_path, units=PLACES)
    whole = run(path, "--json")
    assert whole.exit_code == 0, whole.output
    assert asked == ["llama-3.1-8b north", "short north"]
    monkeypatch.setattr(day, "LARGE", 0)
    parts = run(path, "--json", "--out", tmp_path / "out", "--jobs", 2)
    assert parts.exit_code == 0, parts.output
    one, other = json.loads(whole.stdout), json.loads(parts.stdout)
    assert other["usd_per_day"] == pytest.approx(one["usd_per_day"])
    assert other["bound_usd_per_day"] <= one["bound_usd_per_day"] * (1 + 1e-9)
    for hour in other["hours"]:
        used = [
            sum(own.get(name, 0) for own in hour["fleet_by_model"].values())
            for name in ("north", "south")
        ]
        assert used[0] <= 6
        assert used[1] <= 4
    files = list((tmp_path / "out" / "layouts").iterdir())
    assert 0 < len(files) <= 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"units": [PLACES[0], {**PLACES[1], "name": "north"}]}, "'north' is there twice"),
        ({"models": []}, "models"),
        ({"usd_per_kwh": [0.1, 0.2]}, "p: usd_per_kwh: has 2 hours, expected 3"),
        ({"least_hours": 4}, "p: least_hours: must be at most 3, got 4"),
        ({"spare": 9}, "spare: must be at most 3, got 9"),
        ({"units": [{"cluster": "hgx-h100@2", "count": 1}]}, "name one unit; count says how many"),
        ({"units": [{"cluster": "hgx-h100", "count": 1, "reserved": 2}]}, "expected 0 to 1 units"),
        ({"units": [{"cluster": "hgx-h100", "count": 1, "power_cap": "100 W"}]}, "the limit is 100 W"),
        ({"models": [PLAN["models"][0]] * 2}, "'llama-3.1-8b' is there twice"),
        ({"models": [{"model": "llama-3.1-8b"}]}, "give either requests_per_s or rates"),
        ({"models": [{"model": "llama-3.1-8b", "requests_per_s": [0]}]}, "ask for no request"),
        ({"models": [{"model": "llama-3.1-8b", "requests_per_s": [0, 1e-300]}]},
         "expected a rate of at least 0.000001 requests per second in some hour, got 1e-300 at most"),
        ({"models": [{"model": "llama-3.1-8b", "requests_per_s": [1], "traffic": "chat-poisson"}]},
         "traffic has no target"),
        ({"models": [{"model": "llama-9", "requests_per_s": [1]}]}, "unknown name 'llama-9'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_plan_is_said(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    found = run(written(tmp_path, **changes))
    assert found.exit_code != 0
    assert said in str(found.exception)


def test_a_list_that_is_wrong_in_one_entry_is_not_said_to_be_no_number(tmp_path: Path) -> None:
    found = run(written(tmp_path, usd_per_kwh=[0.1, "dear", 0.2], spare="one"))
    assert isinstance(found.exception, InstanceError)
    assert [str(one) for one in found.exception.problems] == [
        "plan.yaml: spare: expected a whole number, got 'one'",
        "plan.yaml: usd_per_kwh[1]: expected a number, got 'dear'",
    ]


def test_a_price_that_is_refused_is_not_said_to_be_no_list(tmp_path: Path) -> None:
    units = [{**PLAN["units"][0], "on_demand_usd_per_hour": 0}]
    found = run(written(tmp_path, units=units))
    assert isinstance(found.exception, InstanceError)
    (problem,) = found.exception.problems
    assert str(problem) == "plan.yaml: units[0].on_demand_usd_per_hour: must be positive, got 0"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("0,1\n", "expected two rows or more"),
        ("5,1\n10,1\n", "t_s: expected 0 in the first row, got 5"),
        ("0,1\n10,1\n10,2\n", "t_s 10 comes after 10"),
        ("0,1\n10,x\n", "requests_per_s: expected a rate from 0 to 1e9, got 'x'"),
        ("0,1\n1e9,2\n", "t_s: expected at most 744 hours"),
    ],
)
def test_what_is_wrong_with_rates_is_said_with_its_line(
    rows: str, said: str, tmp_path: Path
) -> None:
    path = written(tmp_path)
    (tmp_path / "rates.csv").write_text(f"t_s,requests_per_s\n{rows}")
    found = run(path)
    assert said in str(found.exception)
    assert "rates.csv" in str(found.exception)


def test_an_output_that_cannot_be_written_is_said_before_the_work(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert "not an empty folder" in str(run(path, "--out", tmp_path).exception)
    assert "expected node, rack" in str(run(path, "--spare", "all").exception)
    several = run(path, "--jobs", 0, "--gap", 1, "--time-limit", -1, "--spare", "all").exception
    assert isinstance(several, InstanceError)
    assert [str(one).partition(", got ")[0] for one in several.problems] == [
        "time limit: must be positive seconds",
        "--jobs: must be 1 to 1000, or -1",
        "--gap: must be at least 0 and below 1",
        "--spare: expected node, rack or a number of chips",
    ]


def test_units_that_are_too_few_are_said_with_the_hour(tmp_path: Path) -> None:
    few = [{"cluster": "hgx-h100", "count": 1}]
    found = run(written(tmp_path, units=few, models=[PLAN["models"][0]]))
    message = "(llama-3.1-8b 20 requests/s) is more than all units (1 hgx-h100) carry after the loss of any unit"
    assert message in str(found.exception)
