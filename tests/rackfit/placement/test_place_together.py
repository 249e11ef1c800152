"""``rackfit place --coactivation``: what is saved, on which tokens, drawn, exported and refused."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import rackfit
from costmodel.experts.coactivation import CoActivation, pair_shares, together_copies
from costmodel.experts.dispatch import check_placement
from costmodel.experts.expert_load import read_loads
from rackfit.cli.app import exit_code
from rackfit.cli.commands.place import register
from rackfit.placement.placed import Compared, Judged
from tests.rackfit.exporters.loaders import check_sglang

LAYERS, EXPERTS, TOP_K, TOKENS = 2, 32, 4, 2000
NODES = ("--gpus", 8, "--slots", 40, "--gpus-per-node", 2, "--fast")


@pytest.fixture
def app():
    app = typer.Typer(pretty_exceptions_enable=False)
    register(app)
    app.command("other")(lambda: None)
    return app


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Tokens that follow topics, their counts and their pair counts."""
    folder = tmp_path_factory.mktemp("together")
    rng = np.random.default_rng(0)
    topics = rng.normal(0, 1.5, (LAYERS, 8, EXPERTS))
    topic = rng.integers(8, size=TOKENS)
    score = [topics[layer, topic] + rng.gumbel(size=(TOKENS, EXPERTS)) for layer in range(LAYERS)]
    picks = np.stack([np.argsort(-one, axis=1)[:, :TOP_K] for one in score], axis=1)
    counts = [np.bincount(picks[:, layer].ravel(), minlength=EXPERTS) for layer in range(LAYERS)]
    np.save(folder / "counts.npy", np.array(counts))
    np.save(folder / "tokens.npy", picks)
    np.save(folder / "pairs.npy", np.rint(pair_shares(picks, EXPERTS) * TOKENS))
    return folder


def run(app, *arguments):
    return CliRunner().invoke(app, ["place", *map(str, arguments)])


@pytest.mark.parametrize("dispatch", ["even", "sglang-static"])
def test_tokens_are_searched_in_one_half_and_judged_on_the_other(app, files, dispatch):
    result = run(
        app, files / "counts.npy", "--coactivation", files / "tokens.npy", *NODES,
        "--dispatch", dispatch,
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    told = found["co_activation"]
    assert (told["kind"], told["judged_on"]) == ("tokens", "held-out tokens")
    assert (told["searched_tokens"], told["held_out_tokens"]) == (1000, 1000)
    table = check_placement(found["physical_to_logical"], EXPERTS, 5)
    picks = np.load(files / "tokens.npy")
    known = CoActivation(pair_shares(picks, EXPERTS), TOP_K, "x", picks[:1000], picks[1000:])
    node, first = np.arange(40) // 10, dispatch == "sglang-static"
    for held_out, figure in (
        (True, told["placed"]["cross_node_copies_per_token"]),
        (False, told["placed"]["on_searched_tokens"]),
    ):
        copies = together_copies(table, known, node, local_first=first, held_out=held_out).value
        assert figure == pytest.approx(copies.mean())
    assert found["cross_node_copies_per_token"] == told["placed"]["cross_node_copies_per_token"]
    for other in ("eplb", "random"):
        theirs = told[other]["cross_node_copies_per_token"]
        saving = 1 - found["cross_node_copies_per_token"] / theirs
        assert told["saving"][other] == pytest.approx(saving)
        assert saving > 0.03
        assert f"{saving:.1%} saved" in result.stderr
    assert "1,000 tokens held out" in result.stderr


def test_pair_counts_say_that_nothing_is_held_out(app, files):
    result = run(app, files / "counts.npy", "--coactivation", files / "pairs.npy", *NODES)
    told = json.loads(result.stdout)["co_activation"]
    assert (told["kind"], told["judged_on"]) == ("pairs", "the pairs searched")
    mine = told["placed"]
    assert mine["at_least"] <= mine["cross_node_copies_per_token"] <= mine["at_most"]
    assert mine["on_searched_tokens"] is None
    assert "the same pair counts that were searched" in result.stderr


def test_a_dearer_copy_buys_fewer_copies(files):
    loads = read_loads(files / "counts.npy")
    copies = [
        rackfit.place(
            loads,
            rackfit.PlaceOptions(gpus=8, slots=40, gpus_per_node=2, copy_cost=cost, effort="fast"),
            coactivation=files / "pairs.npy",
        ).copies.mean()
        for cost in (0.0, 5.0)
    ]
    assert copies[1] < copies[0]


def test_the_curve_falls_and_shows_what_is_saved(app, files, tmp_path):
    out, drawn = tmp_path / "p.json", tmp_path / "c.svg"
    result = run(
        app, files / "counts.npy", "--coactivation", files / "pairs.npy", *NODES, "--out", out,
        "--curve", drawn,
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    found = json.loads(out.read_text())
    curve = found["trade_off_by_layer"]
    balance = [point["imbalance"] for point in curve]
    copies = [point["cross_node_copies_per_token"] for point in curve]
    assert len(curve) > 2
    assert balance == sorted(balance)
    assert copies == sorted(copies, reverse=True)
    text = drawn.read_text()
    for other, name in (("eplb", "EPLB"), ("random", "random")):
        saved = found["co_activation"]["saving"][other]
        assert f"{name}: chosen has {saved:.1%} fewer copies" in text


def test_engine_files_are_written_as_without(app, files, tmp_path):
    out = tmp_path / "p.json"
    result = run(
        app, files / "counts.npy", "--coactivation", files / "pairs.npy", *NODES, "--out", out,
        "--format", "sglang",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "copies of a token to other nodes" in result.stderr
    wanted = {"num_layers": LAYERS, "num_experts": EXPERTS, "spare": 8, "chips": 8}
    assert check_sglang(out.read_text(), **wanted) == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (NODES[:4], "--gpus-per-node below --gpus"),
        ((*NODES[:4], "--gpus-per-node", 8), "one node sends no copies"),
        ((*NODES, "--groups", 4), "more than --groups does"),
        (("--gpus", 6, "--slots", 36, "--gpus-per-node", 2), "do not divide over 3 nodes"),
        (("--gpus", 8, "--slots", 41, "--gpus-per-node", 2), "41 slots do not divide over 8 GPUs"),
        ((*NODES, "--max-moves", 3), "not with --current"),
        ((*NODES, "--top-k", 3), "has 4 experts per token"),
    ],
)
def test_requests_that_co_activation_does_not_serve_are_refused(app, files, arguments, why):
    result = run(app, files / "counts.npy", "--coactivation", files / "pairs.npy", *arguments)
    assert exit_code(result.exception) == 2
    assert why in str(result.exception)


def test_several_windows_are_refused_unless_added_up(app, files, tmp_path):
    counts = np.load(files / "counts.npy")
    np.savez(tmp_path / "w.npz", a=counts, b=counts)
    arguments = (tmp_path / "w.npz", "--coactivation", files / "pairs.npy", *NODES)
    refused = run(app, *arguments)
    assert exit_code(refused.exception) == 2
    assert "not 2 windows, or --objective sum" in str(refused.exception)
    assert run(app, *arguments, "--objective", "sum").exit_code == 0


def test_more_copies_are_called_more():
    few, many = (Judged(1.0, copies, None, 0.5, 2.5) for copies in (1.0, 2.0))
    words = Compared("p.npy", 4, 0, 0, 0, placed=many, eplb=few, random=many).text()
    assert "EPLB 1.000, 100.0% more" in words
    assert "random 2.000, 0.0% saved" in words


def test_the_documented_example_runs(app, tmp_path, monkeypatch):
    text = (Path(__file__).resolve().parents[3] / "docs" / "placement.md").read_text()
    line = next(line for line in text.splitlines() if line.startswith("rackfit place counts.npz"))
    monkeypatch.chdir(tmp_path)
    picks = np.argsort(np.random.default_rng(0).random((800, 2, 64)), axis=2)[:, :, :8]
    counts = [np.bincount(picks[:, layer].ravel(), minlength=64) for layer in range(2)]
    np.savez("counts.npz", counts=np.array(counts))
    np.savez("tokens.npz", tokens=picks)
    result = CliRunner().invoke(app, [*shlex.split(line)[1:], "--fast"])
    assert result.exit_code == 0, result.stderr
    assert json.loads(Path("placement.json").read_text())["co_activation"]["kind"] == "tokens"
    assert Path("curve.svg").read_text().startswith("<svg")
