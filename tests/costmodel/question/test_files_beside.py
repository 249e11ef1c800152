"""A file names other files from its own folder, wherever the command is run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import load_scenario
from costmodel.tolerance import apart
from topology.catalogue import beside, data_dir
from topology.errors import InstanceError

CHIP = """
name: mine
title: Mine
vendor: mine
power_w: 700
price_basis: rent
flops_per_s: {bf16: 1e15, fp8: 2e15}
hbm_bytes: 200 GB
hbm_bytes_per_s: 4 TB/s
scale_up_bytes_per_s: 450 GB/s
nic_bytes_per_s: 50 GB/s
usd_per_hour: 2
tiers: [./my-tier.yaml]
"""
TIER = """
name: my-tier
kind: flash
title: Drives
bytes: 7 TB
read_bytes_per_s: 20 GB/s
write_bytes_per_s: 10 GB/s
usd_per_byte: 1e-10
"""
CLUSTER = """
name: my-cluster
title: Mine
domains:
  - rack: node
    fabric: {kind: nvswitch, links_per_switch: [5, 4, 4, 5]}
    chips: [{chip: chips/my-chip.yaml, count: 8}]
scale_out: {kind: rail-optimised}
"""
WORKLOAD = "{name: mine, input_tokens: 100, output_tokens: 10, expert_load: ./counts.npy}"
SCENARIO = """
model: model/config.json
cluster: hardware/my-cluster.yaml@2
workload: workload.yaml
profile: my-profile.json
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    for name in ("model", "hardware/chips"):
        (home / name).mkdir(parents=True)
    config = json.loads((data_dir("models") / "gpt-oss-120b.json").read_text())
    (home / "model/config.json").write_text(json.dumps(config))
    (home / "hardware/chips/my-chip.yaml").write_text(CHIP)
    (home / "hardware/chips/my-tier.yaml").write_text(TIER)
    (home / "hardware/my-cluster.yaml").write_text(CLUSTER)
    (home / "workload.yaml").write_text(WORKLOAD)
    counts = np.random.default_rng(3).integers(1, 100, size=(36, 128))
    np.save(home / "counts.npy", counts)
    (home / "my-profile.json").write_text((data_dir("profiles") / "physics.json").read_text())
    (home / "scenario.yaml").write_text(SCENARIO)
    return home


def test_every_path_of_a_scenario_is_taken_from_its_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    instance = resolve_instance(load_scenario("home/scenario.yaml"))
    chip = instance.cluster.chips[0].chip
    assert (chip.name, len(instance.cluster.chips)) == ("mine", 16)
    assert [tier.name for tier in chip.tiers] == ["my-tier"]
    assert instance.expert_loads_provenance == "measured"
    assert instance.profile.name == "physics"


def test_a_workload_written_in_place_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = SCENARIO.replace("workload: workload.yaml", f"workload: {WORKLOAD}")
    (folder / "scenario.yaml").write_text(text)
    monkeypatch.chdir("/")
    instance = resolve_instance(load_scenario(str(folder / "scenario.yaml")))
    assert instance.expert_loads_provenance == "measured"


@pytest.mark.parametrize("load", ["counts.npy", "missing.npz"])
def test_a_model_without_experts_takes_nothing_of_them(folder: Path, load: str) -> None:
    path = folder / "scenario.yaml"
    workload = f"{{input_tokens: 100, output_tokens: 10, expert_load: {load}}}"
    path.write_text(
        f"model: llama-3.1-8b\ncluster: hgx-h200\nlayer_slots: rows\nworkload: {workload}\n"
    )
    with pytest.raises(InstanceError) as found:
        resolve_instance(load_scenario(str(path)))
    slots, loads = map(str, found.value.problems)
    assert slots == "layer_slots: rows: llama-3.1-8b has no routed experts: leave it out"
    assert loads.startswith("workload.expert_load: ")
    assert loads.endswith(": llama-3.1-8b has no routed experts: leave it out")
    for word in ("skewed", "uniform"):
        path.write_text(
            f"model: llama-3.1-8b\ncluster: hgx-h200\nworkload: {workload.replace(load, word)}\n"
        )
        assert resolve_instance(load_scenario(str(path))).expert_loads.size == 0


def test_names_of_the_catalogue_stay_names(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    (tmp_path / "chat").write_text("")
    for name in ("chat", "gb200-nvl72@2", "qwen2.5-7b", "missing.yaml", "/dev/null", "a\0b.yaml"):
        assert beside(file, name) == name


def test_a_value_over_its_limit_is_told_from_it() -> None:
    assert apart(40.0004, 40.0) == ("40.0004", "40.0000")
    assert apart(52.5, 40.0) == ("52.50", "40.00")
