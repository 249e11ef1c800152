"""Dynamo, Slurm, DOT, GraphML and JSON: chips in the export are the chips of the layout, by rack."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import networkx as nx
import pytest
import yaml

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Workload
from rackfit.documents.result import Result, read_result
from rackfit.documents.schema import FOLDER
from rackfit.exporters.export import Exported, export_layout
from rackfit.exporters.launch.hosts import Hosts
from rackfit.importers.deployment import build_layout
from rackfit.importers.servers import FoundServer
from tests.rackfit.exporters.loaders import check_sglang
from topology.errors import ExportError

Export = Callable[[str], Exported]


def _racks(result: Result) -> Counter[tuple[str, str]]:
    """Chips of the layout by role and rack."""
    cluster = result.instance.cluster
    return Counter(
        (replica.role, cluster.chip(chip).rack)
        for replica in result.layout.replicas
        for chip in replica.chips
    )


def _documents(export: Export) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(export("dynamo").files["deployment.yaml"]))


def test_dynamo_validates(export: Export) -> None:
    schema = json.loads((FOLDER / "dynamo-graph-deployment.schema.json").read_text())
    documents = _documents(export)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(documents[-1], schema)
    maps = {"$ref": "#/$defs/configMap", "$defs": schema["$defs"]}
    for document in documents[:-1]:
        jsonschema.validate(document, maps)
        assert len(json.dumps(document)) < 1_000_000


def test_dynamo_pods_see_weights_and_nics(result: Result, export: Export) -> None:
    """Every pod mounts the weights' claim, and pods that send each other bytes ask for a NIC per GPU."""
    spec = _documents(export)[-1]["spec"]
    assert spec["pvcs"] == [{"name": "model-weights"}]
    text = export("dynamo").files["deployment.yaml"]
    assert "dynamoNamespace" not in text
    apart = len({replica.role for replica in result.layout.replicas}) > 1
    for service in spec["services"].values():
        (mount,) = service["volumeMounts"]
        assert mount == {"name": "model-weights", "mountPoint": "/models"}
        if service["componentType"] != "worker":
            continue
        limits = service["resources"]["limits"]
        if apart or "multinode" in service:
            assert limits["custom"] == {"rdma/ib": limits["gpu"]}
            container = service["extraPodSpec"]["mainContainer"]
            assert container["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]


def test_dynamo_takes_25_services() -> None:
    """A frontend and 24 kinds of workers; 25 kinds are refused."""
    workload = Workload(input_tokens=100, output_tokens=10)
    instance = resolve_instance(
        Scenario(model="llama-3.1-8b", cluster="hgx-h200@4", workload=workload)
    )
    servers = [
        FoundServer("x", "mixed", tp=1, attention_dp=1, pp=1, batch=batch) for batch in range(1, 26)
    ]
    for count, refused in ((24, False), (25, True)):
        layout = build_layout(instance, servers[:count]).layout
        if refused:
            with pytest.raises(ExportError, match="25 kinds of workers and a frontend"):
                export_layout(instance, layout, "dynamo")
        else:
            export_layout(instance, layout, "dynamo")


def test_dynamo_gpus_add_up_to_the_layout(result: Result, export: Export) -> None:
    services = _documents(export)[-1]["spec"]["services"]
    found: Counter[str] = Counter()
    for service in services.values():
        if service["componentType"] != "worker":
            continue
        nodes = service.get("multinode", {}).get("nodeCount", 1)
        gpus = int(service["resources"]["limits"]["gpu"])
        role = service.get("subComponentType", "mixed")
        found[role] += service["replicas"] * nodes * gpus
        args = service["extraPodSpec"]["mainContainer"]["args"]
        world = int(args[args.index("--tp-size") + 1]) * int(args[args.index("--pp-size") + 1])
        assert nodes * gpus == world
        assert ("topologyConstraint" in service) == (nodes > 1)
    wanted: Counter[str] = Counter()
    for (role, _), chips in _racks(result).items():
        wanted[role] += chips
    assert found == wanted


def test_dynamo_keeps_a_replica_in_its_rack(result: Result, export: Export) -> None:
    services = _documents(export)[-1]["spec"]["services"]
    cluster = result.instance.cluster
    several = any(
        len({cluster.chip(chip).domain for chip in replica.chips}) > 1
        for replica in result.layout.replicas
    )
    packed = [
        service["topologyConstraint"]["packDomain"]
        for service in services.values()
        if "topologyConstraint" in service
    ]
    assert ("block" in packed) == several
    assert set(packed) <= {"rack", "block"}


def test_dynamo_mounts_loadable_maps(result: Result, export: Export) -> None:
    documents = _documents(export)
    maps = {d["metadata"]["name"]: d["data"] for d in documents[:-1]}
    moe = result.instance.operations.moe
    mounted = set()
    for service in documents[-1]["spec"]["services"].values():
        pod = service["extraPodSpec"]
        args = pod["mainContainer"]["args"]
        if "--init-expert-location" not in args:
            continue
        assert moe is not None
        name = pod["volumes"][0]["configMap"]["name"]
        mounted.add(name)
        file = args[args.index("--init-expert-location") + 1]
        folder = pod["mainContainer"]["volumeMounts"][0]["mountPath"]
        spare = int(args[args.index("--ep-num-redundant-experts") + 1])
        text = maps[name][file.removeprefix(f"{folder}/")]
        layers = len(result.instance.model.layers)
        chips = int(args[args.index("--ep-size") + 1])
        problems = check_sglang(
            text, num_layers=layers, num_experts=moe.num_experts, spare=spare, chips=chips
        )
        assert problems == []
    assert mounted == set(maps)


def test_slurm_tasks_are_the_launchers(result: Result, export: Export) -> None:
    """A step per server with its own hosts, a task per launcher, and whole hosts with their devices."""
    files = export("slurm").files
    rows = list(csv.DictReader(io.StringIO(files["tasks.csv"])))
    racks: Counter[tuple[str, str]] = Counter()
    hosts = Hosts(result.instance.cluster)
    devices = []
    for row in rows:
        places = [hosts.of(chip) for chip in row["chips"].split()]
        assert {place.host for place in places} == {row["host"]}
        assert [str(place.gpu) for place in places] == row["gpus"].split()
        racks[row["role"], row["rack"]] += len(places)
        devices += [(row["host"], place.gpu) for place in places]
    assert racks == _racks(result)
    assert len(set(devices)) == len(devices)
    job = files["job.sbatch"].splitlines()
    used = {row["host"] for row in rows}
    assert f"#SBATCH --ntasks={len(rows)}" in job
    assert f"#SBATCH --nodes={len(used)}" in job
    per_host = Counter(place.host for place in hosts.places.values())
    assert {f"#SBATCH --gpus-per-node={per_host[host]}" for host in used} <= set(job)
    assert {"#SBATCH --exclusive", "#SBATCH --mem=0"} <= set(job)
    steps = [line.split()[1:5] for line in job if line.startswith("step ")]
    assert [name for name, *_ in steps] == list(dict.fromkeys(row["server"] for row in rows))
    for name, first, tasks, nodes in steps:
        own = rows[int(first) : int(first) + int(tasks)]
        assert {row["server"] for row in own} == {name}
        assert {row["ranks"] for row in own} == {tasks}
        assert files[f"steps/{name}.txt"].split() == [row["host"] for row in own]
        assert int(nodes) == len({row["host"] for row in own})


def test_graphml_reads_back_with_roles_by_rack(
    result: Result, export: Export, tmp_path: Path
) -> None:
    path = tmp_path / "cluster.graphml"
    path.write_text(export("graphml").files["cluster.graphml"])
    graph = nx.read_graphml(path)
    chips = [data for _, data in graph.nodes(data=True) if data["kind"] == "chip"]
    found = Counter((data["role"], data["rack"]) for data in chips if data["role"] != "idle")
    assert found == _racks(result)
    assert graph.number_of_edges() == result.instance.cluster.graph.number_of_edges()
    assert all(data["hbm_bytes"] <= data["hbm_capacity_bytes"] for data in chips if "rank" in data)


def test_dot_names_every_used_chip(result: Result, export: Export) -> None:
    text = export("dot").files["cluster.dot"]
    used = sum(len(replica.chips) for replica in result.layout.replicas)
    assert text.count(" stage ") == used
    assert text.count("{") == text.count("}")


def test_json_reads_back_and_evaluates_alike(
    result: Result, export: Export, tmp_path: Path
) -> None:
    path = tmp_path / "layout.json"
    path.write_text(export("json").files["layout.json"])
    instance, layout, document = read_result(path)
    assert layout == result.layout
    assert instance.digest == result.instance.digest
    wanted = result.evaluation.usd_per_m_output_tokens
    assert document["evaluation"]["usd_per_m_output_tokens"] == pytest.approx(wanted)
