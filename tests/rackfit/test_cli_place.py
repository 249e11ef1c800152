"""``rackfit place`` end to end: documents, engine files and their loading checks, bad input, fuzz."""

import contextlib
import io
import json
import os
from dataclasses import replace

import numpy as np
import pytest
import typer
import yaml
from typer.testing import CliRunner

from costmodel.experts.coactivation import pair_shares
from costmodel.experts.dispatch import check_placement, chip_loads, imbalance
from costmodel.experts.expert_load import read_loads, skewed_load
from rackfit.cli.app import exit_code
from rackfit.cli.commands.place import register
from rackfit.exporters import placement_sglang, placement_trtllm, placement_vllm
from rackfit.exporters.placement_table import PlacementTable
from tests.rackfit.exporters.loaders import check_sglang, check_trtllm, check_vllm_ascend
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


def test_the_trade_off_is_drawn(app, counts, tmp_path):
    options = ("--gpus", 8, "--slots", 40, "--fast", "--out", tmp_path / "p.json")
    nodes = ("--gpus-per-node", 2, "--groups", 4, "--top-groups", 2, "--top-k", 4)
    assert run(app, counts, *options, *nodes, "--curve", tmp_path / "c.svg").exit_code == 0
    points = json.loads((tmp_path / "p.json").read_text())["trade_off"]
    drawn = (tmp_path / "c.svg").read_text()
    assert drawn.startswith("<svg")
    assert drawn.count("<circle") >= len(points)


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
        (counts, (*nodes, "--out", tmp_path / "p.svg"), "p.svg", "--out"),
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


def table_of(width=5, chips=8, dense=3):
    from solver.experts import place_layers

    found = place_layers(LOADS, [width] * chips)
    return PlacementTable(
        found.physical_to_logical, 32, (width,) * chips, tuple(range(dense, dense + 4)), dense + 4
    )


def test_sglang_file_passes_its_loading_checks_and_wrong_ones_do_not():
    arguments = {"num_layers": 7, "num_experts": 32, "spare": 8, "chips": 8}
    text = placement_sglang.render(table_of())
    assert check_sglang(text, **arguments) == []
    data = json.loads(text)["physical_to_logical_map"]
    wrong = {
        "rows": data[3:],
        "duplicate": [*data[:6], [*data[6][:1] * 2, *data[6][2:]]],
        "missing": [*data[:6], [0] * 40],
        "range": [*data[:6], [99, *data[6][1:]]],
        "length": [*data[:6], data[6][:-1]],
    }
    for rows in wrong.values():
        assert check_sglang(json.dumps({"physical_to_logical_map": rows}), **arguments)
    assert check_sglang(json.dumps({"physical_to_logical_map": data, "seed": 1}), **arguments)
    assert check_sglang("{", **arguments)


def test_trtllm_file_passes_its_loading_checks_and_wrong_ones_do_not():
    arguments = {"layer_ids": [3, 4, 5, 6], "num_experts": 32, "chips": 8}
    text = placement_trtllm.render(table_of())
    assert check_trtllm(text, **arguments) == []
    data = yaml.safe_load(text)
    rows = data["initial_global_assignments"]
    for change in (
        {"num_slots": 41},
        {"layer_updates_per_iter": 1},
        {"ep_size": 8},
        {"initial_global_assignments": {layer: rows[layer] for layer in (3, 4, 5)}},
        {"initial_global_assignments": {**rows, 3: [0] * 40}},
        {"initial_global_assignments": {**rows, 3: [rows[3][1], *rows[3][1:]]}},
    ):
        assert check_trtllm(yaml.safe_dump({**data, **change}), **arguments)


def test_vllm_ascend_file_passes_its_loading_checks_and_wrong_ones_do_not():
    arguments = {"num_layers": 4, "num_experts": 32, "chips": 8}
    text = placement_vllm.render(table_of())
    assert check_vllm_ascend(text, **arguments) == []
    for change in (
        lambda data: data.update(moe_layer_count=5),
        lambda data: data["layer_list"].pop(),
        lambda data: data["layer_list"][0].update(layer_id=1),
        lambda data: data["layer_list"][0]["device_list"].pop(),
        lambda data: data["layer_list"][0]["device_list"][0]["device_expert"].pop(),
        lambda data: data["layer_list"][0]["device_list"][0].update(device_expert=[0] * 5),
        lambda data: data.pop("layer_list"),
    ):
        data = json.loads(text)
        change(data)
        assert check_vllm_ascend(json.dumps(data), **arguments)
    assert "num_redundant_experts" in placement_vllm.hint(table_of())


def test_a_wrong_placement_never_becomes_a_file():
    good = table_of()
    for spoil in ([0] * 40, [1, *good.physical_to_logical[0][1:].tolist()]):
        rows = good.physical_to_logical.copy()
        rows[0] = spoil
        with pytest.raises(InstanceError):
            PlacementTable(rows, 32, good.slots_per_chip, good.layer_ids, good.num_layers)
    with pytest.raises(InstanceError):
        PlacementTable(good.physical_to_logical, 32, good.slots_per_chip, (0, 1), 4)


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


def fuzzed_together(rng, folder, loads):
    """A file of pair counts or of tokens, as often whole as not."""
    layers, experts = loads.shape
    top_k = int(rng.integers(1, max(min(experts, 5), 2)))
    tokens = int(rng.integers(1, 40))
    picks = np.argsort(rng.random((tokens, layers, experts)), axis=2)[:, :, :top_k]
    array = picks
    if rng.random() < 0.5:
        array = pair_shares(picks, experts) * tokens
    if rng.random() < 0.3:
        array = array.astype(float)
        array[rng.random(array.shape) < 0.1] = rng.choice([0, np.nan, -1, np.inf, 1e308, 3])
    if rng.random() < 0.1:
        array = array[..., : rng.integers(array.shape[-1] + 1)]
    path = folder / f"together.{rng.choice(['npy', 'npz', 'json'])}"
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".npz":
        np.savez(path, **{f"a{i}": array for i in range(rng.integers(1, 3))})
    else:
        path.write_text(json.dumps(array.tolist()))
    if rng.random() < 0.1:
        data = bytearray(path.read_bytes())
        data[rng.integers(len(data))] = rng.integers(256)
        path.write_bytes(bytes(data))
    return path


@pytest.mark.slow
def test_ten_thousand_fuzzed_inputs_give_a_valid_placement_or_a_clear_refusal(tmp_path):
    from rackfit.placement.place import place
    from solver.experts.request import PlaceOptions

    rng = np.random.default_rng(0)
    placed = refused = used = 0
    for trial in range(10_000):
        layers, experts = rng.integers(1, 4), int(rng.integers(1, 20))
        loads = rng.lognormal(0, rng.choice([0, 1, 4]), (layers, experts))
        if rng.random() < 0.2:
            loads[rng.random(loads.shape) < 0.5] = rng.choice([0, np.nan, -1, np.inf, 1e308])
        path = tmp_path / f"loads.{rng.choice(['npy', 'json', 'csv', 'npz'])}"
        if path.suffix == ".npy":
            np.save(path, loads)
        elif path.suffix == ".npz":
            np.savez(path, **{f"w{i}": loads for i in range(rng.integers(1, 3))})
        elif path.suffix == ".json":
            path.write_text(json.dumps(loads.tolist()))
        else:
            path.write_text("\n".join(",".join(map(str, row)) for row in loads))
        if rng.random() < 0.1:
            data = bytearray(path.read_bytes())
            for _ in range(rng.integers(1, 6)):
                data[rng.integers(len(data))] = rng.integers(256)
            path.write_bytes(
                bytes(data[: rng.integers(len(data) + 1)] if rng.random() < 0.5 else data)
            )
        options = PlaceOptions(
            gpus=int(rng.integers(0, 7)),
            slots=experts + int(rng.integers(-1, 12)),
            gpus_per_node=[None, None, 1, 2, 3][rng.integers(5)],
            groups=int(rng.choice([1, 1, 1, 2, 3, 4])),
            top_groups=int(rng.choice([1, 1, 1, 2, 3])),
            top_k=int(rng.integers(1, 6)),
            dispatch=("even", "sglang-static", "lp")[rng.integers(3)],
            objective=("sum", "mean", "worst")[rng.integers(3)],
            effort="fast",
            seed=trial,
        )
        together = fuzzed_together(rng, tmp_path, loads) if rng.random() < 0.3 else None
        if together is not None and rng.random() < 0.7:
            gpus = int(rng.choice([2, 4, 6]))
            slots = max(-(-options.slots // gpus), 1) * gpus
            options = replace(
                options, gpus=gpus, slots=slots, gpus_per_node=gpus // 2, groups=1,
                top_groups=1, top_k=None, objective="sum",
            )  # fmt: skip
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                found = place(read_loads(path), options, None, together)
        except InstanceError:
            refused += 1
        else:
            placed += 1
            check_placement(
                found.table.physical_to_logical, found.table.num_experts, found.table.slots_per_chip
            )
            assert (found.bound <= found.imbalance * (1 + 1e-9)).all()
            assert np.isfinite(found.imbalance).all()
            json.dumps(found.document(), allow_nan=False)
            used += found.compared is not None
        os.unlink(path)
    assert placed > 1000
    assert refused > 1000
    assert used > 100
