"""How vLLM numbers a replica's chips: data-parallel engines, each of ``pp x tp`` ranks, on hosts."""

from __future__ import annotations

from dataclasses import dataclass

from rackfit.exporters.launch.deployment import Launcher, Server
from rackfit.exporters.launch.hosts import Place


@dataclass(frozen=True)
class Share:
    """One ``vllm serve`` process: its devices and its part of the rank arithmetic.

    Either ``local`` whole engines from ``start`` on, or (``nnodes`` > 1) an equal part of the world.
    """

    launcher: Launcher
    start: int
    local: int
    nnodes: int


def engines(server: Server) -> list[tuple[Place, ...]]:
    """Places of each data-parallel engine, stage by stage."""
    shape = server.replica.shape
    width = shape.chips_per_stage
    return [
        tuple(
            server.places[stage * width + rank * shape.tp + shard]
            for stage in range(shape.pp)
            for shard in range(shape.tp)
        )
        for rank in range(shape.attention_dp)
    ]


def shares(server: Server) -> list[Share]:
    """The processes of a server, head first.

    Engines that each lie on one host are grouped by host; where one does not, every engine is cut
    into the fewest equal parts that do, and all parts form one world (``--nnodes``).
    """
    found = engines(server)
    if all(len({place.host for place in engine}) == 1 for engine in found):
        groups: list[list[tuple[Place, ...]]] = []
        for engine in found:
            if groups and groups[-1][0][0].host == engine[0].host:
                groups[-1].append(engine)
            else:
                groups.append([engine])
        result, start = [], 0
        for number, group in enumerate(groups):
            places = tuple(place for engine in group for place in engine)
            launcher = Launcher(number, len(groups), places)
            result.append(Share(launcher, start, len(group), 1))
            start += len(group)
        return result
    size = next(
        size
        for size in range(len(found[0]), 0, -1)
        if all(_on_hosts(engine, size) for engine in found)
    )
    parts = [
        engine[start : start + size] for engine in found for start in range(0, len(engine), size)
    ]
    per_engine = len(found[0]) // size
    return [
        Share(Launcher(number, len(parts), part), number // per_engine, 1, len(parts))
        for number, part in enumerate(parts)
    ]


def _on_hosts(engine: tuple[Place, ...], size: int) -> bool:
    return len(engine) % size == 0 and all(
        len({place.host for place in engine[start : start + size]}) == 1
        for start in range(0, len(engine), size)
    )
