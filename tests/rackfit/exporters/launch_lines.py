"""Reads ``commands.sh`` as a shell would: environment and words of each process."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One process and what the comment above it says."""

    said: dict[str, str]
    environment: dict[str, str]
    words: list[str]

    def value(self, name: str) -> str:
        """Value of an option."""
        return self.words[self.words.index(name) + 1]

    def number(self, name: str, default: int = 1) -> int:
        """Whole-number value of an option."""
        return int(self.value(name)) if name in self.words else default


def read_lines(text: str) -> list[Line]:
    """Every process of a command file."""
    lines: list[Line] = []
    said: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# rackfit:"):
            said = dict(part.split("=", 1) for part in line.split()[2:])
        elif line and not line.startswith("#"):
            words = shlex.split(line)
            environment = {}
            while "=" in words[0] and not words[0].startswith("-"):
                name, value = words.pop(0).split("=", 1)
                environment[name] = value
            lines.append(Line(said, environment, words))
    return lines


def servers(lines: list[Line]) -> dict[str, list[Line]]:
    """Processes by server, in rank order."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(line.said["server"], []).append(line)
    for group in found.values():
        group.sort(key=lambda line: int(line.said["rank"].split("/")[0]))
    return found


def sglang_ranks(group: list[Line]) -> list[tuple[str, int]]:
    """Host and device of each (stage, shard), by SGLang's rank arithmetic."""
    first = group[0]
    tp, pp = first.number("--tp-size"), first.number("--pp-size")
    nnodes = first.number("--nnodes")
    assert (tp * pp) % nnodes == 0
    found: dict[tuple[int, int], tuple[str, int]] = {}
    for line in group:
        node = line.number("--node-rank", 0)
        stages_per_node = max(pp // nnodes, 1)
        nodes_per_stage = max(nnodes // pp, 1)
        shards_per_node = tp // nodes_per_stage
        for stage in range(
            stages_per_node * (node // nodes_per_stage),
            stages_per_node * (node // nodes_per_stage + 1),
        ):
            start = shards_per_node * (node % nodes_per_stage)
            for shard in range(start, start + shards_per_node):
                gpu = (
                    line.number("--base-gpu-id", 0)
                    + (stage % stages_per_node) * shards_per_node
                    + shard % shards_per_node
                )
                assert (stage, shard) not in found
                found[stage, shard] = (line.said["host"], gpu)
    return [found[stage, shard] for stage in range(pp) for shard in range(tp)]


def vllm_ranks(group: list[Line], visible: str) -> dict[tuple[int, int], tuple[str, int]]:
    """Host and device of (engine, rank within the engine)."""
    first = group[0]
    tp, pp = first.number("--tensor-parallel-size"), first.number("--pipeline-parallel-size")
    dp, world = first.number("--data-parallel-size"), tp * pp
    found: dict[tuple[int, int], tuple[str, int]] = {}
    for line in group:
        devices = [int(gpu) for gpu in line.environment[visible].split(",")]
        nnodes = line.number("--nnodes")
        if nnodes > 1:
            local = world * dp // nnodes
            assert world * dp % nnodes == 0
            start = line.number("--node-rank") * local
        else:
            local = line.number("--data-parallel-size-local") * world
            start = line.number("--data-parallel-start-rank", 0) * world
        assert len(devices) == local
        for offset, device in enumerate(devices):
            place = divmod(start + offset, world)
            assert place not in found
            found[place] = (line.said["host"], device)
    assert len(found) == world * dp
    return found


def mpi_tasks(line: Line) -> list[tuple[str, int]]:
    """Host and device of each rank of a trtllm-serve command."""
    if line.words[0] != "mpirun":
        gpus = [int(gpu) for gpu in line.environment["CUDA_VISIBLE_DEVICES"].split(",")]
        return [(line.said["host"], gpu) for gpu in gpus]
    found = []
    words = [*line.words[1:], ":"]
    while words:
        part, words = words[: words.index(":")], words[words.index(":") + 1 :]
        host, slots = part[part.index("--host") + 1].rsplit(":", 1)
        visible = part[part.index("-x") + 1].removeprefix("CUDA_VISIBLE_DEVICES=")
        gpus = [int(gpu) for gpu in visible.split(",")]
        assert int(part[part.index("-n") + 1]) == len(gpus) <= int(slots)
        found += [(host, gpu) for gpu in gpus]
    return found
