"""``trtllm``: an engine YAML per kind of server, load-balancer files, and the commands.

TensorRT-LLM's attention data parallelism spans all ranks of a stage or none. Only the WIDEEP backend
takes an expert placement, and it asks for attention data parallelism.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from math import gcd
from typing import Any

from costmodel.layout.layout import Layout, Replica
from costmodel.question.instance import Instance
from rackfit.exporters.launch.deployment import Deployment, Launcher, Server
from rackfit.exporters.launch.engine_limits import (
    draft_method,
    draft_path,
    exchange_notes,
    facts_of,
    refusals,
    unlike_notes,
    with_room,
)
from rackfit.exporters.launch.hosts import Place
from rackfit.exporters.launch.limit import Limit
from rackfit.exporters.launch.options import option_table
from rackfit.exporters.launch.routers import PATIENCE_S, PORTS, needs, router_script
from rackfit.exporters.launch.shell import Command, command_file, host_scripts, start_notes
from rackfit.exporters.placements import trtllm
from rackfit.exporters.placements.maps import (
    chip_limits,
    map_name,
    placement_table,
    same_as_start,
    slot_limits,
    spare_slots,
    with_even_slots,
    with_start_maps,
)
from rackfit.quoting import yaml_text

NAME = "trtllm"
ENGINE = "trtllm"
LAUNCHES = True
SUMMARY = "TensorRT-LLM engine YAML per role, load balancer files, commands"
#: seconds that the server in front gives a request, as the other engines' routers do; its own limit is 180
_REQUEST_S = 1800


def limits(deployment: Deployment) -> list[Limit]:
    """Attention split both ways, placements without attention data parallelism, uneven slots."""
    found = refusals(deployment)
    for server in deployment.servers:
        shape = server.replica.shape
        found += slot_limits(server, "TensorRT-LLM")
        found += chip_limits(deployment, server, "TensorRT-LLM")
        if shape.tp > 1 and shape.attention_dp > 1:
            message = (
                f"attention sharded {shape.tp} ways in {shape.attention_dp} ranks; "
                "enable_attention_dp is for all ranks of a stage or none"
            )
            found.append(Limit(server.name, message, False))
        if _wants_placement(deployment, server) and shape.attention_dp == 1:
            divisible = spare_slots(deployment, server) == 0
            message = (
                "an expert placement without attention data parallelism; the WIDEEP backend asks "
                "for it" + ("" if divisible else ", and spare slots have no other place")
            )
            found.append(Limit(server.name, message, divisible))
    return found


def _wants_placement(deployment: Deployment, server: Server) -> bool:
    if server.replica.shape.ep == 1:
        return False
    start = same_as_start(deployment.instance, deployment.layout, server.replica)
    return not start or spare_slots(deployment, server) > 0


def approximate(instance: Instance, layout: Layout) -> Layout:
    """Even slots; experts in order where attention is not data parallel."""
    even = with_even_slots(layout)

    def plain(replica: Replica) -> bool:
        return replica.shape.attention_dp == 1 and replica.shape.ep > 1

    return with_room(instance, with_start_maps(instance, even, plain))


def notes(deployment: Deployment) -> list[str]:
    """What the commands rely on beside the layout."""
    found = [deployment.checkpoint_note]
    if any(len(_parts(server)) > 1 for server in deployment.servers):
        found.append(
            "servers of several hosts are started by mpirun from their first host, by ssh (Open MPI; it refuses the "
            "user root, as in containers, unless OMPI_ALLOW_RUN_AS_ROOT=1 and "
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 are set)"
        )
    split = [
        server.name
        for server in deployment.servers
        if len(_parts(server)) > len({place.host for place in server.places})
    ]
    if split:
        found.append(
            f"{', '.join(split)}: hosts hold unlike numbers of its ranks, or not in a row. TensorRT-LLM takes one "
            "number for all hosts (gpus_per_node), so it is told of smaller ones and sums by NCCL between them"
        )
    if any(_wants_placement(deployment, server) for server in deployment.servers):
        found.append("expert placements use the WIDEEP backend")
    found += exchange_notes(deployment) + unlike_notes(deployment)
    return [
        *found,
        *_alone(deployment),
        *needs(deployment, None),
        *start_notes(
            deployment,
            "max_seq_len",
            ", then bash router.sh on any of them" if deployment.disaggregated else "",
            {server.head for server in deployment.servers},
        ),
    ]


def _alone(deployment: Deployment) -> list[str]:
    """Servers of both roles beside others: TensorRT-LLM's server in front takes prefill and decode servers alone."""
    mixed = [server for server in deployment.servers if server.role == "mixed"]
    if not mixed or len(deployment.servers) == 1:
        return []
    price, share = deployment.evaluation.priced, ""
    if deployment.disaggregated and price.requests_per_s:
        share = f" They serve {price.mixed_per_s / price.requests_per_s:.0%} of the requests."
    urls = ", ".join(f"{server.head}:{server.port}" for server in mixed)
    return [
        f"servers of both roles have no router here: put your load balancer before {urls}.{share}"
    ]


def render(deployment: Deployment) -> dict[str, str]:
    """``engine-*.yaml``, ``experts-*.yaml``, ``commands.sh``, ``disaggregated.yaml`` and the ``router.sh`` that reads it."""
    files: dict[str, str] = {}
    names: dict[str, str] = {}
    commands = []
    for server in deployment.servers:
        text = yaml_text([engine_fields(deployment, server, files)])
        name = names.setdefault(text, f"engine-{server.role}-{len(names)}.yaml")
        files[name] = text
        whole = Launcher(0, 1, server.places)
        words, environment = _words(deployment, server, name)
        commands.append(Command(server, whole, words, environment))
    files["commands.sh"] = command_file(
        deployment, commands, option_table(deployment.engine_name).version
    )
    files |= host_scripts(commands)
    if deployment.disaggregated:
        files["disaggregated.yaml"] = yaml_text([_front(deployment)])
        front = ["trtllm-serve", "disaggregated", "--config_file", "disaggregated.yaml"]
        front += ["--server_start_timeout", str(PATIENCE_S), "--request_timeout", str(_REQUEST_S)]
        files["router.sh"] = router_script(front)
    return files


def engine_fields(deployment: Deployment, server: Server, files: dict[str, str]) -> dict[str, Any]:
    """The engine YAML of one server; adds its load-balancer file."""
    shape, instance = server.replica.shape, deployment.instance
    in_pass = -(-server.per_rank() // shape.pp)
    prompt = 0 if server.role == "decode" else deployment.prompts_per_pass_tokens(server)
    fields: dict[str, Any] = {
        "tensor_parallel_size": shape.chips_per_stage,
        "pipeline_parallel_size": shape.pp,
        "gpus_per_node": len(_parts(server)[0]),
        "enable_attention_dp": shape.attention_dp > 1,
        "max_batch_size": in_pass,
        "max_num_tokens": max(
            1, prompt + (0 if server.role == "prefill" else in_pass * deployment.verified_tokens)
        ),
        "max_seq_len": instance.workload.longest,
        "kv_cache_config": {
            "free_gpu_memory_fraction": deployment.kv_fraction_of_free(server),
            "dtype": facts_of(deployment).kv_dtypes[instance.model.kv_dtype],
        },
    }
    if instance.model.own_code:
        fields["trust_remote_code"] = True
    if instance.speculative is not None:
        drafter = instance.model.drafter
        fields["speculative_config"] = {
            "decoding_type": "MTP" if drafter is None else draft_method(deployment, ENGINE),
            "max_draft_len": instance.speculative.draft_tokens,
            **({} if drafter is None else {"speculative_model": draft_path(deployment)}),
        }
    if shape.pp > 1:
        fields["pp_partition"] = server.stage_layers()
    whole = instance.model.drafter is not None and instance.model.drafter.kind == "model"
    if server.role == "prefill" or whole:  # a draft model's tokens come from outside the pass
        fields["disable_overlap_scheduler"] = True
    if server.role != "decode":
        fields["enable_chunked_prefill"] = True
    if server.role != "prefill":
        fields["cuda_graph_config"] = {"enable_padding": True, "max_batch_size": in_pass}
    if server.role != "mixed":
        fields["cache_transceiver_config"] = {
            "backend": "NIXL",
            "max_tokens_in_buffer": instance.workload.longest,
        }
    if shape.ep > 1:
        fields["moe_expert_parallel_size"] = shape.ep
        fields["moe_tensor_parallel_size"] = 1
        fields["moe_config"] = {"backend": "AUTO"}
        table = placement_table(instance, deployment.layout, server.replica)
        if table is not None and _wants_placement(deployment, server):
            name = f"{map_name(table)}.yaml"
            files[name] = trtllm.render(table)
            fields["moe_config"] = {"backend": "WIDEEP", "load_balancer": name}
    return fields


def _words(
    deployment: Deployment, server: Server, config: str
) -> tuple[tuple[str, ...], dict[str, str]]:
    serve = [
        *option_table(deployment.engine_name).program, deployment.options.model_path, "--config", config,
        "--host", "0.0.0.0", "--port", str(server.port),
    ]  # fmt: skip
    parts = _parts(server)
    if len(parts) == 1:
        return tuple(serve), {"CUDA_VISIBLE_DEVICES": _devices(server.places)}
    words = ["mpirun"]
    slots = Counter(place.host for place in server.places)
    for number, part in enumerate(parts):
        host = part[0].host
        words += [":"] if number else []
        # Open MPI counts the slots of a host over the whole line, and stops where a later part finds them taken
        words += ["-n", str(len(part)), "--host", f"{host}:{slots[host]}"]
        words += ["-x", f"CUDA_VISIBLE_DEVICES={_devices(part)}", "trtllm-llmapi-launch", *serve]
    return tuple(words), {}


def _parts(server: Server) -> list[tuple[Place, ...]]:
    """Ranks in a row that see the same devices: equally many each, as ``gpus_per_node`` asks, on one host.

    All of a host where hosts hold equally many in a row, else the largest equal shares of them.
    """
    runs = [tuple(run) for _, run in groupby(server.places, key=lambda place: place.host)]
    size = gcd(*map(len, runs))
    return [run[start : start + size] for run in runs for start in range(0, len(run), size)]


def _devices(part: Sequence[Place]) -> str:
    return ",".join(str(place.gpu) for place in part)


def _front(deployment: Deployment) -> dict[str, Any]:
    """The file of the disaggregated server in front."""
    urls: dict[str, list[str]] = {"prefill": [], "decode": []}
    for server in deployment.servers:
        if server.role in urls:
            urls[server.role].append(f"{server.head}:{server.port}")
    return {
        "hostname": "0.0.0.0",
        "port": PORTS[0],
        "backend": "pytorch",
        "context_servers": {"num_instances": len(urls["prefill"]), "urls": urls["prefill"]},
        "generation_servers": {"num_instances": len(urls["decode"]), "urls": urls["decode"]},
    }
