"""Ports of many servers, what stands before them, and what their hosts need."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import yaml
from launch_lines import read_lines
from small_layouts import exported, question, server

from rackfit.exporters.launch import push_router
from rackfit.exporters.launch.deployment import PORTS_PER_SERVER
from rackfit.exporters.launch.routers import PATIENCE_S, VLLM


def test_no_two_servers_of_a_host_share_a_port() -> None:
    """The last server shares a host with the first; ports begin again after as many as fit below 32768."""
    instance = question("llama-3.1-8b", "hgx-h100@4")
    chips = [chip.id for chip in instance.cluster.usable]
    order = [0, *range(8, 32), *range(2, 8), 1]
    servers = [server("mixed", 1, [chips[place]]) for place in order]
    lines = read_lines(exported(instance, servers, "vllm").files["commands.sh"])
    ports = defaultdict(list)
    for line in lines:
        ports[line.said["host"]].append(int(line.value("--port")))
    assert sorted(map(len, ports.values())) == [8, 8, 8, 8]
    for own in ports.values():
        gaps = [after - before for before, after in zip(sorted(own), sorted(own)[1:], strict=False)]
        assert min(gaps) >= PORTS_PER_SERVER
    assert (
        max(map(max, ports.values())) + PORTS_PER_SERVER <= 32768
    )  # where Linux takes ports itself


@pytest.mark.parametrize("target", ["sglang", "vllm", "trtllm"])
def test_routers_wait_as_long_as_weights_are_read(target: str) -> None:
    """Their own limits are 3 to 30 minutes, less than hundreds of gigabytes take."""
    instance = question("llama-3.1-8b", "hgx-h100")
    found = exported(instance, [server("prefill", 1), server("decode", 1)], target)
    words = found.files["router.sh"].split()
    name = "--server_start_timeout" if target == "trtllm" else "--worker-startup-timeout-secs"
    assert words[words.index(name) + 1] == str(PATIENCE_S)
    assert found.notes[-1].endswith("then bash router.sh on any of them")


def test_two_routers_of_a_host_do_not_share_a_port() -> None:
    """Each vLLM router has a port of its own for metrics, and stops where another one has it."""
    instance = question("llama-3.1-8b", "hgx-h100")
    servers = [server("prefill", 1), server("decode", 1), server("mixed", 1)]
    files = exported(instance, servers, "vllm").files
    assert "--prometheus-port" not in files["router.sh"]
    words = files["router-mixed.sh"].split()
    assert int(words[words.index("--prometheus-port") + 1]) != VLLM.metrics


def test_stages_of_prefill_have_a_router() -> None:
    """vllm-router leaves out the number of stages, and the decode server stops; the export brings a router."""
    instance = question("llama-3.1-8b", "hgx-h100")
    pair = [server("prefill", 1, pp=2), server("decode", 1)]
    found = exported(instance, pair, "vllm")
    assert "NixlPushConnector" in found.files["commands.sh"]
    words = "--prefill http://node0-host0:20000 --decode http://node0-host0:20400"
    assert f"exec python3 router.py {words} --host" in found.files["router.sh"]
    assert found.files["router.py"] == Path(push_router.__file__).read_text()
    assert any("router.py stands before them" in note for note in found.notes)
    assert not any("pip install vllm-router" in note for note in found.notes)
    assert found.notes[-1].endswith("then bash router.sh on any of them")
    found = exported(instance, [*pair, server("mixed", 1)], "vllm")
    assert "vllm-router --worker-urls http://node0-host0:20800" in found.files["router-mixed.sh"]
    assert any("pip install vllm-router" in note for note in found.notes)


def test_servers_that_trtllm_does_not_join_are_named() -> None:
    instance = question("llama-3.1-8b", "hgx-h100")
    servers = [server("prefill", 1), server("decode", 1), server("mixed", 1)]
    found = exported(instance, servers, "trtllm")
    (note,) = (note for note in found.notes if "load balancer" in note)
    assert "node0-host0:20800. They serve" in note
    front = yaml.safe_load(found.files["disaggregated.yaml"])
    assert front["context_servers"]["urls"] == ["node0-host0:20000"]
    alone = exported(instance, [server("mixed", 1)], "trtllm")
    assert not any("load balancer" in note for note in alone.notes)


def test_ascend_servers_name_what_joins_them() -> None:
    """Its connector is Mooncake's; vLLM's router serves where prompts and answers share servers."""
    instance = question("qwen3-30b-a3b", "cloudmatrix384")
    apart = exported(instance, [server("prefill", 2), server("decode", 2)], "vllm-ascend")
    needed = [note for note in apart.notes if "hosts need" in note]
    assert any("Mooncake" in note for note in needed)
    assert not any("NIXL" in note for note in needed)
    assert any("load_balance_proxy_server_example.py" in note for note in apart.notes)
    assert "router.sh" not in apart.files
    mixed = exported(instance, [server("mixed", 2)] * 2, "vllm-ascend")
    assert "vllm-router --worker-urls" in mixed.files["router.sh"]


@pytest.mark.parametrize(
    ("cluster", "dp", "needed"), [("gb200-nvl72", 8, True), ("gb200-nvl72", 4, False), ("hgx-h200@2", 16, False)]
)  # fmt: skip
def test_nvlink_between_hosts_needs_its_service(cluster: str, dp: int, needed: bool) -> None:
    notes = exported(question("qwen3-30b-a3b", cluster), [server("mixed", dp)], "sglang").notes
    assert any("IMEX" in note for note in notes) == needed
    assert any("ulimit -l" in note for note in notes) == (dp > 4)


def test_dynamo_workers_listen_to_other_pods() -> None:
    """Prefill pods are asked for KV at a server of their own, which SGLang binds to 127.0.0.1 unless told."""
    instance = question("llama-3.1-8b", "hgx-h100")
    found = exported(instance, [server("prefill", 1), server("decode", 1)], "dynamo")
    services = yaml.safe_load(found.files["deployment.yaml"])["spec"]["services"]
    for name in ("prefill0", "decode0"):
        words = services[name]["extraPodSpec"]["mainContainer"]["args"]
        assert words[words.index("--host") + 1] == "0.0.0.0"
    assert any("SGLang 0.5" in note and "image must hold" in note for note in found.notes)
