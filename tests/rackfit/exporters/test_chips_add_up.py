"""Chips in the export are the chips of the layout, to the unit, by role and rack, for every target.

Counted from what an engine, a scheduler or a drawing program reads; remarks are not looked at.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import pytest
import yaml
from launch_lines import Line, mpi_tasks, read_lines, servers, sglang_ranks, vllm_ranks

from rackfit.documents.result import Result
from rackfit.exporters.export import Exported
from rackfit.exporters.hosts import Hosts
from rackfit.exporters.registry import exporters

Export = Callable[[str], Exported]
#: (role, rack) and device of every chip; the device is what tells two chips apart
Found = Counter[tuple[str, str]]


class _Devices:
    """Counts devices by role and rack; one that is taken twice or is on no host fails."""

    def __init__(self, result: Result):
        hosts = Hosts(result.instance.cluster)
        self.racks = {(place.host, place.gpu): place.rack for place in hosts.places.values()}
        self.found: Found = Counter()
        self.taken: set[tuple[str, int]] = set()

    def add(self, role: str, host: str, gpu: int) -> None:
        """One device of a server."""
        assert (host, gpu) not in self.taken
        self.taken.add((host, gpu))
        self.found[role, self.racks[host, gpu]] += 1


def _sglang(files: dict[str, str], devices: _Devices) -> None:
    for group in servers(read_lines(files["commands.sh"])).values():
        mode = "--disaggregation-mode"
        role = group[0].value(mode) if mode in group[0].words else "mixed"
        for host, gpu in sglang_ranks(group):
            devices.add(role, host, gpu)


def _vllm_role(line: Line) -> str:
    config = "--kv-transfer-config"
    said = json.loads(line.value(config))["kv_role"] if config in line.words else "kv_both"
    return {"kv_producer": "prefill", "kv_consumer": "decode", "kv_both": "mixed"}[said]


def _vllm(visible: str) -> Callable[[dict[str, str], _Devices], None]:
    def read(files: dict[str, str], devices: _Devices) -> None:
        for group in servers(read_lines(files["commands.sh"])).values():
            for host, gpu in vllm_ranks(group, visible).values():
                devices.add(_vllm_role(group[0]), host, gpu)

    return read


def _trtllm(files: dict[str, str], devices: _Devices) -> None:
    front = yaml.safe_load(files.get("disaggregated.yaml", "{}"))
    pools = {
        url: role
        for key, role in (("context_servers", "prefill"), ("generation_servers", "decode"))
        for url in front.get(key, {}).get("urls", [])
    }
    for line in read_lines(files["commands.sh"]):
        tasks = mpi_tasks(line)
        for host, gpu in tasks:
            devices.add(pools.get(f"{tasks[0][0]}:{line.value('--port')}", "mixed"), host, gpu)


def _slurm(files: dict[str, str], devices: _Devices) -> None:
    for row in csv.DictReader(io.StringIO(files["tasks.csv"])):
        for gpu in row["gpus"].split():
            devices.add(row["role"], row["host"], int(gpu))


def _json(files: dict[str, str], devices: _Devices) -> None:
    document = json.loads(files["layout.json"])
    for replica in document["layout"]["replicas"]:
        for stage in replica["stages"]:
            for chip in stage["chips"]:
                place = document["hosts"][chip]
                devices.add(replica["role"], place["host"], place["gpu"])


def _graphml(files: dict[str, str], devices: _Devices) -> None:
    for _, data in nx.parse_graphml(files["cluster.graphml"]).nodes(data=True):
        if data.get("role", "idle") != "idle":
            devices.add(data["role"], data["host"], data["gpu"])


READERS = {
    "sglang": _sglang, "trtllm": _trtllm, "vllm": _vllm("CUDA_VISIBLE_DEVICES"), "slurm": _slurm,
    "vllm-ascend": _vllm("ASCEND_RT_VISIBLE_DEVICES"), "json": _json, "graphml": _graphml,
}  # fmt: skip


def _wanted(result: Result) -> Found:
    cluster = result.instance.cluster
    return Counter(
        (replica.role, cluster.chip(chip).rack)
        for replica in result.layout.replicas
        for chip in replica.chips
    )


@pytest.mark.parametrize("target", sorted(READERS))
def test_by_role_and_rack(result: Result, export: Export, target: str) -> None:
    devices = _Devices(result)
    READERS[target](export(target).files, devices)
    assert devices.found == _wanted(result)
    assert len(devices.taken) == result.evaluation.chips_used


def test_dot_by_role_and_rack(result: Result, export: Export) -> None:
    found: Found = Counter()
    rack = ""
    for line in export("dot").files["cluster.dot"].splitlines():
        if label := re.fullmatch(r' +label="(.+)";', line):
            rack = label[1]
        if chip := re.search(r'label="\S+ (prefill|decode|mixed)-\d+ stage', line):
            found[chip[1], rack] += 1
    assert found == _wanted(result)


def test_dynamo_by_role_and_racks_a_worker_may_span(result: Result, export: Export) -> None:
    """A manifest leaves racks to the scheduler: chips by role, and by how many racks a worker has."""
    cluster = result.instance.cluster
    wanted: Counter[tuple[str, str]] = Counter()
    for replica in result.layout.replicas:
        racks = len({cluster.chip(chip).rack for chip in replica.chips})
        wanted[replica.role, "one rack" if racks == 1 else "several"] += len(replica.chips)
    found: Counter[tuple[str, str]] = Counter()
    manifest = list(yaml.safe_load_all(export("dynamo").files["deployment.yaml"]))[-1]
    for service in manifest["spec"]["services"].values():
        if service["componentType"] != "worker":
            continue
        pods = service["replicas"] * service.get("multinode", {}).get("nodeCount", 1)
        packed = service.get("topologyConstraint", {}).get("packDomain", "rack")
        span = {"rack": "one rack", "block": "several"}[packed]
        role = service.get("subComponentType", "mixed")
        found[role, span] += pods * int(service["resources"]["limits"]["gpu"])
    assert found == wanted


def test_every_target_is_counted() -> None:
    assert {*READERS, "dot", "dynamo"} == set(exporters())


@pytest.mark.parametrize("target", ["sglang", "vllm", "vllm-ascend"])
def test_host_scripts_start_every_process_once(export: Export, target: str) -> None:
    files = export(target).files
    started = [
        (Path(name).stem, line.rsplit(" >", 1)[0])
        for name, text in files.items()
        if name.startswith("hosts/")
        for line in text.splitlines()
        if line.endswith("2>&1 &")
    ]
    processes = files["commands.sh"].split("\n\n")[1:]
    said = [block.strip().splitlines() for block in processes]
    wanted = [
        (remark.split("host=")[1].split()[0].replace("/", "_").replace(":", "_"), command)
        for remark, command in said
    ]
    assert sorted(started) == sorted(wanted)
