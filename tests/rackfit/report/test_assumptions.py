"""What an evaluation says that its times and its money assume, and how it reaches people."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance, Scenario, resolve_instance
from costmodel.question.workload import Workload
from rackfit.report.render import print_evaluation
from rackfit.report.report import report_page
from rackfit.studies.base import basis_words
from rackfit.studies.run import study
from topology.catalogue import data_dir


def question(cluster: str, **other: Any) -> Instance:
    return resolve_instance(
        Scenario(
            model="llama-3.1-8b",
            cluster=cluster,
            workload=Workload(input_tokens=1000, output_tokens=200),
            **other,
        )
    )


def judged(instance: Instance) -> Evaluation:
    return evaluate(instance, plain_layout(instance, "mixed", tp=1, batch=8))


def test_a_chip_that_was_measured_and_priced_assumes_nothing() -> None:
    assert judged(question("hgx-h100")).assumed == ()


def test_a_chip_without_measured_runs_assumes_its_efficiency() -> None:
    found = judged(question("gaudi3"))
    assert "efficiency (no run on it was measured) of gaudi3" in found.assumed
    # of which runs were published that no fit saw
    (said,) = judged(question("mi355x")).assumed
    assert said == "efficiency (published runs alone) of mi355x"
    # physics takes nothing from runs
    assert judged(question("mi355x", profile="physics")).assumed == ()


def test_a_price_without_a_source_is_assumed_unless_the_cluster_file_gives_one(
    tmp_path: Path,
) -> None:
    assert "price of h20" in judged(question("hgx-h20", profile="physics")).assumed
    own = tmp_path / "own.yaml"
    spec = yaml.safe_load((data_dir("clusters") / "hgx-h20.yaml").read_text())
    spec["domains"][0]["chips"][0]["usd_per_hour"] = 1.1
    own.write_text(yaml.safe_dump(spec))
    found = judged(question(str(own), profile="physics"))
    assert not [words for words in found.assumed if "price" in words]
    assert found.provenance is not None
    assert found.provenance["money"] == "as the cluster file says"


def test_what_is_assumed_stands_in_the_headline(capsys: Any) -> None:
    instance = question("mi355x")
    layout = plain_layout(instance, "mixed", tp=1, batch=8)
    found = evaluate(instance, layout)
    print_evaluation(instance, layout, found)
    printed = " ".join(capsys.readouterr().out.split())
    words = "efficiency (published runs alone) of mi355x"
    assert f"assumed {words} throughput" in printed
    page = report_page(instance, layout, found, {})
    headline = page.split('class="headline"')[1].split("</div>")[0]
    assert words in headline


def test_tables_and_charts_of_studies_say_what_they_assume_and_that_prices_differ() -> None:
    result = study(
        "compare",
        {
            "model": "llama-3.1-8b",
            "cluster": "hgx-h100",
            "workload": {"input_tokens": 1000, "output_tokens": 200},
        },
        over={"cluster": ["hgx-h100", "tpu-v6e-2x2"]},
        jobs=1,
    )
    first, second = result.rows
    assert first["assumed"] == ""
    assert "tpu-v6e" in second["assumed"]
    assumed, prices = basis_words(result.rows)
    assert assumed.startswith("Assumed: efficiency (published runs alone) of tpu-v6e")
    assert prices.startswith("Prices do not rest on one basis: ")
    assert {assumed, prices} <= set(result.conclusion)
    (figure,) = result.figures().values()
    title = figure.split("role-title-subtitle", 1)[1]
    shown = " ".join(part.split("<")[0] for part in re.split("<(?:text|tspan)[^>]*>", title)[1:])
    assert "tpu-v6e" in shown
    assert "one basis" in shown
    assert not basis_words([first])
