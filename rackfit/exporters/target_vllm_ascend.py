"""``vllm-ascend``: serve commands for NPUs with the layout's expert maps loaded from files."""

from __future__ import annotations

import json
from typing import Any

from costmodel.layout.layout import Layout, Replica, Shape
from costmodel.models.spec import Attention
from costmodel.question.instance import Instance
from rackfit.exporters.launch.deployment import Deployment, Server
from rackfit.exporters.launch.limit import Limit
from rackfit.exporters.launch.options import option_table
from rackfit.exporters.launch.routers import VLLM, needs, router_files
from rackfit.exporters.launch.shell import Command, command_file, host_scripts, start_notes
from rackfit.exporters.launch.vllm_ranks import shares
from rackfit.exporters.placements import vllm
from rackfit.exporters.placements.maps import (
    map_name,
    placement_table,
    same_as_start,
    slot_limits,
    spare_slots,
    with_even_slots,
    with_start_maps,
)
from rackfit.exporters.target_vllm import engine_limits, engine_words, rank_words

NAME = "vllm-ascend"
LAUNCHES = True
SUMMARY = "vLLM-Ascend serve commands and expert maps"


def limits(deployment: Deployment) -> list[Limit]:
    """What vLLM cannot say beside expert maps, which this engine loads layer by layer.

    It does so by the number of a MoE layer in its process, which every stage counts from 0 (``moe_counter``).
    """
    found = engine_limits(deployment, "vLLM-Ascend")
    for server in deployment.servers:
        found += slot_limits(server, "vLLM-Ascend", unlike_layers=True)
        stages = server.replica.shape.pp
        if stages > 1 and not _needs_no_map(deployment.instance, deployment.layout, server.replica):
            message = (
                f"{stages} stages; each would load the expert maps of the first one's layers. Experts in "
                "order without spare slots need no map"
            )
            spare = _has_spare(deployment.instance, server.replica)
            found.append(Limit(server.name, message, not spare))
    return found


def _apart(deployment: Deployment) -> list[str]:
    """What keeps MooncakeConnectorV1 from joining the prefill and decode servers."""
    if not deployment.disaggregated:
        return []
    found = []
    for role in ("prefill", "decode"):
        own = {
            (shape.tp, shape.attention_dp, shape.pp)
            for server in deployment.servers
            if server.role == role
            for shape in [server.replica.shape]
        }
        if len(own) > 1:
            found.append(f"{role} servers have {len(own)} sizes, and it is told one")
    widths = {server.role: server.replica.shape.tp for server in deployment.servers}
    latent = all(kind.startswith(("mla", "dsa")) for kind in _attention(deployment.instance))
    if not latent and widths["prefill"] % widths["decode"]:
        found.append(
            f"tensor parallel width {widths['prefill']} of prefill servers is not a multiple of "
            f"{widths['decode']} of decode servers"
        )
    return [f"the KV connector stops these servers: {why}" for why in found]


def _attention(instance: Instance) -> set[str]:
    """Kinds of attention of a model's layers."""
    return {
        part.kind
        for layer in instance.model.layers
        for part in layer.sublayers
        if isinstance(part, Attention)
    }


def _has_spare(instance: Instance, replica: Replica) -> bool:
    moe = instance.operations.moe
    return moe is not None and any(
        sum(stage.slots(layer)) > moe.num_experts
        for stage in replica.stages
        for layer in range(stage.layers[0], stage.layers[1] + 1)
    )


def _needs_no_map(instance: Instance, layout: Layout, replica: Replica) -> bool:
    """Whether the engine places the experts so by itself."""
    return same_as_start(instance, layout, replica) and not _has_spare(instance, replica)


def approximate(instance: Instance, layout: Layout) -> Layout:
    """Every chip of a replica gets as many slots as its fullest; layers may go on to differ.

    Experts of a pipeline are put in order.
    """
    even = with_even_slots(layout, unlike_layers=True)
    return with_start_maps(instance, even, lambda replica: replica.shape.pp > 1)


def notes(deployment: Deployment) -> list[str]:
    """Where the commands run, and which precision they need."""
    found = [deployment.checkpoint_note]
    cluster = deployment.instance.cluster
    others = sorted(
        {placed.chip.name for placed in cluster.chips if placed.chip.vendor != "Huawei"}
    )
    if others:
        found.append(f"vLLM-Ascend runs on Ascend NPUs; this cluster has {', '.join(others)}")
    found += _apart(deployment)
    if deployment.disaggregated:
        found.append(
            "no router is written for prefill and decode servers: vLLM-Ascend's sources have one that knows "
            "MooncakeConnectorV1 (examples/disaggregated_prefill_v1/load_balance_proxy_server_example.py)"
        )
    routed = _routed(deployment)
    found += needs(deployment, VLLM.package if routed else None, "Mooncake")
    then = ", then bash router.sh on any of them" if routed else ""
    return found + start_notes(deployment, "--max-model-len", then)


def _routed(deployment: Deployment) -> bool:
    """Whether vLLM's router, which knows no Mooncake of this engine, can share the requests."""
    return len(deployment.servers) > 1 and not deployment.disaggregated


def render(deployment: Deployment) -> dict[str, str]:
    """``commands.sh``, one script per host, and the expert maps."""
    files: dict[str, str] = {}
    commands = []
    for server in deployment.servers:
        words = [
            *option_table("vllm").program,
            deployment.options.model_path,
            *engine_words(deployment, server),
            *_experts(deployment, server, files),
        ]
        if server.role != "mixed":
            words += ["--kv-transfer-config", json.dumps(_transfer(deployment, server))]
        for share in shares(server):
            environment = {
                "ASCEND_RT_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in share.launcher.gpus)
            }
            if server.replica.shape.pp > 1:
                layers = ",".join(str(count) for count in server.stage_layers())
                environment["VLLM_PP_LAYER_PARTITION"] = layers
            whole = (*words, *rank_words(server, share))
            commands.append(Command(server, share.launcher, whole, environment))
    files["commands.sh"] = command_file(deployment, commands, option_table("vllm").version)
    if _routed(deployment):
        files |= router_files(deployment, VLLM)
    return files | host_scripts(commands)


def _transfer(deployment: Deployment, server: Server) -> dict[str, Any]:
    """How KV is handed over: the connector asserts the sizes of both sides, and its ranks count ports from one."""
    return {
        "kv_connector": "MooncakeConnectorV1",
        "kv_role": "kv_producer" if server.role == "prefill" else "kv_consumer",
        "kv_port": server.rendezvous_port + 60,
        "kv_connector_extra_config": {
            role: {"tp_size": shape.tp, "dp_size": shape.attention_dp, "pp_size": shape.pp}
            for role in ("prefill", "decode")
            for shape in [_sizes(deployment, server, role)]
        },
    }


def _sizes(deployment: Deployment, server: Server, role: str) -> Shape:
    """Sizes of a side: a server's own, those of the first server of the other."""
    if server.role == role:
        return server.replica.shape
    return next(one.replica.shape for one in deployment.servers if one.role == role)


def _experts(deployment: Deployment, server: Server, files: dict[str, str]) -> list[str]:
    table = placement_table(deployment.instance, deployment.layout, server.replica)
    if table is None or table.num_chips == 1 or server.replica.shape.pp > 1:
        return []
    name = f"{map_name(table)}.json"
    files[name] = vllm.render(table)
    config: dict[str, Any] = {"expert_map_path": name}
    spare = spare_slots(deployment, server)
    if spare:
        config["num_redundant_experts"] = spare
    return ["--additional-config", json.dumps({"eplb_config": config})]
