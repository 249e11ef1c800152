"""What stands before the servers, and what their hosts need beside the engine.

A router that joins prefill and decode servers takes no others (both engines' routers then leave ``--worker-urls``
out), so that servers of both roles get a router of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.replica.exchanges import exchange_in
from rackfit.exporters.deployment import Deployment, Server
from rackfit.quoting import shell_word

#: ports of the router of prefill and decode servers, and of that of servers of both roles beside it
PORTS = (8000, 8001)


@dataclass(frozen=True)
class Router:
    """An engine's router: its command, its option for pools apart, and the package that brings it.

    ``bootstrap``: whether a prefill server is named with the port where its KV is asked for.
    """

    program: tuple[str, ...]
    pools: str
    package: str
    bootstrap: bool = False


SGLANG = Router(
    ("python3", "-m", "sglang_router.launch_router"), "--pd-disaggregation", "sglang-router", True
)
VLLM = Router(("vllm-router",), "--vllm-pd-disaggregation", "vllm-router")


def bootstrap_port(server: Server) -> int:
    """Where an SGLang prefill server is asked for KV."""
    return server.port + 199


def router_files(deployment: Deployment, router: Router) -> dict[str, str]:
    """``router.sh``, and ``router-mixed.sh`` where there are pools and servers of both roles."""
    pools = [server for server in deployment.servers if server.role != "mixed"]
    mixed = [server for server in deployment.servers if server.role == "mixed"]
    files = {}
    if pools:
        words = [*router.program, router.pools]
        for server in pools:
            words += [f"--{server.role}", _url(server)]
            if server.role == "prefill" and router.bootstrap:
                words.append(str(bootstrap_port(server)))
        files["router.sh"] = _script(words, PORTS[0])
    if mixed:
        words = [*router.program, "--worker-urls", *map(_url, mixed)]
        files["router-mixed.sh" if pools else "router.sh"] = _script(words, PORTS[bool(pools)])
    return files


def _url(server: Server) -> str:
    return f"http://{server.head}:{server.port}"


def _script(words: Sequence[str], port: int) -> str:
    line = " ".join(shell_word(word) for word in (*words, "--host", "0.0.0.0", "--port", str(port)))
    return f"#!/usr/bin/env bash\nexec {line}\n"


def router_notes(deployment: Deployment, router: Router) -> list[str]:
    """How requests are shared between two routers, and what hosts need beside the engine."""
    found = []
    price = deployment.evaluation.priced
    roles = {server.role for server in deployment.servers}
    if len(roles) > 2 and price.requests_per_s:
        share = price.mixed_per_s / price.requests_per_s
        found.append(
            f"two routers: router.sh on port {PORTS[0]} for prefill and decode servers, router-mixed.sh on port "
            f"{PORTS[1]} for the others, which serve {share:.0%} of the requests; what splits them is yours to choose"
        )
    return [*found, *needs(deployment, router.package)]


def needs(deployment: Deployment, package: str | None) -> list[str]:
    """Software that hosts need beside the engine, as a note; none where the engine is enough."""
    wanted = []
    if deployment.disaggregated:
        wanted.append("NIXL (KV between servers)")
    backends = {
        found.backend
        for server in deployment.servers
        for found in [exchange_in(deployment.instance, server.replica)]
        if found is not None
    }
    if any(backend.startswith("deepep") for backend in backends):
        wanted.append("DeepEP (tokens between experts; NVSHMEM, and IBGDA between hosts)")
    if package is not None:
        wanted.append(f"the router (pip install {package})")
    return [f"hosts need beside the engine: {', '.join(wanted)}"] if wanted else []
