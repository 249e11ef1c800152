"""``rackfit solve`` of a scenario with several models: what it prints and writes, and what is refused where."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner, Result

import rackfit
from costmodel.evaluate import evaluate
from rackfit.cli.app import build_app, exit_code
from rackfit.documents.result import read_result
from rackfit.documents.schema import FOLDER
from topology.errors import InstanceError, NoFeasibleLayout, RackfitError

NAME = "llama-8b-and-70b-h200"
SMALL = {"model": "llama-3.1-8b", "workload": "chat", "slo": {"tpot": "20 ms"}, "rate": 8}
LARGE = {"model": "llama-3.1-70b", "workload": "chat", "slo": {"tpot": "40 ms"}, "rate": 1.5}


def run(*words: object) -> Result:
    return CliRunner().invoke(build_app(), list(map(str, words)))


def refused(found: Result) -> tuple[int, str]:
    """Exit code and message of a command that was refused."""
    assert isinstance(found.exception, RackfitError), found.output
    return exit_code(found.exception), str(found.exception)


def written(folder: Path, *models: object, **changes: Any) -> Path:
    path = folder / "several.yaml"
    path.write_text(yaml.safe_dump({"cluster": "hgx-h200", "models": list(models), **changes}))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The 8B and the 70B model on one node of eight H200: the document, and the folder it was written into."""
    folder = tmp_path_factory.mktemp("together") / "out"
    found = run("solve", NAME, "--json", "--out", folder)
    assert found.exit_code == 0, found.output
    assert json.loads((folder / "together.json").read_text()) == json.loads(found.stdout)
    return json.loads(found.stdout), folder


def test_both_models_of_a_node_are_proven(made: tuple[dict[str, Any], Path]) -> None:
    document, _ = made
    jsonschema.validate(document, json.loads((FOLDER / "together.schema.json").read_text()))
    proof = document["certificate"]
    assert document["status"] == "optimal"
    assert proof["bound_headroom"] is None
    assert document["usd_per_hour"] == pytest.approx(
        proof["bound_usd_per_hour"] * (1 + proof["gap"])
    )
    assert proof["gap"] <= 0.01
    alone = sum(one["bound_alone_usd_per_hour"] for one in document["models"])
    assert proof["bound_usd_per_hour"] >= alone * (1 - 1e-9)
    assert document["usd_per_hour"] == pytest.approx(
        sum(one["usd_per_hour"] for one in document["models"])
    )
    assert [one["name"] for one in document["models"]] == ["llama-8b", "llama-70b"]
    growth = min(one["most_requests_per_s"] / one["rate"] for one in document["models"])
    assert document["headroom"] == pytest.approx(growth)
    assert growth >= 1


def test_each_layout_stands_beside_the_others(made: tuple[dict[str, Any], Path]) -> None:
    document, folder = made
    schema = json.loads((FOLDER / "result.schema.json").read_text())
    used: list[set[str]] = []
    for one in document["models"]:
        path = folder / one["file"]
        assert json.loads(path.read_text()) == one["result"]
        jsonschema.validate(one["result"], schema)
        instance, layout, _ = read_result(path)
        judged = evaluate(instance, layout)
        assert judged.feasible
        assert judged.usd_per_hour == pytest.approx(one["usd_per_hour"])
        used.append({chip for replica in layout.replicas for chip in replica.chips})
        taken = {placed.id for placed in instance.cluster.chips if not placed.usable}
        others = {
            chip
            for other in document["models"]
            if other is not one
            for replica in other["result"]["layout"]["replicas"]
            for stage in replica["stages"]
            for chip in stage["chips"]
        }
        assert taken == others
        assert run("export", path, "--to", "json").exit_code == 0
    assert not used[0] & used[1]
    assert len(used[0] | used[1]) == document["chips_used"] <= document["chips_total"] == 8


def test_the_words_name_money_proof_and_files(tmp_path: Path) -> None:
    found = run("solve", NAME, "--out", tmp_path / "out")
    assert found.exit_code == 0, found.output
    assert "2 models on 7 of 8 chips, only these are paid: $9.87/h" in found.stdout
    assert "No division of the chips that the proof covers costs less than $9.87/h" in found.stdout
    for name in ("llama-8b", "llama-70b"):
        assert f"in layouts/{name}.json" in found.stdout
    assert "basis: times measured: profile calibrated; money published: " in found.stdout


def test_the_next_step_exports_for_the_engine_of_the_model(tmp_path: Path) -> None:
    """It named SGLang whatever the model's engine was, and SGLang may refuse what another engine runs."""
    path = written(tmp_path, {**SMALL, "engine": "vllm"})
    found = run("solve", path, "--out", tmp_path / "out")
    (command,) = re.findall(r"next: rackfit (export .*)$", found.stderr, re.MULTILINE)
    assert command.endswith("llama-3.1-8b.json --to vllm --out launch")
    words = command.removesuffix("launch").split()
    assert run(*words, tmp_path / "launch").exit_code == 0


def test_a_cluster_that_is_paid_whole_grows_with_all_rates() -> None:
    used, whole = (
        rackfit.solve_together(rackfit.load_together(NAME).model_copy(update={"pay": pay}))
        for pay in ("used", "whole")
    )
    assert whole.status == "optimal"
    assert whole.judged.headroom > used.judged.headroom
    assert whole.judged.headroom <= whole.bound * (1 + 1e-9)
    prices = [placed.chip.usd_per_hour for placed in whole.models.instances[0].cluster.usable]
    assert whole.judged.usd_per_hour == pytest.approx(sum(prices))
    for figures, rate in zip(whole.judged.evaluations, whole.models.rates, strict=True):
        assert figures.priced.requests_per_s >= rate * whole.judged.headroom * (1 - 1e-9)


def test_all_problems_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    wrong = [
        SMALL | {"name": "a"},
        {key: value for key, value in LARGE.items() if key != "rate"} | {"name": "a", "modle": 1},
        SMALL | {"rate": -1},
    ]
    code, said = refused(run("solve", written(tmp_path, *wrong, clusters="x")))
    assert code == 2
    for part in (
        "models[1].rate: is missing",
        "models[1].modle: unknown key",
        "models[2].rate: must be above 0, got -1",
        "clusters: unknown key",
        "models: 'a' is there 2 times: give each a name of its own",
    ):
        assert f"several.yaml: {part}" in said


def test_all_problems_of_names_are_told_at_once(tmp_path: Path) -> None:
    wrong = [
        SMALL | {"model": "llama-9"},
        LARGE | {"engine": "any"},
        SMALL | {"workload": {"input_tokens": 10, "output_tokens": 10_000_000}},
        SMALL
        | {
            "name": "b",
            "workload": {
                "input_tokens": 100,
                "output_tokens": 9,
                "hold_s": 60,
                "cached_tokens": 50,
                "return_rate": 0.5,
            },
        },
    ]
    code, said = refused(run("solve", written(tmp_path, *wrong)))
    assert code == 2
    assert "models[0]" in said
    assert "unknown name 'llama-9'" in said
    assert "models[1].engine: any is for one model" in said
    assert "models[2].workload" in said
    assert "models[3].workload.hold_s: idle KV is planned for one model alone" in said
    code, said = refused(run("solve", written(tmp_path, SMALL, LARGE, cluster="hgx-h2000")))
    assert code == 2
    assert said.count("unknown name 'hgx-h2000'") == 1


def test_why_nothing_fits_is_told_by_model(tmp_path: Path) -> None:
    many = [SMALL | {"rate": 1000}, LARGE | {"rate": 500}]
    code, said = refused(run("solve", written(tmp_path, *many)))
    assert code == 1
    for name, rate in (("llama-3.1-8b", 1000), ("llama-3.1-70b", 500)):
        assert f"{name}: no layout of {name} on hgx-h200" in said
        assert f"Rate: {rate:,} requests/s are asked for" in said


@pytest.mark.parametrize("pay", ["used", "whole"])
def test_models_that_fit_alone_but_not_together_are_told(tmp_path: Path, pay: str) -> None:
    path = written(tmp_path, SMALL | {"rate": 16}, LARGE | {"rate": 3}, pay=pay)
    with pytest.raises(NoFeasibleLayout) as error:
        rackfit.solve_together(path)
    assert error.value.proven
    said = str(error.value)
    assert "each model fits alone, but not all together on hgx-h200: of its 8 chips" in said
    assert "llama-3.1-8b at least $" in said
    assert "llama-3.1-70b at least $" in said
    found = re.search(
        r"No division of the chips serves more than ([0-9.]+) times these rates", said
    )
    assert found is not None
    most = float(found[1])
    assert most < 1
    fewer = written(tmp_path, SMALL | {"rate": 16 * most * 0.95}, LARGE | {"rate": 3 * most * 0.95})
    assert rackfit.solve_together(fewer).judged.headroom >= 1


def test_the_folder_of_several_models_is_no_layout(
    made: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    _, folder = made
    code, said = refused(run("evaluate", folder))
    assert (code, said) == (2, f"{folder}: is a folder: name one of its layouts/*.json")
    code, said = refused(run("report", folder / "together.json", "--out", tmp_path / "r.html"))
    assert code == 2
    assert said.startswith(
        f"{folder / 'together.json'}: holds several models: name one of layouts/*.json"
    )
    code, said = refused(run("evaluate", tmp_path))
    assert said.startswith(f"{tmp_path}: is a folder: name the layout in it")
    assert refused(run("evaluate", tmp_path / "none"))[1].endswith("none: no such file")


def test_what_is_advised_of_one_of_several_models_can_be_followed(tmp_path: Path) -> None:
    with pytest.raises(NoFeasibleLayout) as found:
        rackfit.solve_together(written(tmp_path, SMALL | {"rate": 100_000}, LARGE))
    assert "rackfit explain, asked about this model alone, says which rate" in str(found.value)


@pytest.mark.parametrize("command", ["explain", "size", "study"])
def test_other_commands_say_that_they_take_one_model(command: str) -> None:
    words = {
        "size": ["size", NAME, "--buy", "hgx-h200", "--rate", "1"],
        "study": ["study", "frontier", NAME],
        "explain": ["explain", NAME],
    }
    code, said = refused(run(*words[command]))
    assert code == 2
    assert "has several models: only rackfit solve and rackfit.solve_together take it" in said
    with pytest.raises(InstanceError, match="has several models"):
        rackfit.solve(NAME)


def test_options_of_one_model_are_refused(tmp_path: Path) -> None:
    words = ["--rate", "3", "--tpot", "20ms", "--traffic", "chat-poisson", "--confidence", "0.9"]
    code, said = refused(run("solve", NAME, *words, "--report", tmp_path / "r.html"))
    assert code == 2
    for option in ("--rate", "--tpot", "--traffic"):
        assert f"{option}: is of one model; of several, say it in the file" in said
    assert "--report: is of one layout: name --out FOLDER, then rackfit report on each of" in said
    assert "--confidence: is of one model" in said
    assert not list(tmp_path.iterdir())
    (tmp_path / "full").write_text("x")
    assert refused(run("solve", NAME, "--out", tmp_path))[0] == 2
