"""What is exported starts: slots of mpirun, host scripts, routers, code of checkpoints, sizes of both sides."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from launch_lines import Line, read_lines
from small_layouts import exported, question, server

from rackfit.exporters.export import write_files


def parts_of(line: Line) -> list[list[str]]:
    """Words of each application context of an mpirun line."""
    parts: list[list[str]] = [[]]
    for word in line.words[1:]:
        parts.append([]) if word == ":" else parts[-1].append(word)
    return parts


@pytest.mark.parametrize(
    ("hosts", "order", "size"),
    [
        ("3 3 2", (0, 1, 2, 3, 4, 5, 6, 7), 1),
        ("4 4", (0, 1, 2, 3, 4, 5, 6, 7), 4),
        ("4 4", (0, 1, 4, 5, 2, 3, 6, 7), 2),
        ("2 2", (0, 2, 1, 3), 1),
    ],
)
def test_mpirun_finds_a_slot_for_every_rank(
    hosts: str, order: tuple[int, ...], size: int, tmp_path: Path
) -> None:
    """Open MPI takes the slots of a host for the whole line: fewer than its ranks, and it stops."""
    instance = question("qwen3-30b-a3b", hosts, tmp_path)
    chips = [instance.cluster.usable[place].id for place in order]
    files = exported(instance, [server("mixed", len(chips), chips)], "trtllm").files
    (line,) = read_lines(files["commands.sh"])
    assert line.words[0] == "mpirun"
    ranks: Counter[str] = Counter()
    slots: dict[str, set[int]] = {}
    for words in parts_of(line):
        host, count = words[words.index("--host") + 1].rsplit(":", 1)
        ranks[host] += int(words[words.index("-n") + 1])
        slots.setdefault(host, set()).add(int(count))
    assert slots == {host: {count} for host, count in ranks.items()}
    assert sum(ranks.values()) == len(chips)
    config = yaml.safe_load(files[line.words[line.words.index("--config") + 1]])
    assert config["gpus_per_node"] == size


def test_devices_of_one_host_need_no_mpirun(tmp_path: Path) -> None:
    """Devices that are not in a row are still one host's, and the engine is told so."""
    instance = question("qwen3-30b-a3b", "8", tmp_path)
    chips = [instance.cluster.usable[place].id for place in (0, 1, 4, 6)]
    files = exported(instance, [server("mixed", 4, chips)], "trtllm").files
    (line,) = read_lines(files["commands.sh"])
    assert line.words[0] == "trtllm-serve"
    assert line.environment["CUDA_VISIBLE_DEVICES"] == "0,1,4,6"
    config = yaml.safe_load(files[line.words[line.words.index("--config") + 1]])
    assert config["gpus_per_node"] == 4


def test_root_and_uneven_hosts_are_named(tmp_path: Path) -> None:
    instance = question("qwen3-30b-a3b", "3 3 2", tmp_path)
    notes = exported(instance, [server("mixed", 8)], "trtllm").notes
    assert any("OMPI_ALLOW_RUN_AS_ROOT=1" in note for note in notes)
    assert any("mixed-0: hosts hold unlike numbers of its ranks" in note for note in notes)


def test_a_host_script_ends_with_the_status_of_a_dead_engine(tmp_path: Path) -> None:
    """The first engine that ends takes the others along, and its status is not lost."""
    instance = question("llama-3.1-8b", "hgx-h100")
    files = exported(instance, [server("mixed", 1), server("mixed", 1)], "vllm").files
    write_files(files, tmp_path / "out")
    stub = tmp_path / "bin" / "vllm"
    stub.parent.mkdir()
    # the engine on the second port dies; the other would run for long
    stub.write_text(
        '#!/bin/sh\ncase "$*" in *20400*) exit 7;; esac\ntrap "echo stopped; exit 0" TERM\n'
        'echo started; sleep 60 & wait\n'
    )  # fmt: skip
    stub.chmod(0o755)
    (script,) = (tmp_path / "out" / "hosts").iterdir()
    assert script.read_text().startswith("#!/usr/bin/env bash\n")
    path = f"{stub.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", str(script)], env={"PATH": path}, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 7
    assert "ended with status 7: see mixed-1-0.log" in done.stderr


@pytest.mark.parametrize(("engine", "program"), [("vllm", "vllm-router"), ("sglang", "python3")])
def test_pools_and_other_servers_have_a_router_each(engine: str, program: str) -> None:
    """A router that joins prefill and decode servers leaves others out."""
    instance = question("llama-3.1-8b", "hgx-h100")
    servers = [server("prefill", 1), server("decode", 1), server("mixed", 1), server("mixed", 1)]
    found = exported(instance, servers, engine)
    pools, mixed = (found.files[name].split() for name in ("router.sh", "router-mixed.sh"))
    assert program in pools
    assert program in mixed
    assert "--worker-urls" not in pools
    assert (pools.count("--prefill"), pools.count("--decode")) == (1, 1)
    assert not {"--prefill", "--decode"} & set(mixed)
    urls = [[word for word in words if word.startswith("http://")] for words in (pools, mixed)]
    ports = [url.rsplit(":", 1)[1] for own in urls for url in own]
    assert ports == ["20000", "20400", "20800", "21200"]
    assert pools[-1] != mixed[-1]
    assert any("of the requests" in note for note in found.notes)
    assert any("NIXL" in note and f"{engine}-router" in note for note in found.notes)


def test_one_server_of_vllm_needs_no_router() -> None:
    instance = question("llama-3.1-8b", "hgx-h100")
    assert "router.sh" not in exported(instance, [server("mixed", 1)], "vllm").files
    assert "router.sh" in exported(instance, [server("mixed", 1)] * 2, "vllm").files


def test_software_beside_the_engine_is_named() -> None:
    instance = question("deepseek-v3", "hgx-h200@2")
    found = exported(instance, [server("prefill", 8), server("decode", 8)], "sglang")
    (note,) = (note for note in found.notes if note.startswith("hosts need"))
    assert "NIXL" in note
    assert "DeepEP" in note
    assert "pip install sglang-router" in note


@pytest.mark.parametrize(("model", "needed"), [("kimi-k2", True), ("deepseek-v3", False)])
@pytest.mark.parametrize("target", ["sglang", "vllm", "trtllm", "vllm-ascend"])
def test_checkpoints_with_code_of_their_own_are_trusted(
    model: str, needed: bool, target: str
) -> None:
    """Kimi-K2 stops without it; DeepSeek's code is in transformers, and is not run from the checkpoint."""
    instance = question(model, "hgx-b200@2")
    assert instance.model.own_code == needed
    files = exported(instance, [server("mixed", 16)], target).files
    written = "".join(files.values())
    assert ("trust-remote-code" in written or "trust_remote_code: true" in written) == needed


def test_ascend_connector_is_told_the_sizes_of_both_sides() -> None:
    """MooncakeConnectorV1 asserts them, and counts its ranks' ports from kv_port."""
    instance = question("deepseek-v3", "cloudmatrix384")
    servers = [server("prefill", 8, tp=2), replace(server("decode", 16), spare=32)]
    found = exported(instance, servers, "vllm-ascend")
    lines = read_lines(found.files["commands.sh"])
    configs = [json.loads(line.value("--kv-transfer-config")) for line in lines]
    sizes = {
        "prefill": {"tp_size": 2, "dp_size": 8, "pp_size": 1},
        "decode": {"tp_size": 1, "dp_size": 16, "pp_size": 1},
    }
    assert [config["kv_connector_extra_config"] for config in configs] == [sizes] * len(configs)
    ports = {config["kv_port"] for config in configs}
    assert len(ports) == 2
    low, high = sorted(ports)
    assert high - low >= 16
    spare = [
        json.loads(line.value("--additional-config"))["eplb_config"].get("num_redundant_experts")
        for line in lines
        if "--additional-config" in line.words
    ]
    assert 32 in spare


@pytest.mark.parametrize(
    ("prefill", "decode", "said"),
    [((2, 1), 1, "have 2 sizes"), ((2, 2), 4, "is not a multiple of 4"), ((4, 4), 2, "")],
)
def test_ascend_sides_that_the_connector_does_not_join_are_named(
    prefill: tuple[int, ...], decode: int, said: str
) -> None:
    instance = question("qwen3-30b-a3b", "cloudmatrix384")
    servers = [server("prefill", 2, tp=tp) for tp in prefill] + [server("decode", 2, tp=decode)]
    notes = exported(instance, servers, "vllm-ascend").notes
    found = [note for note in notes if "the KV connector stops these servers" in note]
    assert bool(found) == bool(said)
    assert all(said in note for note in found)


@pytest.mark.parametrize(("engine", "usual"), [("vllm", 0.92), ("trtllm", 0.9)])
def test_small_batches_leave_the_engine_its_usual_memory(engine: str, usual: float) -> None:
    """Two sequences need a fifth of the memory; so little would stop an engine that captures graphs."""
    instance = question("llama-3.1-8b", "hgx-h100")
    files = exported(instance, [server("mixed", 1)], engine).files
    fractions = [
        float(text.split()[0])
        for content in files.values()
        for name in ("--gpu-memory-utilization ", "free_gpu_memory_fraction: ")
        for text in content.split(name)[1:]
    ]
    assert set(fractions) == {usual}
