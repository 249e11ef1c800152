"""``sglang``: a launch command per process, expert locations, and the router in front.

SGLang counts all chips of a stage as ``--tp-size``; attention data parallelism splits that number.
Redundant experts are placed as the layout says (``--init-expert-location``) and tokens go to a
random copy (``--ep-dispatch-algorithm dynamic``), which is the even split that the figures assume.
"""

from __future__ import annotations

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.replica.exchanges import exchange_in
from rackfit.exporters.launch.deployment import Deployment, Launcher, Server
from rackfit.exporters.launch.engine_limits import (
    draft_method,
    draft_path,
    exchange_notes,
    facts_of,
    halves_option,
    refusals,
    unlike_notes,
    with_room,
)
from rackfit.exporters.launch.limit import Limit
from rackfit.exporters.launch.options import dtype_name, kv_dtype_name, option_table
from rackfit.exporters.launch.routers import SGLANG, bootstrap_port, router_files, router_notes
from rackfit.exporters.launch.shell import Command, command_file, host_scripts, start_notes
from rackfit.exporters.placements import sglang
from rackfit.exporters.placements.maps import (
    chip_limits,
    map_name,
    placement_table,
    plain_limits,
    slot_limits,
    spare_slots,
    with_even_slots,
    with_plain_slots,
)

NAME = "sglang"
ENGINE = "sglang"
LAUNCHES = True
SUMMARY = "SGLang launch commands per replica and host, expert locations, router"


def limits(deployment: Deployment) -> list[Limit]:
    """Uneven slots, several chip types in a replica, what the model's class does not load."""
    found = refusals(deployment)
    for server in deployment.servers:
        found += slot_limits(server, "SGLang") + chip_limits(deployment, server, "SGLang")
        found += _class_limits(deployment, server)
    return found


def _class_limits(deployment: Deployment, server: Server) -> list[Limit]:
    """A placement or spare slots, for a class that reads neither from the command."""
    engine, model = facts_of(deployment), deployment.instance.model
    if server.replica.shape.ep == 1:
        return []
    if not engine.places_experts(model, server.replica.shape.attention_dp):
        return plain_limits(deployment, server, "SGLang")
    spare = spare_slots(deployment, server)
    if not spare or engine.spares_experts(model, server.replica.shape.attention_dp):
        return []
    message = f"{spare} spare expert slots; the class of {model.name} has none in SGLang"
    return [Limit(server.name, message, True)]


def approximate(instance: Instance, layout: Layout) -> Layout:
    """Every chip of a replica gets as many slots as its fullest; experts in order, none twice, where the class wants that."""
    engine, moe, even = instance.engine, instance.operations.moe, with_even_slots(layout)
    if engine is not None and moe is not None and not engine.spares_experts(instance.model, 1):
        spare = any(
            sum(stage.slots()) > moe.num_experts for one in even.replicas for stage in one.stages
        )
        if spare or not engine.places_experts(instance.model, 1):
            return with_room(instance, with_plain_slots(instance, layout))
    return with_room(instance, even)


def notes(deployment: Deployment) -> list[str]:
    """What the commands rely on beside the layout, and how they are started."""
    start = start_notes(deployment, "--context-length", ", then bash router.sh on any of them")
    return [*engine_notes(deployment), *router_notes(deployment, SGLANG), *start]


def engine_notes(deployment: Deployment) -> list[str]:
    """What SGLang's options rely on beside the layout."""
    found = [deployment.checkpoint_note]
    return found + exchange_notes(deployment) + unlike_notes(deployment)


def render(deployment: Deployment) -> dict[str, str]:
    """``commands.sh``, one script per host, expert locations, and ``router.sh``."""
    files: dict[str, str] = {}
    commands = []
    for server in deployment.servers:
        words, environment = engine_words(deployment, server, files)
        for launcher in server.launchers:
            program = [*option_table(deployment.engine_name).program, *words]
            commands.append(
                Command(server, launcher, _program(program, server, launcher), environment)
            )
    files["commands.sh"] = command_file(
        deployment, commands, option_table(deployment.engine_name).version
    )
    files |= host_scripts(commands)
    return files | router_files(deployment, SGLANG)


def engine_words(
    deployment: Deployment, server: Server, files: dict[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Options of the engine alone (no host, port or rank) and its environment; adds map files."""
    shape, instance, facts = server.replica.shape, deployment.instance, facts_of(deployment)
    stage_chips = shape.chips_per_stage
    words = [
        "--model-path", deployment.options.model_path,
        "--served-model-name", instance.model.name,
        "--tp-size", str(stage_chips),
        "--pp-size", str(shape.pp),
        "--context-length", str(instance.workload.longest),
        "--dtype", dtype_name(instance.model.activation_dtype),
        "--kv-cache-dtype", kv_dtype_name(instance.model, facts.kv_dtypes),
        "--mem-fraction-static", f"{deployment.static_fraction(server):g}",
        "--max-running-requests", str(server.per_rank() * shape.attention_dp),
    ]  # fmt: skip
    if instance.model.own_code:
        words.append("--trust-remote-code")
    if server.role != "decode":  # SGLang divides the number by the attention ranks
        tokens = deployment.prompts_per_pass_tokens(server) * shape.attention_dp
        words += ["--chunked-prefill-size", str(tokens)]
    if server.role != "prefill":
        words += [facts.graphs.option, str(server.per_pass())]
    if instance.speculative is not None:  # a chain of drafts
        drafter = instance.model.drafter
        words += [
            "--speculative-algorithm", "EAGLE" if drafter is None else draft_method(deployment, ENGINE),
            "--speculative-num-steps", str(instance.speculative.draft_tokens),
            "--speculative-eagle-topk", "1",
            "--speculative-num-draft-tokens", str(deployment.verified_tokens),
        ]  # fmt: skip
        if drafter is not None:
            words += ["--speculative-draft-model-path", draft_path(deployment)]
    environment: dict[str, str] = {}
    if shape.attention_dp > 1:
        option, *flags = facts.habits.attention_dp
        words += [option, str(shape.attention_dp), *flags, "--enable-dp-lm-head"]
    if shape.ep > 1:
        words += ["--ep-size", str(shape.ep), *_exchange(deployment, server, environment)]
    if shape.attention_dp > 1:  # dense layers on each rank's own chips, cut experts or not
        if shape.tp == 1:
            words += ["--moe-dense-tp-size", "1"]
        else:
            words += ["--enable-dense-mlp-attn-tp", "--enable-shared-experts-attn-tp"]
    if shape.ep > 1:
        words += _experts(deployment, server, files)
    halves = halves_option(deployment, server)
    words += [halves] if halves is not None else []
    if shape.pp > 1:
        layers = ",".join(str(count) for count in server.stage_layers())
        environment["SGLANG_PP_LAYER_PARTITION"] = layers
        words += ["--pp-max-micro-batch-size", str(-(-server.per_rank() // shape.pp))]
    if server.role != "mixed":
        words += ["--disaggregation-mode", server.role]
        words += ["--disaggregation-transfer-backend", "nixl"]
        if server.role == "prefill":
            words += ["--disaggregation-bootstrap-port", str(bootstrap_port(server))]
    return words, environment


def _exchange(deployment: Deployment, server: Server, environment: dict[str, str]) -> list[str]:
    found, moe = (
        exchange_in(deployment.instance, server.replica),
        deployment.instance.operations.moe,
    )
    if found is None or moe is None or found.kind == "collectives":
        return ["--moe-a2a-backend", "none"]
    words = ["--moe-a2a-backend", found.backend]
    if server.role == "prefill":
        words += ["--deepep-mode", "normal"]
    else:
        tokens = server.per_pass() * deployment.verified_tokens
        words += ["--deepep-mode", "low_latency" if server.role == "decode" else "auto"]
        room = min(found.most_tokens or tokens, -(-tokens // 128) * 128)
        environment["SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"] = str(room)
    return [*words, *found.arguments.get(moe.expert_dtype, ())]


def _experts(deployment: Deployment, server: Server, files: dict[str, str]) -> list[str]:
    table = placement_table(deployment.instance, deployment.layout, server.replica)
    placed = facts_of(deployment).places_experts(
        deployment.instance.model, server.replica.shape.attention_dp
    )
    if table is None or not placed:  # experts in order, none twice
        return []
    name = f"{map_name(table)}.json"
    files[name] = sglang.render(table)
    spare = spare_slots(deployment, server)
    # without all-to-all every rank has to pick the same copy, and with one copy each there is nothing to pick
    exchange = exchange_in(deployment.instance, server.replica)
    gathered = exchange is None or exchange.kind == "collectives"
    return [
        "--ep-num-redundant-experts", str(spare),
        "--ep-dispatch-algorithm", "dynamic" if spare or gathered else "static",
        "--init-expert-location", name,
    ]  # fmt: skip


def _program(words: list[str], server: Server, launcher: Launcher) -> tuple[str, ...]:
    port = server.port + launcher.rank
    result = [*words, "--host", "0.0.0.0", "--port", str(port)]
    result += ["--base-gpu-id", str(launcher.gpus[0])]
    if launcher.count > 1:
        result += ["--nnodes", str(launcher.count), "--node-rank", str(launcher.rank)]
    address = f"{server.head}:{server.rendezvous_port}"
    return (*result, "--dist-init-addr", address)
