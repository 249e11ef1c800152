"""What was exported: each server's options, read back from the commands that the exporter writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from rackfit.exporters.export import export_layout
from rackfit.exporters.launch.options import OptionTable, option_table
from rackfit.exporters.launch.routers import PORTS
from rackfit.importers.command_lines import shell_processes
from rackfit.live.site import Site
from topology.errors import InstanceError, Problem

#: engines whose servers can be read
ENGINES = ("vllm", "sglang")
ROUTER = "router"
#: options that say where a server runs, not what: a port may be forwarded, a path may be another host's
_PLACES = frozenset(
    """
    --host --port --model-path --speculative-draft-model-path --served-model-name --base-gpu-id --node-rank
    --nnodes --dist-init-addr --master-addr --master-port --data-parallel-size-local --data-parallel-address
    --data-parallel-rpc-port --data-parallel-start-rank --headless --disaggregation-bootstrap-port
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Expected:
    """One exported server: its first process. ``options`` by the engine's own name, without its places.

    ``kv_tokens``: KV that one attention rank holds at the full batch, every sequence at its longest; ``None``
    where layers keep unlike numbers of tokens.
    """

    name: str
    role: str
    host: str
    port: int
    model: str
    options: dict[str, Any]
    kv_tokens: int | None = None


def expected_servers(
    instance: Instance, layout: Layout, engine: str
) -> tuple[OptionTable, list[Expected]]:
    """Every server as ``rackfit export --to ENGINE --allow-approximate`` writes it. Raises ``InstanceError``."""
    if engine not in ENGINES:
        message = (
            f"expected one of {', '.join(ENGINES)}, whose servers say what they run; got {engine}"
        )
        raise InstanceError(Problem("--engine", message))
    asked = instance.scenario.engine or ""
    table = option_table(asked if asked.partition("@")[0] == engine else engine)
    exported = export_layout(instance, layout, engine, allow_approximate=True)
    found = []
    for process in shell_processes(exported.files["commands.sh"], "commands.sh"):
        if process.remarks["rank"].partition("/")[0] != "0":
            continue
        values, _ = table.read(process.words[len(table.program) :])
        own = {name: value for name, value in values.items() if table.canonical(name) == name}
        found.append(
            Expected(
                name=process.remarks["server"],
                role=process.remarks["role"],
                host=process.remarks["host"],
                port=int(values["--port"]),
                model=str(values["--served-model-name"]),
                options={name: value for name, value in own.items() if name not in _PLACES},
                kv_tokens=_kv_tokens(instance, process.remarks["role"], values),
            )
        )
    return table, found


def _kv_tokens(instance: Instance, role: str, values: dict[str, Any]) -> int | None:
    if instance.model.hybrid:
        return None
    sequences = values.get("--max-num-seqs")
    if sequences is None:  # SGLang counts those of all attention ranks
        ranks = values.get("--attn-dp-size") or values.get("--dp-size") or 1
        sequences = -(-values["--max-running-requests"] // ranks)
    workload = instance.workload
    return int(sequences) * (workload.input_tokens if role == "prefill" else workload.final_context)


def matched(
    words: Sequence[str], servers: Sequence[Expected], timeout_s: float, key: str | None
) -> list[tuple[Site, Expected | None]]:
    """Each ``URL`` or ``NAME=URL`` with the server that it stands for; ``None``: a router.

    A URL without a name is the server whose host and port it has, or whose port alone; one of a layout with
    one server is that. Raises ``InstanceError`` with every word that fits none or fits one twice.
    """
    by_name = {one.name: one for one in servers}
    names = f"one of {', '.join([*list(by_name)[:12], ROUTER])}"
    found: list[tuple[Site, Expected | None]] = []
    problems: list[Problem] = []
    taken: set[str] = set()
    for word in words:
        name, equals, url = word.partition("=")
        named = bool(equals) and "/" not in name and ":" not in name
        site = Site(url if named else word, timeout_s, key)
        if named and name not in (*by_name, ROUTER):
            problems.append(Problem(word[:200], f"names no server of the layout: expected {names}"))
            continue
        wanted = name if named else _guessed(site, servers, taken)
        if wanted is None:
            problems.append(Problem(word[:200], f"which server is this? NAME={site.url}, {names}"))
            continue
        if wanted in taken:
            problems.append(Problem(word[:200], f"{wanted} is named twice"))
        taken.add(wanted)
        found.append((site, by_name.get(wanted)))
    if problems:
        raise InstanceError(problems)
    return found


def _guessed(site: Site, servers: Sequence[Expected], taken: set[str]) -> str | None:
    here = [one.name for one in servers if (one.host.lower(), one.port) == (site.host, site.port)]
    ports = [one.name for one in servers if one.port == site.port and one.name not in taken]
    for names in (here, ports):
        if len(names) == 1:
            return names[0]
    if site.port in PORTS and ROUTER not in taken:
        return ROUTER
    return servers[0].name if len(servers) == 1 else None
