"""What stands before the servers, and what their hosts need beside the engine.

A router that joins prefill and decode servers takes no others (both engines' routers then leave ``--worker-urls``
out), so that servers of both roles get a router of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from costmodel.replay.router import AHEAD
from costmodel.replica.exchanges import exchange_in
from rackfit.exporters.launch.deployment import Deployment, Server
from rackfit.exporters.launch.shell import script_head
from rackfit.quoting import shell_word

#: ports of the router of prefill and decode servers, and of that of servers of both roles beside it
PORTS = (8000, 8001)
#: seconds that a router waits for servers: they read weights and compile kernels; the routers' own limits are less
PATIENCE_S = 7200

#: what makes Dynamo's router hold prompts back and send the shortest on first, as replays do (version 1.2 and later)
QUEUE = ("--load-aware", "--router-queue-threshold", str(AHEAD), "--router-queue-policy", "wspt")


@dataclass(frozen=True)
class Router:
    """An engine's router: its command, its option for pools apart, and the package that brings it.

    ``bootstrap``: whether a prefill server is named with the port where its KV is asked for. ``metrics``: the port of
    its own metrics, where it has them unasked.
    """

    program: tuple[str, ...]
    pools: str
    package: str
    bootstrap: bool = False
    metrics: int | None = None


SGLANG = Router(
    ("python3", "-m", "sglang_router.launch_router"), "--pd-disaggregation", "sglang-router", True
)
VLLM = Router(("vllm-router",), "--vllm-pd-disaggregation", "vllm-router", metrics=29000)


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
        files["router.sh"] = _waiting(words, PORTS[0])
    if mixed:
        words = [*router.program, "--worker-urls", *map(_url, mixed)]
        if pools and router.metrics is not None:  # the other router may run on the same host
            words += ["--prometheus-port", str(router.metrics + 1)]
        files["router-mixed.sh" if pools else "router.sh"] = _waiting(words, PORTS[bool(pools)])
    return files


def push_router_files(deployment: Deployment) -> dict[str, str]:
    """A router of its own for vLLM servers that push KV: vllm-router does not hand on the number of stages."""
    words = ["python3", "router.py"]
    for server in deployment.servers:
        if server.role != "mixed":
            words += [f"--{server.role}", _url(server)]
    source = Path(__file__).with_name("push_router.py").read_text(encoding="utf-8")
    script = router_script([*words, "--host", "0.0.0.0", "--port", str(PORTS[0])])
    return {"router.sh": script, "router.py": source}


def _url(server: Server) -> str:
    return f"http://{server.head}:{server.port}"


def _waiting(words: Sequence[str], port: int) -> str:
    return router_script(
        [*words, "--worker-startup-timeout-secs", str(PATIENCE_S), "--host", "0.0.0.0", "--port", str(port)]
    )  # fmt: skip


def router_script(words: Sequence[str]) -> str:
    """A script that becomes a router."""
    return f"{script_head()}\nexec {' '.join(map(shell_word, words))}\n"


def holds_back(deployment: Deployment) -> bool:
    """Whether the layout was found with a router that holds prompts back, the longest most."""
    return deployment.instance.limits.prompt_order == "shortest"


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


def needs(deployment: Deployment, package: str | None, transfer: str = "NIXL") -> list[str]:
    """What hosts need beside the engine, and a queue before it, as notes; none where the engine is enough. ``transfer``: what moves KV."""
    wanted = []
    if any(len(hosts) > 1 for hosts in _hosts_of_domains(deployment)):
        wanted.append("the IMEX service (NVLink between hosts)")
    if deployment.disaggregated or any(len(set(_hosts(one))) > 1 for one in deployment.servers):
        wanted.append("ulimit -l without limit (NICs use locked memory)")
    if deployment.disaggregated:
        wanted.append(f"{transfer} (KV between servers)")
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
    found = [f"hosts need beside the engine: {', '.join(wanted)}"] if wanted else []
    if holds_back(deployment):
        found.append(
            "the layout was found with the shortest waiting prompt next, and prompts held back while each server has "
            f"{AHEAD} passes of them: nothing here does that, so put a queue before the servers, as NVIDIA Dynamo's router has one "
            f"({' '.join(QUEUE)}), or search with limits: {{prompt_order: first-come}}"
        )
    return found


def _hosts(server: Server) -> list[str]:
    return [place.host for place in server.places]


def _hosts_of_domains(deployment: Deployment) -> list[set[str]]:
    """Hosts in use of each scale-up domain of NVIDIA's chips."""
    found: dict[int, set[str]] = {}
    for place in (place for server in deployment.servers for place in server.places):
        chip = deployment.instance.cluster.chip(place.chip)
        if chip.chip.vendor == "NVIDIA":
            found.setdefault(chip.domain, set()).add(place.host)
    return list(found.values())
