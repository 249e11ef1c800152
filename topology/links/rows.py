"""Measured rows of collectives as (cluster, kind, chips, bytes, seconds), and what physics says.

NCCL rows are bus bandwidth at three sizes and the smallest message; expert-parallel rows are times
of dispatch and combine. Knows nothing of fitting.

*Sources:* NCCL: statistics of NVIDIA's aiconfigurator tables (github.com/ai-dynamo/aiconfigurator,
commit 095f58a, message sizes turned from elements into bytes). Expert-parallel: DeepEP's published
low-latency table, aiconfigurator's DeepEP and TensorRT-LLM tables, arXiv 2506.12708.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from topology.catalogue import data_dir
from topology.collectives.compose import Cost, cost_of
from topology.collectives.demand import Dispatched
from topology.load import load_cluster

_MIB = 2.0**20
_NCCL_KINDS = {
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "all_reduce": "all-reduce",
}
#: Prefix of a measured file, the chip and the cluster that it was measured on.
_SYSTEMS = {
    "h100_sxm": ("h100", "hgx-h100"),
    "h200_sxm": ("h200", "hgx-h200"),
    "b200_sxm": ("b200", "hgx-b200"),
    "b300_sxm": ("b300", "hgx-b300"),
    "gb200": ("gb200", "gb200-nvl72"),
    "gb300": ("gb300", "gb300-nvl72"),
}


@dataclass(frozen=True, slots=True)
class MeasuredTime:
    """One measured time. ``build`` is the software that ran, ``bytes`` follow the kind's convention."""

    chip: str
    build: str
    kind: str
    num_chips: int
    num_bytes: float
    seconds: float
    cost: Cost


def nccl_rows() -> Iterator[MeasuredTime]:
    """Rows of ``measured/nccl.csv`` on chips that have a cluster: 0, 1, 16 and 512 MiB each."""
    with (data_dir("measured") / "nccl.csv").open(encoding="utf-8") as lines:
        for line in csv.DictReader(lines):
            prefix, _, build = line["file"].partition("_comm_")
            if prefix not in _SYSTEMS:
                continue
            chip, cluster = _SYSTEMS[prefix]
            kind, count = _NCCL_KINDS[line["op"]], int(line["n"])
            cost = physics(cluster, kind, count, None)
            bus = (count - 1) / count * (2 if kind == "all-reduce" else 1)
            yield MeasuredTime(
                chip, build, kind, count, 0.0, float(line["lat_min_us"]) * 1e-6, cost
            )
            for size, column in ((_MIB, "bus@1MiB"), (16 * _MIB, "bus@16MiB")):
                seconds = bus * size / (float(line[column]) * 1e9)
                yield MeasuredTime(chip, build, kind, count, size, seconds, cost)
            size = float(line["maxMiB"]) * _MIB
            seconds = bus * size / (float(line["bus@max"]) * 1e9)
            yield MeasuredTime(chip, build, kind, count, size, seconds, cost)


def expert_rows() -> Iterator[MeasuredTime]:
    """Rows of ``measured/moe_all_to_all.csv``; combine is dispatch the other way round.

    Low-latency kernels send one copy per expert, so copies are not merged per domain.
    """
    with (data_dir("measured") / "moe_all_to_all.csv").open(encoding="utf-8") as lines:
        for line in csv.DictReader(lines):
            count, top_k = int(line["chips"]), int(line["top_k"])
            size = float(line["tokens"]) * float(line["bytes_per_token"])
            cost = physics(line["cluster"], "dispatch", count, top_k)
            build = f"{line['source']}, {line['step']} of {line['tokens']}"
            yield MeasuredTime(
                line["chip"], build, "dispatch", count, size, float(line["seconds"]), cost
            )


@lru_cache(maxsize=1024)
def physics(cluster: str, kind: str, num_chips: int, top_k: int | None) -> Cost:
    """Cost at full link speed on this many chips, in as few domains as hold them."""
    size = len(load_cluster(cluster).domains[0].chips)
    place = load_cluster(cluster, count=max(1, -(-num_chips // size)))
    parts = [
        (domain.index, domain.fabric, tuple(range(min(num_chips, size))))
        for domain in place.domains
    ]
    return cost_of(kind, parts, place.network, Dispatched(top_k, one_copy_per_domain=False))
