r"""Rates of machines from Rackfit's cost model, for a question whose rates nobody measured.

A machine with *k* of *L* layers keeps KV of as many sequences as its memory holds beside the weights, *S(k)*.
A sequence goes round all machines once per token. Machines take their share of a round in proportion to their
layers, so that :math:`m = S k / L` of its sequences are at this machine at a time. A round of these takes a decode
pass and the prefill passes of the requests that end in it, *t(m)*, as in every other answer of Rackfit:

.. math:: T(k) = \frac{m}{t(\max(m, 1))} \cdot \frac{\text{tokens of a request}}{\text{decode steps}}

in tokens/s of prompts and answers. Embedding and LM head are spread evenly over the layers. Hops between
machines take no time here, their bytes count in the links.
"""

from __future__ import annotations

from costmodel.flow.question import MAX_LAYERS, FlowQuestion, LayeredModel, Machine
from costmodel.models.load import load_model
from costmodel.passes.communication import rates_of_chips
from costmodel.passes.group import ChipGroup
from costmodel.passes.pass_time import pass_time
from costmodel.passes.tokens import Tokens
from costmodel.question.instance import Instance
from costmodel.question.profile import load_profile
from costmodel.question.recorded_loads import loads_of_model
from costmodel.question.scenario import Scenario, load_workload
from costmodel.replica.serving import Schedule, schedule
from topology import load_chip
from topology.catalogue import checked
from topology.errors import InstanceError, Problem, option
from topology.load import build_cluster
from topology.spec import ChipCount, ClusterSpec, DomainSpec


def priced(
    question: FlowQuestion, model: str, workload: str, profile: str = "calibrated"
) -> FlowQuestion:
    """The same machines and links for a model of the catalogue and a workload.

    Raises ``InstanceError`` for names that are not known, machines without a chip, and models whose layers differ.
    """
    missing = [kind for kind in question.machines if question.machines[kind].chip is None]
    if missing:
        message = f"rates of {', '.join(missing)} need a chip; give one in the file"
        raise InstanceError(Problem("machines", message))
    first = _instance(next(iter(question.machines.values())), model, workload, profile)
    operations = first.operations
    if len(operations.kinds) != 1 or operations.moe is not None:
        message = f"{first.model.name} has layers of several kinds; rates need layers that are all alike and dense"
        raise InstanceError(Problem(option("model"), message))
    if operations.num_layers > MAX_LAYERS:
        message = f"{first.model.name} has {operations.num_layers:,} layers; a flow has {MAX_LAYERS:,} at most"
        raise InstanceError(Problem(option("model"), message))
    machines = {}
    for kind, machine in question.machines.items():
        rates = _rates(machine, _instance(machine, model, workload, profile))
        if not rates and kind in question.nodes:
            message = f"{kind} holds no layer of {first.model.name} with a sequence"
            raise InstanceError(Problem("machines", message))
        if rates:
            machines[kind] = machine.model_copy(update={"tokens_per_s": rates})
    layers = LayeredModel(
        name=first.model.name,
        layers=operations.num_layers,
        activation_bytes=operations.hidden_size * operations.activation_bytes,
        token_bytes=question.model.token_bytes,
    )
    update = {"model": layers, "machines": machines, "licence": "", "sources": (), "notes": ()}
    return question.model_copy(update=update)


def _instance(machine: Machine, model: str, workload: str, profile: str) -> Instance:
    """The question of one machine alone; its chips share one switch."""
    assert machine.chip is not None
    chip = load_chip(machine.chip)
    fabric = {"kind": "nvswitch", "links_per_switch": [chip.scale_up_links]}
    domain = DomainSpec(fabric=fabric, chips=(ChipCount(chip=machine.chip, count=machine.chips),))
    with checked("question"):
        asked = Scenario(model=model, cluster=machine.chip, workload=workload, profile=profile)
    spec, work = load_model(model), load_workload(workload)
    loads, provenance = loads_of_model(spec, work)
    return Instance(
        scenario=asked,
        model=spec,
        cluster=build_cluster(ClusterSpec(name=machine.chip, domains=(domain,)), machine.chip),
        workload=work,
        profile=load_profile(profile),
        expert_loads=loads,
        expert_loads_provenance=provenance,
    )


def _rates(machine: Machine, instance: Instance) -> tuple[float, ...]:
    """Tokens/s with 1, 2, .. layers, up to the most that leave room for a sequence."""
    operations, workload = instance.operations, instance.workload
    layers = operations.num_layers
    chip = instance.cluster.chips[0].chip
    efficiency = instance.profile.for_chip(chip.name)
    chips = [placed.id for placed in instance.cluster.chips]
    (rates,) = rates_of_chips(instance.cluster, [chips], machine.chips, 0, efficiency)
    group = ChipGroup.of(operations, machine.chips, 1, chip, efficiency, rates)
    (kind,) = operations.kinds

    def seconds(tokens: Tokens, held: int) -> float:
        timed = pass_time(group, [(kind, held)], tokens, [None], with_head=held / layers)
        return float(timed.total_s(instance.profile.combination))

    found = []
    for held in range(1, layers + 1):
        sequences = _sequences(machine, instance, held)
        if sequences < 1:
            break
        here = min(sequences, instance.limits.max_sequences_per_rank) * held / layers
        plan = _plan(instance, max(here, 1.0))
        assert plan.decode is not None
        assert plan.prefill is not None
        round_s = seconds(plan.decode, held)
        round_s += float(plan.events * plan.passes) * seconds(plan.prefill, held)
        tokens = workload.new_tokens + workload.output_tokens
        found.append(here / round_s * tokens / workload.decode_steps)
    return tuple(found)


def _plan(instance: Instance, sequences: float) -> Schedule:
    return schedule("mixed", instance.workload, instance.limits, sequences)


def _sequences(machine: Machine, instance: Instance, held: int) -> int:
    """Sequences whose KV one machine keeps beside its weights and the activations of its passes."""
    operations, chips = instance.operations, machine.chips
    width = instance.width_bytes(chips)
    share = held / operations.num_layers
    edges = width.edge(chips, first=True, last=True) * share
    room = instance.usable_hbm_bytes(instance.cluster.chips[0].chip)
    room -= instance.profile.for_chip(instance.cluster.chips[0].chip.name).runtime_bytes
    room -= width.weights([held], chips, first=False, last=False) + edges
    each = width.cached([held], instance.final_context, last=False)
    most = max(0.0, room) // each
    plan = _plan(instance, max(1.0, most * share))
    room -= width.active(float(plan.rows()), float(plan.sampled()) * share)
    return int(max(0.0, room) // each)
