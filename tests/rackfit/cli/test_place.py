"""``rackfit place`` end to end: documents, engine files and their loading checks, bad input, fuzz."""

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from costmodel.experts.dispatch import check_placement, chip_loads, imbalance
from costmodel.experts.expert_load import read_loads, skewed_load
from rackfit.cli.app import exit_code
from rackfit.cli.commands.place import register
from tests.rackfit.exporters.loaders import check_sglang
from topology.catalogue import data_dir
from topology.errors import InstanceError, RackfitError

LOADS = skewed_load(4, 32, seed=0) * 1000


@pytest.fixture
def app():
    app = typer.Typer(pretty_exceptions_enable=False)
    register(app)
    app.command("other")(lambda: None)
    return app


@pytest.fixture
def counts(tmp_path):
    np.save(tmp_path / "counts.npy", LOADS)
    return str(tmp_path / "counts.npy")


def run(app, *arguments):
    return CliRunner().invoke(app, ["place", *map(str, arguments)])


def test_document_agrees_with_the_evaluator(app, counts):
    result = run(app, counts, "--gpus", 8, "--slots", 40)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    table = check_placement(found["physical_to_logical"], 32, 5)
    ratio = imbalance(chip_loads(table, LOADS, 5))
    np.testing.assert_allclose(found["imbalance"]["per_layer"], ratio)
    assert found["imbalance"]["mean"] == pytest.approx(ratio.mean())
    np.testing.assert_array_equal(
        found["replicas"], [np.bincount(row, minlength=32) for row in table]
    )
    np.testing.assert_allclose(np.array(found["bound"]) * (1 + np.array(found["gap"])), ratio)
    assert found["cross_node_copies_per_token"] == 0
    assert found["wall_s"] > 0


def test_same_seed_same_output(app, counts):
    first, second = (
        json.loads(run(app, counts, "--gpus", 8, "--slots", 40).stdout) for _ in range(2)
    )
    assert first["physical_to_logical"] == second["physical_to_logical"]


@pytest.mark.parametrize("dispatch", ["even", "sglang-static", "lp"])
def test_nodes_and_groups_report_copies_and_the_trade_off(app, counts, dispatch):
    result = run(
        app, counts, "--gpus", 8, "--slots", 40, "--gpus-per-node", 2, "--groups", 4,
        "--top-groups", 2, "--top-k", 4, "--dispatch", dispatch, "--fast",
    )  # fmt: skip
    found = json.loads(result.stdout)
    assert 0 < found["cross_node_copies_per_token"] < 4
    assert len(found["trade_off"]) > 2
    check_placement(found["physical_to_logical"], 32, 5)


NODES = ("--gpus-per-node", 2, "--groups", 4, "--top-groups", 2, "--top-k", 4)


def test_a_time_limit_ends_the_search_over_nodes(app, counts):
    """One point of the trade-off is found anyway: nodes are never left out."""
    words = (counts, "--gpus", 8, "--slots", 40, *NODES, "--fast", "--time-limit", 1e-6)
    assert len(json.loads(run(app, *words).stdout)["trade_off"]) == 2


def test_windows_that_are_placed_without_regard_to_nodes_are_told(app, counts, tmp_path):
    np.savez(tmp_path / "two.npz", a=LOADS, b=LOADS)
    for loads, more, told in (
        (tmp_path / "two.npz", (), True),
        (tmp_path / "two.npz", ("--objective", "sum"), False),
        (counts, (), False),
    ):
        said = run(app, loads, "--gpus", 8, "--slots", 40, *NODES, "--fast", *more).stderr
        assert ("2 windows are placed for balance alone" in said) is told


def test_the_trade_off_is_drawn(app, counts, tmp_path):
    options = ("--gpus", 8, "--slots", 40, "--fast", "--out", tmp_path / "p.json")
    nodes = ("--gpus-per-node", 2, "--groups", 4, "--top-groups", 2, "--top-k", 4)
    assert run(app, counts, *options, *nodes, "--curve", tmp_path / "c.svg").exit_code == 0
    points = json.loads((tmp_path / "p.json").read_text())["trade_off"]
    drawn = (tmp_path / "c.svg").read_text()
    assert drawn.startswith("<svg")
    assert drawn.count('aria-roledescription="point"') >= len(points)


def test_a_curve_that_cannot_be_drawn_is_refused_before_the_search(
    app, counts, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        "rackfit.placement.alike.choose_placement", lambda *_: pytest.fail("searched")
    )
    nodes = ("--gpus-per-node", 2, "--groups", 4, "--top-groups", 2, "--top-k", 4)
    np.savez(tmp_path / "two.npz", a=LOADS, b=LOADS)
    out = tmp_path / "p.json"
    for loads, more, curve, why in (
        (counts, (), "c.svg", "--groups above 1"),
        (counts, ("--gpus-per-node", 8, *nodes[2:]), "c.svg", "--gpus-per-node below --gpus"),
        (tmp_path / "two.npz", nodes, "c.svg", "one workload"),
        (counts, nodes, "c.png", "SVG"),
        (counts, nodes, "missing/c.svg", "does not exist"),
        (counts, (*nodes, "--current", counts, "--max-moves", 3), "c.svg", "no --current"),
        (counts, (*nodes, "--out", tmp_path / "p.svg"), "p.svg", "is written twice"),
    ):
        refused = run(
            app, loads, "--gpus", 8, "--slots", 40, "--out", out, *more, "--curve", tmp_path / curve
        )
        assert exit_code(refused.exception) == 2, curve
        assert why in str(refused.exception)
        assert not (tmp_path / curve).exists()
    assert not out.exists()


def test_several_windows_are_placed_together(app, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "w.npz", a=LOADS, b=LOADS * rng.lognormal(0, 0.5, LOADS.shape))
    found = {
        objective: json.loads(
            run(
                app, tmp_path / "w.npz", "--gpus", 8, "--slots", 40, "--objective", objective
            ).stdout
        )
        for objective in ("mean", "worst", "sum")
    }
    assert set(found["mean"]["windows"]) == {"a", "b"}
    assert found["mean"]["imbalance"]["mean"] == pytest.approx(
        np.mean(list(found["mean"]["windows"].values()))
    )
    assert found["worst"]["imbalance"]["mean"] >= found["mean"]["imbalance"]["mean"]
    assert found["sum"]["windows"] == {"sum": found["sum"]["imbalance"]["mean"]}


@pytest.mark.parametrize("format", ["json", "sglang", "trtllm"])
def test_few_moves_from_a_running_placement(app, counts, tmp_path, format):
    suffix = "yaml" if format == "trtllm" else "json"
    running = tmp_path / f"running.{suffix}"
    np.save(tmp_path / "old.npy", skewed_load(4, 32, seed=5))
    run(app, tmp_path / "old.npy", "--gpus", 8, "--slots", 40, "--format", format, "--out", running)
    result = run(app, counts, "--gpus", 8, "--slots", 40, "--current", running, "--max-moves", 6)
    assert result.exit_code == 0, result.stderr
    assert 0 < json.loads(result.stdout)["moves"] <= 6


def test_moves_are_limited_by_bytes_too(app, counts, tmp_path):
    running = tmp_path / "running.json"
    np.save(tmp_path / "old.npy", skewed_load(4, 32, seed=5))
    run(app, tmp_path / "old.npy", "--gpus", 8, "--slots", 40, "--out", running)
    here = ("--gpus", 8, "--slots", 40, "--current", running, "--expert-bytes", "44 MB")
    by_bytes = json.loads(run(app, counts, *here, "--max-bytes", "264 MB").stdout)
    by_moves = json.loads(run(app, counts, *here[:-2], "--max-moves", 6).stdout)
    assert by_bytes["physical_to_logical"] == by_moves["physical_to_logical"]
    assert by_bytes["moved_bytes"] == by_bytes["moves"] * 44e6 <= 264e6
    assert by_moves["moved_bytes"] is None


def test_shipped_loads_are_found_by_name(app):
    result = run(app, "gpt-oss-20b", "--gpus", 8, "--slots", 40, "--fast", "--objective", "sum")
    assert len(json.loads(result.stdout)["physical_to_logical"]) == 24
    assert read_loads(data_dir("loads") / "olmoe-1b-7b.npz").windows.shape == (6, 3, 64)


def test_uneven_slots_are_refused_where_the_engine_cannot_load_them(app, counts):
    assert run(app, counts, "--gpus", 6, "--slots", 32, "--format", "json", "--fast").exit_code == 0
    for format in ("sglang", "trtllm", "vllm"):
        result = run(app, counts, "--gpus", 6, "--slots", 32, "--format", format, "--fast")
        assert isinstance(result.exception, InstanceError)


def test_out_is_written_whole_or_not_at_all(app, counts, tmp_path):
    out = tmp_path / "map.json"
    result = run(
        app, counts, "--gpus", 8, "--slots", 40, "--fast", "--format", "sglang", "--out", out
    )
    assert result.stdout == ""
    assert "--init-expert-location" in result.stderr
    assert check_sglang(out.read_text(), num_layers=4, num_experts=32, spare=8, chips=8) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["counts.npy", "map.json"]
    result = run(app, counts, "--gpus", 8, "--slots", 40, "--fast", "--out", tmp_path / "no" / "x")
    assert isinstance(result.exception, InstanceError)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--gpus", 8, "--slots", 31),
        ("--gpus", 0, "--slots", 40),
        ("--gpus", 8, "--slots", 400),
        ("--gpus", 1, "--slots", 40),
        ("--gpus", 8, "--slots", 40, "--gpus-per-node", 3),
        ("--gpus", 8, "--slots", 40, "--gpus-per-node", 2, "--groups", 5),
        ("--gpus", 8, "--slots", 40, "--gpus-per-node", 2, "--groups", 4, "--top-groups", 9),
        ("--gpus", 8, "--slots", 40, "--top-k", 99),
        ("--gpus", 8, "--slots", 40, "--max-moves", 3),
        ("--gpus", 8, "--slots", 40, "--dense-layers", 9),
        ("--gpus", 8, "--slots", 40, "--dense-layers", -1),
        ("--gpus", 8, "--slots", 40, "--groups", 5),
        ("--gpus", 8, "--slots", 40, "--groups", 4, "--top-groups", 5),
        ("--gpus", 8, "--slots", 40, "--groups", 32, "--top-groups", 16, "--gpus-per-node", 2),
        ("--gpus", 8, "--slots", 40, "--copy-cost", "nan"),
        ("--gpus", 8, "--slots", 40, "--time-limit", -1),
        ("--gpus", 8, "--slots", 40, "--workers", -1),
        ("--gpus", 8, "--slots", 40, "--max-bytes", "2 GB"),
        ("--gpus", 8, "--slots", 40, "--max-bytes", "2 GB/s", "--expert-bytes", "44 MB"),
        ("--gpus", 8, "--slots", 40, "--max-bytes", "2 GB", "--expert-bytes", 0),
        ("--gpus", 8, "--slots", 40, "--max-moves", 3, "--max-bytes", 9, "--expert-bytes", 1),
    ],
)
def test_impossible_requests_are_bad_input(app, counts, arguments):
    result = run(app, counts, *arguments, "--fast")
    assert isinstance(result.exception, RackfitError)
    assert exit_code(result.exception) == 2
