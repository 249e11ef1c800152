"""``vllm``: serve commands. vLLM takes no static expert placement; it starts from experts in order.

Attention ranks are data-parallel engines; experts lie on all ``tp x dp`` ranks of a stage
(``--enable-expert-parallel``). Its own balancer (``--enable-eplb``) moves experts later, by what it
observes; an approximate export is priced as it starts, before the first move.
"""

from __future__ import annotations

import json
from math import ceil

from costmodel.layout.layout import Layout
from costmodel.question.engine_files import load_engine
from costmodel.question.instance import Instance
from costmodel.replica.exchanges import exchange_in
from rackfit.exporters.launch.deployment import Deployment, Server
from rackfit.exporters.launch.engine_limits import (
    draft_method,
    draft_path,
    exchange_notes,
    facts_of,
    refusals,
    unlike_notes,
    with_room,
)
from rackfit.exporters.launch.limit import Limit
from rackfit.exporters.launch.options import dtype_name, kv_dtype_name, option_table
from rackfit.exporters.launch.routers import (
    VLLM,
    needs,
    push_router_files,
    router_files,
    router_notes,
)
from rackfit.exporters.launch.shell import Command, command_file, host_scripts, start_notes
from rackfit.exporters.launch.vllm_ranks import Share, shares
from rackfit.exporters.placements.maps import (
    chip_limits,
    plain_limits,
    same_as_start,
    slot_limits,
    spare_slots,
    with_even_slots,
    with_plain_slots,
    with_start_maps,
)

NAME = "vllm"
ENGINE = "vllm"
LAUNCHES = True
SUMMARY = "vLLM serve commands per replica and host"
#: pieces of answers a second that one process of the API sends: half of what the measured one did when they began to
#: wait for each other (docs/kernels.md, a whole engine under load)
_SENT_PER_S = 2500.0
#: processes of the API at most: a host has other work
_MOST_PROCESSES = 16


def limits(deployment: Deployment) -> list[Limit]:
    """Expert placements, and what every vLLM server lacks."""
    found = refusals(deployment) + engine_limits(deployment, "vLLM")
    for server in deployment.servers:
        plain = plain_limits(deployment, server, "vLLM")
        if not plain:
            continue  # each expert once and in order, on chips that may differ by one
        if not facts_of(deployment).models.have("spare", deployment.instance.model):
            found += plain
            continue
        found += slot_limits(server, "vLLM")
        if not same_as_start(deployment.instance, deployment.layout, server.replica):
            message = "vLLM loads no expert placement; it starts with experts in order"
            found.append(Limit(server.name, message, True))
    return found


def engine_limits(deployment: Deployment, target: str) -> list[Limit]:
    """Mixed chips, pipelines behind a KV transfer, ranks of a dense model."""
    found = []
    for server in deployment.servers:
        shape, place = server.replica.shape, server.name
        found += chip_limits(deployment, server, target)
        if server.role == "decode" and shape.pp > 1:
            message = f"{shape.pp} stages in a decode server; the KV transfer takes one"
            found.append(Limit(place, message, False))
        if server.role == "prefill" and shape.pp > 1 and deployment.instance.model.hybrid:
            message = (
                f"{shape.pp} stages in a prefill server of a model with windowed or "
                "recurrent layers; the KV transfer takes one"
            )
            found.append(Limit(place, message, False))
        if shape.attention_dp > 1 and deployment.instance.operations.moe is None:
            message = (
                f"{shape.attention_dp} data-parallel ranks of a dense model; {target} wants "
                "independent servers"
            )
            found.append(Limit(place, message, False))
    return found


def approximate(instance: Instance, layout: Layout) -> Layout:
    """Even slots, or none spare where the model's class has none; experts in order as vLLM starts."""
    engine = instance.engine
    if engine is not None and not engine.models.have("spare", instance.model):
        return with_room(instance, with_plain_slots(instance, layout))
    even = with_even_slots(layout)
    placed = with_start_maps(
        instance, even, lambda replica: not same_as_start(instance, even, replica)
    )
    return with_room(instance, placed)


def notes(deployment: Deployment) -> list[str]:
    """What the commands rely on beside the layout."""
    found = [deployment.checkpoint_note]
    found += exchange_notes(deployment) + unlike_notes(deployment)
    if connector(deployment) == "NixlPushConnector":
        found.append(
            "prefill servers with pipeline stages write their KV into the decode server (NixlPushConnector, vLLM 0.27 or "
            "later); router.py stands before them, as vllm-router does not tell the decode server of stages"
        )
    if any(spare_slots(deployment, server) for server in deployment.servers):
        found.append("the balancer replaces the starting placement after its first interval")
    routed = len(deployment.servers) > 1
    roles = {server.role for server in deployment.servers}
    packaged = routed and ("mixed" in roles or connector(deployment) == "NixlConnector")
    found += router_notes(deployment, VLLM) if packaged else needs(deployment, None)
    return found + start_notes(
        deployment, "--max-model-len", ", then bash router.sh on any of them" if routed else ""
    )


def render(deployment: Deployment) -> dict[str, str]:
    """``commands.sh`` and one script per host."""
    commands = [
        Command(server, share.launcher, _words(deployment, server, share), environment)
        for server in deployment.servers
        for share in shares(server)
        for environment in [_environment(server, share, "CUDA_VISIBLE_DEVICES")]
    ]
    files = {
        "commands.sh": command_file(
            deployment, commands, option_table(deployment.engine_name).version
        )
    }
    if len(deployment.servers) > 1:
        files |= router_files(deployment, VLLM)
    if connector(deployment) == "NixlPushConnector":
        files |= push_router_files(deployment)
    return files | host_scripts(commands)


def connector(deployment: Deployment) -> str:
    """The KV connector of a disaggregated deployment."""
    piped = any(s.role == "prefill" and s.replica.shape.pp > 1 for s in deployment.servers)
    return "NixlPushConnector" if piped else "NixlConnector"


def _environment(server: Server, share: Share, visible: str) -> dict[str, str]:
    environment = {visible: ",".join(str(gpu) for gpu in share.launcher.gpus)}
    if server.replica.shape.pp > 1:
        layers = ",".join(str(count) for count in server.stage_layers())
        environment["VLLM_PP_LAYER_PARTITION"] = layers
    if server.role != "mixed":
        environment["VLLM_NIXL_SIDE_CHANNEL_HOST"] = share.launcher.host
        port = server.rendezvous_port + 60 + share.start
        environment["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(port)
    return environment


def _words(deployment: Deployment, server: Server, share: Share) -> tuple[str, ...]:
    words = [
        *option_table(deployment.engine_name).program, deployment.options.model_path,
        *engine_words(deployment, server),
    ]  # fmt: skip
    spare = spare_slots(deployment, server)
    exchange = exchange_in(deployment.instance, server.replica)
    if exchange is not None:  # one data-parallel rank exchanges nothing
        words += ["--all2all-backend", exchange.backend]
    words += _graphs(deployment, server)
    if spare:
        config = {"num_redundant_experts": spare}
        words += ["--enable-eplb", "--eplb-config", json.dumps(config)]
    if server.role != "mixed":
        role = "kv_producer" if server.role == "prefill" else "kv_consumer"
        transfer = {"kv_connector": connector(deployment), "kv_role": role}
        words += ["--kv-transfer-config", json.dumps(transfer)]
    return (*words, *_api_words(deployment, server, share), *rank_words(server, share))


def _api_words(deployment: Deployment, server: Server, share: Share) -> list[str]:
    """More processes that take requests and send tokens than one for each attention rank, where those had too much to send."""
    if share.launcher.rank or server.role == "prefill":
        return []
    instance = deployment.instance
    service = deployment.evaluation.priced.replicas[server.index].service
    drafts = instance.speculative
    pieces = instance.workload.output_tokens / (1.0 if drafts is None else drafts.emitted)
    count = min(_MOST_PROCESSES, ceil(float(service.requests_per_s) * pieces / _SENT_PER_S))
    return ["--api-server-count", str(count)] if count > server.replica.shape.attention_dp else []


def engine_words(deployment: Deployment, server: Server) -> list[str]:
    """Options of the engine alone: sizes, memory, batch."""
    shape, instance = server.replica.shape, deployment.instance
    words = [
        "--served-model-name", instance.model.name,
        "--max-model-len", str(instance.workload.longest),
        "--dtype", dtype_name(instance.model.activation_dtype),
        "--kv-cache-dtype", kv_dtype_name(instance.model, load_engine("vllm").kv_dtypes),
        "--gpu-memory-utilization", f"{deployment.total_fraction(server):g}",
        "--max-num-seqs", str(server.per_rank()),
        "--max-num-batched-tokens", str(_tokens(deployment, server)),
        "--tensor-parallel-size", str(shape.tp),
        "--pipeline-parallel-size", str(shape.pp),
        "--data-parallel-size", str(shape.attention_dp),
    ]  # fmt: skip
    if instance.model.own_code:
        words.append("--trust-remote-code")
    if shape.ep > 1:
        words.append("--enable-expert-parallel")
    if instance.speculative is not None:
        drafts = {"method": "mtp", "num_speculative_tokens": instance.speculative.draft_tokens}
        if instance.model.drafter is not None:
            drafts |= {"method": draft_method(deployment, ENGINE), "model": draft_path(deployment)}
        words += ["--speculative-config", json.dumps(drafts)]
    return words


def _tokens(deployment: Deployment, server: Server) -> int:
    """Tokens of the largest pass of one engine; never fewer than its sequences."""
    prompt = 0 if server.role == "decode" else deployment.prompts_per_pass_tokens(server)
    sequences = 0 if server.role == "prefill" else server.per_rank() * deployment.verified_tokens
    return max(1, prompt + sequences, server.per_rank())


def rank_words(server: Server, share: Share) -> list[str]:
    """Options that differ between the processes of one server."""
    launcher, shape = share.launcher, server.replica.shape
    words = []
    if share.nnodes > 1:
        words += [
            "--nnodes", str(share.nnodes), "--node-rank", str(launcher.rank),
            "--master-addr", server.head, "--master-port", str(server.rendezvous_port),
        ]  # fmt: skip
    if shape.attention_dp > 1:
        words += [
            "--data-parallel-size-local", str(share.local),
            "--data-parallel-address", server.head,
            "--data-parallel-rpc-port", str(server.rendezvous_port + 1),
        ]  # fmt: skip
        if share.nnodes == 1 and launcher.rank:
            words += ["--data-parallel-start-rank", str(share.start)]
    if launcher.rank:
        return [*words, "--headless"]
    return [*words, "--host", "0.0.0.0", "--port", str(server.port)]


def _graphs(deployment: Deployment, server: Server) -> list[str]:
    """CUDA graphs for the whole decode batch, where the engine would stop below it."""
    graphs, tokens = facts_of(deployment).graphs, server.per_pass() * deployment.verified_tokens
    if server.role == "prefill" or graphs.default is None or tokens <= graphs.default:
        return []
    return [graphs.option, str(tokens)]
