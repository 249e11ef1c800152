"""What commands say of an answer is so: what is compared, what is rounded, what differs, what is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from costmodel.change.loading import loading
from costmodel.change.weights import weights_by_chip
from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.cli.app import build_app
from rackfit.documents.notebook import answer_html
from rackfit.documents.result import read_result
from rackfit.importers.deployment import import_deployment
from rackfit.report.compare import built_words, compare
from rackfit.report.render import replica_groups
from rackfit.report.report_figures import deployment
from rackfit.studies.base import experts_words, varied
from rackfit.studies.point import evaluated_row
from rackfit.studies.questions.scale_up import STUDY
from tests.costmodel.replica.test_cut_experts import layout as cut_layout
from topology.errors import InstanceError

QUESTION = ("--model", "deepseek-v2-lite", "--cluster", "hgx-h100")


def rackfit(*args: object) -> Result:
    result = CliRunner().invoke(build_app(), [str(arg) for arg in args])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layouts of unlike targets, and a launch folder of the first."""
    path = tmp_path_factory.mktemp("words")
    for name, more in (("slow", ("--engine", "sglang")), ("quick", ())):
        tpot = "20 ms" if name == "slow" else "5 ms"
        rackfit("solve", *QUESTION, *more, "--tpot", tpot, "--out", path / f"{name}.json")
    rackfit("export", path / "slow.json", "--to", "sglang", "--out", path / "launch")
    return path


def test_one_file_is_no_files(folder: Path) -> None:
    out = folder / "one.json"
    done = rackfit("export", folder / "slow.json", "--to", "json", "--out", out)
    assert f"1 file written to {out}" in done.stderr


def test_what_runs_is_written_with_the_question_that_was_priced(folder: Path) -> None:
    out = folder / "runs.json"
    rackfit(
        "evaluate",
        folder / "launch",
        "--from",
        "sglang",
        *QUESTION,
        "--engine",
        "sglang",
        "--out",
        out,
    )
    again = rackfit("evaluate", out, "--json")
    assert "has changed" not in again.stderr
    assert json.loads(again.stdout)["evaluation"] == json.loads(out.read_text())["evaluation"]


def test_diff_names_the_field_in_which_two_answers_ask_different_questions(folder: Path) -> None:
    said = rackfit("diff", folder / "slow.json", folder / "quick.json")
    assert "answer different questions: slo.tpot: 0.02 and 0.005" in said.stderr
    assert "answer different questions: engine: sglang and not given" in said.stderr
    assert said.stderr.count("different questions") == 2
    assert "different questions" not in rackfit("diff", *[folder / "slow.json"] * 2).stderr


@pytest.fixture(scope="module")
def sides() -> list[tuple[Instance, Layout, Evaluation]]:
    """A mixed replica on four chips with whole experts, and one that cuts them."""
    asked = {"model": "qwen3-30b-a3b", "cluster": "hgx-h200", "workload": "chat"}
    instance = resolve_instance(Scenario.model_validate(asked))
    layouts = [cut_layout(instance, cut=cut, tp=2, ranks=2) for cut in (False, True)]
    return [(instance, layout, evaluate(instance, layout)) for layout in layouts]


def test_diff_says_which_replicas_cut_their_experts(
    sides: list[tuple[Instance, Layout, Evaluation]],
) -> None:
    """They read as `ep 1`, as if each chip had all experts."""
    assert compare(sides[0], sides[1]).replicas == {
        "mixed tp 2, ep 4, pp 1, attention dp 2, batch 64": -1,
        "mixed tp 2, experts cut over 4, pp 1, attention dp 2, batch 64": 1,
    }
    assert built_words(sides[1][1]) == "1 x mixed tp 2 experts cut over 4 pp 1 attention dp 2"


def test_tables_say_which_replicas_cut_their_experts(
    sides: list[tuple[Instance, Layout, Evaluation]],
) -> None:
    """Tables of studies, of reports and of notebooks had an `ep` of 1."""
    rows = [evaluated_row(*side) for side in sides]
    assert [row["experts_on"] for row in rows] == ["EP 4", "cut over 4"]
    assert [experts_words(row) for row in rows] == ["EP 4", "experts cut over 4"]
    for (instance, layout, evaluation), cell in zip(sides, ("4", "cut"), strict=True):
        built = deployment(instance, evaluation, replica_groups(layout, evaluation))
        assert f"<td>2</td><td>2</td><td>{cell}</td>" in built
        shown = answer_html(instance, layout, evaluation, status="optimal", gap=0.0)
        assert f"<td>4</td><td>2</td><td>{cell}</td>" in shown


def test_diff_refuses_a_second_layout_that_cannot_be_priced(folder: Path, tmp_path: Path) -> None:
    """As one is whose chip has died; what was may be broken, what would be may not."""
    document = json.loads((folder / "quick.json").read_text())
    document["instance"]["scenario"]["failed"] = ["r0g0"]
    (tmp_path / "dead.json").write_text(json.dumps(document))
    words = ["diff", str(folder / "slow.json"), str(tmp_path / "dead.json")]
    refused = CliRunner().invoke(build_app(), words).exception
    assert isinstance(refused, InstanceError)
    assert "the second layout: replicas[0]: chips_usable: chip r0g0 is failed" in str(refused)
    assert (
        "bytes_to_load"
        in rackfit("diff", tmp_path / "dead.json", folder / "quick.json", "--json").stdout
    )


def test_diff_gives_bytes_and_time_to_load(folder: Path) -> None:
    found = json.loads(
        rackfit("diff", folder / "slow.json", folder / "quick.json", "--json").stdout
    )
    assert found["bytes_to_load"] > 0
    assert found["load_s"] > 0
    same = json.loads(rackfit("diff", *[folder / "slow.json"] * 2, "--json").stdout)
    assert same["bytes_to_load"] == 0
    sides = [read_result(folder / f"{name}.json") for name in ("slow", "quick")]
    # to chips that hold nothing, all weights move; an expert that stays does not
    instance, after, _ = sides[1]
    judged = evaluate(instance, after)
    whole = loading(sides[0][1], instance, after, judged, same_model=False)
    weights = sum(
        float(np.sum(stage.memory["weights"]) + np.sum(stage.memory["experts"]))
        for price in judged.priced.replicas
        for stage in price.stages
    )
    moe = instance.operations.moe
    assert moe is not None
    twice = weights - whole.total_bytes  # copies of an expert on one chip are loaded once
    assert 0 <= twice < 0.1 * weights
    held = weights_by_chip(sides[0][1])
    fresh = sum(
        len(own.experts - held[chip].experts if chip in held else own.experts)
        for chip, own in weights_by_chip(after).items()
    )
    assert found["expert_copies_to_load"] == fresh
    assert found["bytes_to_load"] == pytest.approx(fresh * moe.expert_bytes)


def test_place_prints_balance_before_and_after(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "loads.npz", a=rng.lognormal(0, 1, (2, 16)) * 1000)
    out = tmp_path / "placed.json"
    said = rackfit(
        "place", tmp_path / "loads.npz", "--gpus", 4, "--slots", 20, "--fast", "--out", out
    )
    after = float(np.mean(json.loads(out.read_text())["imbalance"]["per_layer"]))
    assert f"{after:.3f} in {out}" in said.stderr
    before = float(said.stderr.split("mean of layers: ")[1].split(" as engines start")[0])
    assert before > after


def test_a_batch_that_is_rounded_is_said_to_be(tmp_path: Path) -> None:
    command = "vllm serve /models/m --pipeline-parallel-size 4 --max-num-seqs 5\n"
    (tmp_path / "commands.sh").write_text(command)
    instance = resolve_instance(Scenario(model="llama-3.1-8b", cluster="hgx-h100", workload="chat"))
    notes = import_deployment(instance, "vllm", tmp_path / "commands.sh").notes
    assert any("4 sequences are priced for 5" in note for note in notes)


def test_the_line_on_uneven_load_says_what_is_compared() -> None:
    said = rackfit("solve", *QUESTION, "--output-tokens", 1, "--input-tokens", 500).stdout
    assert "than if each stage spread the same expert load" in said
    assert "one token is charged a decode step" in said


def test_scale_up_divides_no_cost_at_one_target_by_one_at_another() -> None:
    def row(size: int, tpot: float, cost: float) -> dict[str, object]:
        own = {"cluster.domain_size": size, "slo.tpot": tpot, "domain_size": size, "error": ""}
        shape = {"ep": size, "domains_per_stage": 1, "gap": 0.0, "sequences_per_chip": 1.0}
        return {
            **own, **shape, "usd_per_m_output_tokens": cost, "bound_usd_per_m_output_tokens": cost,
            "time_dispatch_s": 1e-3, "time_routed_experts_s": 1e-3,
        }  # fmt: skip

    rows = [row(8, 0.02, 3.0), row(72, 0.02, 2.0), row(8, 0.05, 1.5), row(72, 0.05, 1.0)]
    said = STUDY.conclude(rows)
    ratios = [line.split("cost ")[1].split(" times")[0] for line in said if " times that" in line]
    assert ratios == ["1.50", "1.50"]
    assert said[0].startswith("slo.tpot 0.02: ")
    names = [series.name for series in STUDY.figures(rows)[0].series]
    assert "cheapest layout, slo.tpot 0.02" in names
    assert list(varied(rows[:2], ())) != [""]


def test_targets_do_not_label_rows_of_scale_up_that_do_not_follow_them() -> None:
    for block in STUDY.blocks({}, {"slo.tpot": [0.01, 0.02]}):
        assert ("slo.tpot" in block) == ("cluster.domain_size" in block)


def test_help_names_what_to_install() -> None:
    assert "rackfit[calibrate]" in rackfit("calibrate", "--help").stdout
