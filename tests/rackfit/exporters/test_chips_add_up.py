"""Chips in the export are the chips of the layout, to the unit, by role and rack, for every target.

Counted from what an engine, a scheduler or a drawing program reads; remarks are not looked at. The devices of
a target are counted by ``counts/count_<target>.py``.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from rackfit.documents.result import Result
from rackfit.exporters.export import Exported
from rackfit.exporters.registry import exporters
from tests.rackfit.exporters.counts.devices import Devices, Found

Export = Callable[[str], Exported]


def targets() -> dict[str, str]:
    """The targets whose files are counted by a file of ``counts``, and that file's module."""
    counts = Path(__file__).parent / "counts"
    modules = {path.stem for path in counts.glob("count_*.py")}
    named = {name: f"count_{name.replace('-', '_')}" for name in exporters()}
    assert modules <= set(named.values())
    return {
        name: f"tests.rackfit.exporters.counts.{module}"
        for name, module in named.items()
        if module in modules
    }


def _wanted(result: Result) -> Found:
    cluster = result.instance.cluster
    return Counter(
        (replica.role, cluster.chip(chip).rack)
        for replica in result.layout.replicas
        for chip in replica.chips
    )


@pytest.mark.parametrize("target", sorted(targets()))
def test_by_role_and_rack(result: Result, export: Export, target: str) -> None:
    devices = Devices(result)
    importlib.import_module(targets()[target]).count(export(target).files, devices)
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


def test_every_target_that_starts_engines_is_counted() -> None:
    starts = {name for name, target in exporters().items() if target.LAUNCHES}
    assert starts - set(targets()) == {"dynamo"}


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
