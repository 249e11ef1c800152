"""``rackfit collective``: JSON keys, physics, choice of chips, and bad input."""

import json

import pytest
import typer
from typer.testing import CliRunner

from rackfit.cli.commands import collective
from topology.errors import InstanceError

KEYS = {"time_s", "bound_s", "latency_s", "bus_bytes_per_s", "busiest_link", "links"}


def run(*words):
    app = typer.Typer()
    app.callback()(lambda: None)
    collective.register(app)
    return CliRunner().invoke(app, ["collective", *map(str, words)])


def answer(*words):
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_all_gather_of_512_mib_on_a_node():
    found = answer("all-gather", "--cluster", "hgx-h100", "--bytes", "512 MiB")
    assert set(found) >= KEYS
    assert found["time_s"] == pytest.approx(2**29 * 7 / 8 / 450e9, rel=0.03)
    assert found["bound_s"] <= found["time_s"]
    assert found["bus_bytes_per_s"] == pytest.approx(450e9, rel=0.01)
    assert found["links"]["scale-up"]["count"] == 2 * 8 * 4
    assert found["links"]["scale-up"]["max_s"] == pytest.approx(found["time_s"], rel=0.01)


@pytest.mark.parametrize(
    ("kind", "more"),
    [("all-to-all", []), ("reduce-scatter", []), ("all-reduce", []), ("broadcast", []),
     ("dispatch", ["--top-k", 8]), ("send", ["--chips", "r0g0,r1g3"])],
)  # fmt: skip
def test_every_kind_answers_across_nodes(kind, more):
    found = answer(kind, "--cluster", "hgx-h100@2", "--bytes", 1e6, *more)
    assert 0 < found["bound_s"] <= found["time_s"]
    assert found["domains"] == 2
    assert found["links"]["nic"]["count"] > 0


def test_chips_by_count_by_id_and_by_domain():
    base = ["all-gather", "--cluster", "hgx-h100@2", "--bytes", 1000, "--chips"]
    assert answer(*base, "4")["chips"] == 4
    assert answer(*base, "12")["domains"] == 2
    assert answer(*base, "r1")["chips"] == 8
    assert answer(*base, "r0g0, r0g1,r1g7")["chips"] == 3


def test_calibrated_is_slower_than_physics():
    words = ["all-reduce", "--cluster", "gb200-nvl72", "--bytes", "16 MiB", "--profile"]
    assert answer(*words, "calibrated")["time_s"] > answer(*words, "physics")["time_s"]


def test_zero_bytes_cost_latency_only():
    found = answer("all-to-all", "--cluster", "mi300x", "--bytes", 0)
    assert found["time_s"] == found["latency_s"] > 0


def test_text_names_time_bound_and_busiest_link():
    result = run("all-to-all", "--cluster", "gb200-nvl72@2", "--bytes", "1 MiB")
    assert result.exit_code == 0
    assert "busiest link r0g0.nic" in result.stdout
    assert "bound" in result.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["all-gather", "--cluster", "nowhere", "--bytes", 1],
        ["all-gather", "--cluster", "hgx-h100@0", "--bytes", 1],
        ["all-gather", "--cluster", "hgx-h100", "--bytes", -1],
        ["all-gather", "--cluster", "hgx-h100", "--bytes", "3 furlongs"],
        ["all-gather", "--cluster", "hgx-h100", "--bytes", "nan"],
        ["all-gather", "--cluster", "hgx-h100", "--bytes", 1, "--chips", "0"],
        ["all-gather", "--cluster", "hgx-h100", "--bytes", 1, "--chips", "9"],
        ["all-gather", "--cluster", "hgx-h100", "--bytes", 1, "--chips", "r0g0,r0g0"],
        ["all-gather", "--cluster", "hgx-h100", "--bytes", 1, "--chips", "r0g8"],
        ["all-gather", "--cluster", "hgx-h100", "--bytes", 1, "--chips", ","],
        ["all-gather", "--cluster", "hgx-h100", "--bytes", 1, "--profile", "hoped"],
        ["dispatch", "--cluster", "hgx-h100", "--bytes", 1],
        ["dispatch", "--cluster", "hgx-h100", "--bytes", 1, "--top-k", "0"],
        ["send", "--cluster", "hgx-h100", "--bytes", 1, "--chips", "3"],
        ["gossip", "--cluster", "hgx-h100", "--bytes", 1],
        ["all-gather", "--cluster", "tpu-v5p-9999x9999x9999", "--bytes", 1],
        ["all-gather", "--cluster", "/dev/null", "--bytes", 1],
    ],
)
def test_bad_input_is_an_instance_error(words):
    result = run(*words)
    assert isinstance(result.exception, InstanceError), result.output
