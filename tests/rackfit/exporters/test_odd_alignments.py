"""Servers of odd widths that start in the middle of a host: every rank still lands on its chip."""

from __future__ import annotations

import random

import pytest
from launch_lines import read_lines, servers, sglang_ranks, vllm_ranks

from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Workload
from rackfit.documents.result import Result
from rackfit.exporters.export import export_layout
from rackfit.exporters.launch.hosts import Hosts
from rackfit.importers.deployment import build_layout
from rackfit.importers.servers import FoundServer

WORKLOAD = Workload(input_tokens=500, output_tokens=100, expert_load="uniform")


@pytest.fixture(scope="module", params=["gb200-nvl72", "hgx-h100@4"])
def instance(request: pytest.FixtureRequest) -> Instance:
    """A small mixture of experts on hosts of four or eight chips."""
    return resolve_instance(
        Scenario(model="qwen3-30b-a3b", cluster=request.param, workload=WORKLOAD)
    )


def _found(rng: random.Random, room: int) -> FoundServer:
    tp = rng.choice((1, 1, 1, 2, 4))
    pp = rng.choice((1, 1, 2, 3, 5, 7)) if tp == 1 else rng.choice((1, 2))
    most = max(1, min(room // (tp * pp), 24)) if tp == 1 else max(1, 8 // (tp * pp))
    ranks = rng.randint(1, most)
    return FoundServer(
        "random", "mixed", tp=tp, attention_dp=ranks, pp=pp,
        spare=-128 % (tp * ranks), batch=ranks * pp * rng.randint(1, 4),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_ranks_land_on_their_chips(instance: Instance, seed: int) -> None:
    rng = random.Random(seed)
    found: list[FoundServer] = []
    room = len(instance.cluster.chips)
    while room > 8 and len(found) < 5:
        found.append(_found(rng, room))
        room -= found[-1].width * found[-1].pp
    layout = build_layout(instance, found).layout
    hosts = Hosts(instance.cluster)
    sglang = export_layout(instance, layout, "sglang", allow_approximate=True)
    landed = [
        sglang_ranks(group) for group in servers(read_lines(sglang.files["commands.sh"])).values()
    ]
    assert landed == [
        [(hosts.of(chip).host, hosts.of(chip).gpu) for chip in replica.chips]
        for replica in layout.replicas
    ]
    vllm = export_layout(instance, layout, "vllm", allow_approximate=True)
    groups = servers(read_lines(vllm.files["commands.sh"])).values()
    for replica, group in zip(layout.replicas, groups, strict=True):
        tp = replica.shape.tp
        places = vllm_ranks(group, "CUDA_VISIBLE_DEVICES")
        for (engine, rank), place in places.items():
            stage, shard = divmod(rank, tp)
            chip = hosts.of(replica.stages[stage].chips[engine * tp + shard])
            assert place == (chip.host, chip.gpu)
        assert len(places) == len(replica.chips)


def test_failed_chips_leave_gaps_that_no_launcher_bridges(deepseek: Result) -> None:
    layout, instance = deepseek.layout, deepseek.instance
    hosts = Hosts(instance.cluster, gpus_per_host=6)
    exported = export_layout(instance, layout, "sglang", hosts=hosts)
    lines = read_lines(exported.files["commands.sh"])
    for line in lines:
        gpus = [int(gpu) for gpu in line.said["gpus"].split(",")]
        assert gpus == list(range(gpus[0], gpus[0] + len(gpus)))
        assert gpus[-1] < 6
    used = sum(len(line.said["gpus"].split(",")) for line in lines)
    assert used == sum(len(replica.chips) for replica in layout.replicas)
