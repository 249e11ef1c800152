"""How a measured model was served: the groups of an engine's launch command, in the engine's own meaning of its sizes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from costmodel.measured.recipes import Settings
from costmodel.measured.rows import Group
from rackfit.importers import from_sglang, from_trtllm, from_vllm
from rackfit.importers.command_lines import Process, read_processes
from rackfit.importers.servers import FoundServer
from rackfit.importers.unpriced import foreign
from rackfit.measurements.bench import Deployed
from topology.errors import InstanceError, Problem
from topology.names import shown

_SERVERS = {"sglang": from_sglang.servers, "vllm": from_vllm.servers, "trtllm": from_trtllm.servers}
#: what a line of launch options begins with, where it does not say so itself
_PREFIX = {"sglang": ("python", "-m", "sglang.launch_server"), "vllm": ("vllm", "serve")}


def deployed_by(path: Path, engine: str | None = None) -> Deployed:
    """The deployment of a file of launch commands; the engine is told by its command.

    Raises ``InstanceError`` for commands of no engine or of several, and for servers that differ.
    """
    processes = read_processes(path)
    found = {name: read(processes, path.parent) for name, read in _SERVERS.items()}
    engines = [name for name, servers in found.items() if servers and engine in (None, name)]
    if len(engines) != 1:
        what = "several engines'" if engines else f"no {engine or 'engine'}'s"
        message = f"holds {what} launch command; known: {', '.join(_SERVERS)}"
        raise InstanceError(Problem(shown(path, 200), message))
    return _deployed(engines[0], found[engines[0]], shown(path, 200))


def deployed_as(words: str, engine: str, place: str) -> Deployed:
    """The deployment of a launch command, or of its options alone. Raises ``InstanceError``."""
    if engine not in _SERVERS:
        message = f"options of {shown(engine, 40)} are not read; known: {', '.join(_SERVERS)}"
        raise InstanceError(Problem(place, message))
    try:
        given = tuple(shlex.split(words))
    except ValueError as error:
        raise InstanceError(Problem(place, f"not a shell command: {error}")) from None
    if given[:1] and given[0].startswith("-") and engine in _PREFIX:
        given = (*_PREFIX[engine], *given)
    servers = _SERVERS[engine]([Process(place, {}, {}, given)], Path())
    if not servers:
        message = f"holds no launch command of {engine}: {shown(words, 80)}"
        raise InstanceError(Problem(place, message))
    return _deployed(engine, servers, place)


def _deployed(engine: str, servers: Sequence[FoundServer], place: str) -> Deployed:
    """One group for each role; servers of a role must be alike."""
    groups: dict[str, Group] = {}
    for server in servers:
        group = _group(server, engine)
        before = groups.get(server.role)
        if before is not None:
            if (before.tp, before.attention_dp, before.pp) != (
                group.tp,
                group.attention_dp,
                group.pp,
            ):
                message = f"two unlike {server.role} servers; a run is compared with servers that are alike"
                raise InstanceError(Problem(place, message))
            group = Group(group.tp, group.attention_dp, group.pp, before.workers + group.workers,
                          group.expert_ways, group.settings)  # fmt: skip
        groups[server.role] = group
    precision = next((server.weights for server in servers if server.weights), "")
    unusable = next(filter(None, map(_unusable, servers)), "")
    if set(groups) == {"mixed"}:
        return Deployed(engine, groups["mixed"], None, precision, unusable)
    if set(groups) == {"prefill", "decode"}:
        return Deployed(engine, groups["decode"], groups["prefill"], precision, unusable)
    message = (
        f"servers for {' and '.join(sorted(groups))}; expected prefill and decode, or both in one"
    )
    raise InstanceError(Problem(place, message))


def _unusable(server: FoundServer) -> str:
    """Why runs of a server cannot be compared; empty: they can."""
    if server.drafts is not None:
        return f"ran with drafts ({server.drafts.words})"
    other = foreign(server.unpriced)
    return f"ran with {other}" if other else ""


def _running(server: FoundServer, engine: str) -> float | None:
    """Sequences that decode together at most, as :class:`Settings` counts them."""
    if server.batch is None:
        return None
    return server.batch / (server.attention_dp if engine == "trtllm" else 1)


def _group(server: FoundServer, engine: str) -> Group:
    """A server's group with the settings that its command says."""
    kv = server.kv_format
    settings = Settings(
        running=_running(server, engine),
        chunk_tokens=server.prefill_tokens,
        redundant_experts=server.spare,
        kv="fp8" if kv == "fp8" else "bf16" if kv in ("bf16", "fp16") else None,
        memory_fraction=server.memory_fraction,
    )
    ways = 1 if server.sharded_experts else server.width
    return Group(server.tp, server.attention_dp, server.pp, server.copies, ways, settings)
