"""The report: what it says is what the evaluator says, and nothing in it is trusted."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from rackfit.api import solve
from rackfit.cli.app import build_app
from rackfit.documents.result import Result
from rackfit.figures import rack_map
from rackfit.figures.live import specs_of
from rackfit.report.report import report_page
from rackfit.report.uncertainty_words import interval_words
from rackfit.wording import at_least, at_most
from topology.catalogue import data_dir
from topology.errors import InstanceError

VOID = {"meta", "link", "br"}


class Checker(HTMLParser):
    """Collects attributes, and refuses tags that do not close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == []
    return checker


def render(result: Result, document: dict[str, Any] | None = None) -> str:
    return report_page(
        result.instance, result.layout, result.evaluation, document or result.as_dict()
    )


def scenario(folder: Path, **more: object) -> str:
    path = folder / "scenario.yaml"
    base = {"model": "llama-3.1-8b", "cluster": "hgx-h100@2", "workload": "chat"}
    path.write_text(yaml.safe_dump(base | {"slo": {"ttft": 2.0, "tpot": 0.03}} | more))
    return str(path)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return solve(scenario(tmp_path_factory.mktemp("report"), failed="r1g3"))


def test_one_file_that_asks_for_nothing(result: Result) -> None:
    text = render(result)
    assert len(text) <= 3_000_000
    for tag, attributes in check(text).seen:
        assert tag not in ("img", "iframe", "object")
        assert tag != "script" or "src" not in attributes
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "data:").startswith("data:")
    head, _, scripts = text.partition("<body>")
    assert "url(" not in head
    assert "@import" not in head
    assert scripts.count("<script") == len(specs_of(text)) + 2
    assert "prefers-color-scheme:dark" in text


def test_headline_is_the_evaluators_and_the_proof_the_searchs(result: Result) -> None:
    text = render(result)
    assert f"${result.evaluation.usd_per_m_output_tokens:,.4f} per million" in text
    assert f"${at_least(result.certificate.bound_usd_per_m_output_tokens)}. This one" in text
    assert f"costs at most {at_most(result.certificate.gap)} more" in text


def test_every_chip_is_on_the_map_with_its_memory(result: Result) -> None:
    said = re.findall(r"<title>(r\d+g\d+): ([^<]*)</title>", render(result))
    assert [chip for chip, _ in said] == [chip.id for chip in result.instance.cluster.chips]
    by_chip = dict(said)
    assert by_chip["r1g3"] == "h100, failed"
    memory = result.as_dict()["memory"]
    assert "r1g3" not in memory
    for chip, kinds in memory.items():
        used = sum(size for kind, size in kinds.items() if kind != "capacity")
        assert f"; {used / 1e9:.1f} of {kinds['capacity'] / 1e9:.1f} GB used" in by_chip[chip]


def test_large_clusters_say_what_is_not_drawn(
    result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rack_map, "MAX_CHIPS", 8)
    text = render(result)
    assert "8 more chips are not drawn" in text
    assert "<title>r1g0" not in text


def test_a_certificate_of_another_instance_is_not_shown(result: Result) -> None:
    document = result.as_dict()
    document["instance"]["digest"] = "0" * 64
    text = render(result, document)
    assert "No certificate: the instance has changed" in text
    assert "Proven" not in text
    assert "No certificate came" in render(result, {"instance": {"digest": result.instance.digest}})


def test_a_broken_certificate_is_bad_input(result: Result) -> None:
    document = result.as_dict()
    document["certificate"]["gap"] = "<b>none</b>"
    with pytest.raises(InstanceError, match=r"certificate\.gap"):
        render(result, document)


def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    bad = "<script>alert('x')</script>\"'&"
    cluster = yaml.safe_load((data_dir("clusters") / "hgx-h100.yaml").read_text())
    cluster |= {"name": bad, "notes": [bad], "sources": [bad]}
    cluster["domains"][0]["rack"] = bad
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(cluster))
    text = render(solve(scenario(tmp_path, cluster=str(path))))
    check(text)
    assert "<script>alert" not in text
    assert "&lt;script&gt;" in text


def test_command_line_lists_broken_rules(result: Result, tmp_path: Path) -> None:
    layout, out = tmp_path / "layout.json", tmp_path / "report.html"
    result.write(layout)
    run = CliRunner().invoke(build_app(), ["report", str(layout), "--out", str(out)])
    assert run.exit_code == 0, run.stderr
    check(out.read_text())
    assert "rules broken" not in out.read_text()
    document = json.loads(layout.read_text())
    document["layout"]["replicas"][0]["stages"][0]["layers"][1] -= 1
    layout.write_text(json.dumps(document))
    run = CliRunner().invoke(build_app(), ["report", str(layout), "--out", str(out)])
    assert run.exit_code == 1
    assert "rules broken" in out.read_text()


def test_solve_writes_the_same_report(tmp_path: Path) -> None:
    layout, one, two = (tmp_path / name for name in ("layout.json", "one.html", "two.html"))
    command = ["solve", scenario(tmp_path), "--out", str(layout), "--report", str(one)]
    assert CliRunner().invoke(build_app(), command).exit_code == 0
    again = ["report", str(layout), "--out", str(two)]
    assert CliRunner().invoke(build_app(), again).exit_code == 0
    assert one.read_text() == two.read_text()


def test_every_section_of_figures_says_what_they_rest_on(result: Result) -> None:
    known = result.evaluation.provenance
    assert known is not None
    text = render(result)
    for title, names in {
        "What binds": ("times", "bytes"), "What to deploy": ("times",), "Where everything is": ("bytes",),
        "Time of one pass by kind": ("times",), "Roofline": ("times",), "Link loads": ("bytes",),
    }.items():  # fmt: skip
        section = text.split(f"<h2>{title}</h2>")[1].split("<h2>")[0]
        said = " ".join(re.findall(r'<p class="note basis">Basis: ([^<]*)</p>', section))
        for name in names:
            assert f"{name} {known[name]}" in said, title
    headline = text.split("<h2>")[0]
    assert f"money {known['money']}" in headline
    assert re.match("published: ", known["money"])


def test_the_headline_says_how_fast_it_is(result: Result) -> None:
    found = result.evaluation
    assert found.ttft_s is not None
    assert found.tpot_s is not None
    headline = render(result).split("<h2>")[0]
    assert f"after {found.ttft_s * 1e3:,.0f} ms at worst" in headline
    assert f"(TPOT) {found.tpot_s * 1e3:,.2f} ms" in headline


def test_what_the_proof_leaves_out_is_not_said_to_be_covered(result: Result) -> None:
    rows = dict.fromkeys(
        re.findall(r"<tr><td>(the proof [^<]*)</td><td[^>]*>([^<]*)", unescape(render(result)))
    )
    left_out = [line for line in result.certificate.covers if line.startswith("not covered: ")]
    assert left_out
    for line in left_out:
        assert ("the proof leaves out", line.removeprefix("not covered: ")) in rows
    assert not [said for head, said in rows if said.startswith("not covered")]


@pytest.mark.parametrize(
    ("cluster", "heads", "cells"),
    [
        # with no word of cut experts a replica of six chips seemed to have one group of one chip
        ({"model": "gpt-oss-120b", "cluster": "hgx-h200", "engine": "vllm", "slo": {"tpot": 0.006}}, ["slots"], ["cut"]),
        ({"model": "gpt-oss-20b", "cluster": "hgx-h800-h20", "slo": {"tpot": 0.02}}, ["kind"], ["h20", "h800"]),
    ],
)  # fmt: skip
def test_cut_experts_and_kinds_of_chips_are_told(
    tmp_path: Path, cluster: dict[str, Any], heads: list[str], cells: list[str]
) -> None:
    found = solve(scenario(tmp_path, **cluster), gap=0.05, beside=False)
    text = render(found)
    section = text.split("<h2>What to deploy</h2>")[1].split("<h2>")[0]
    for head in heads:
        assert f'<th scope="col">{head}</th>' in section
    for cell in cells:
        assert f"<td>{cell}</td>" in section
    said = "every chip of a stage has a slice of each expert" in section
    assert said == any(replica.cuts_experts for replica in found.layout.replicas)
    for domain in found.instance.cluster.domains:
        assert f"chips ({domain.chips[0].chip.name}), " in text


def test_a_range_whose_ends_are_equal_is_told_once(result: Result) -> None:
    """At a rate that is asked for it read ``3,000 to 3,000 output tokens/s; $1.0444 to $1.0444``."""
    found = result.evaluation.intervals
    assert found is not None
    met = replace(
        found, output_tokens_per_s=(3000.0, 3000.0), usd_per_m_output_tokens=(1.0444, 1.0444)
    )
    words = interval_words(met)
    assert "3,000 to" not in words
    assert "$1.0444 to" not in words
    assert "3,000 output tokens/s, as asked for" in words
    assert " to " in interval_words(found).split("output tokens/s")[0].split(";")[-1]
