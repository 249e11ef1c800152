"""What an engine's facts refuse of a layout, and the nearest layout that leaves it room."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

from costmodel.layout.layout import KvShare, Layout, Replica, spread
from costmodel.passes.tokens import runs_in_halves
from costmodel.question.engine import ANY, EngineFacts
from costmodel.question.engine_files import load_engine
from costmodel.question.instance import Instance
from costmodel.question.profile import COMMON
from costmodel.replica.exchanges import exchange_in, moved_by
from costmodel.replica.replica import price_replica
from costmodel.tolerance import exceeds
from rackfit.exporters.launch.deployment import Deployment, Server
from rackfit.exporters.launch.limit import Limit
from topology.errors import on_command_line

#: why tokens are gathered
_CUT = "every chip has a slice of each expert and takes all tokens"
_UNSERVED = "no all-to-all backend of the engine serves this model, width or placement there"

#: flags for passes in two halves, which overlap an all-to-all exchange
_HALVES = {"sglang": "--enable-two-batch-overlap"}


def under_engine(instance: Instance, engine: str) -> Instance:
    """The instance with the engine that an export is for, in the version asked for if it names one.

    Efficiencies stay those of the question, so that figures differ by what the engine does alone.
    """
    asked = instance.scenario.engine
    if asked is not None and asked != ANY and asked.partition("@")[0] == engine:
        return instance
    update, profile = {"engine": engine}, instance.profile
    if profile.engines:  # read back, the question would get that engine's own
        update["profile"], profile = f"{instance.scenario.profile}:{COMMON}", profile.common
    return replace(instance, profile=profile, scenario=instance.scenario.model_copy(update=update))


def facts_of(deployment: Deployment) -> EngineFacts:
    """The engine that the deployment is for."""
    found = deployment.instance.engine
    assert found is not None, "exports for an engine are priced under it"
    return found


def draft_path(deployment: Deployment) -> str:
    """Where the weights of the draft model lie on every host: a folder of its name beside the model's, unless said."""
    options, drafter = deployment.options, deployment.instance.model.drafter
    name = "" if drafter is None else drafter.spec.name
    return options.draft_path or str(PurePosixPath(options.model_path).parent / name)


def draft_method(deployment: Deployment, engine: str) -> str:
    """What an engine calls drafting by the deployment's draft model, also where a port of it is exported for."""
    facts = deployment.instance.engine or load_engine(engine)
    drafts, drafter = facts.drafts, deployment.instance.model.drafter
    assert drafts is not None, "an engine that is exported for says so"
    assert drafter is not None
    return drafts.kinds[drafter.kind]


def refusals(deployment: Deployment) -> list[Limit]:
    """Chips, the model, what drafts for it, HBM and tokens of a pass that the engine refuses."""
    engine, model = facts_of(deployment), deployment.instance.model
    found = []
    unserved = engine.model_refusal(model)
    if unserved is not None:
        found.append(Limit(model.name, unserved, False))
    for server in deployment.servers:
        chips = {
            chip.chip.name: chip.chip
            for chip in map(deployment.instance.cluster.chip, server.replica.chips)
        }
        whys = [*map(engine.chip_refusal, chips.values())]
        if unserved is None:
            shape = server.replica.shape
            whys.append(engine.draft_refusal(model, shape.attention_dp))
            whys.append(engine.width_refusal(model, shape.tp))
        found += [Limit(server.name, why, False) for why in whys if why is not None]
        found += _room(deployment, server, engine)
        found += _halves(deployment, server, engine)
    return found


def halves_option(deployment: Deployment, server: Server) -> str | None:
    """The engine's flag for passes in two halves, where the server's pass runs so and the engine can."""
    overlap = deployment.instance.scenario.two_batch_overlap
    found = exchange_in(deployment.instance, server.replica)
    if not runs_in_halves(overlap, server.replica.shape.attention_dp) or found is None:
        return None
    return _HALVES.get(facts_of(deployment).engine) if found.kind == "all-to-all" else None


def _halves(deployment: Deployment, server: Server, engine: EngineFacts) -> list[Limit]:
    overlap = deployment.instance.scenario.two_batch_overlap
    if not runs_in_halves(overlap, server.replica.shape.attention_dp):
        return []
    if halves_option(deployment, server) is not None:
        return []
    why = (
        "it does so with all-to-all exchanges alone"
        if engine.engine in _HALVES
        else "no option of it is known"
    )
    return [Limit(server.name, f"passes in two halves; {engine.title}: {why}", False)]


def _room(deployment: Deployment, server: Server, engine: EngineFacts) -> list[Limit]:
    found = []
    if not _fits(deployment.instance, deployment.layout, server.replica):
        fraction = deployment.used_fraction(server)
        chip = deployment.instance.cluster.chip(server.replica.chips[0]).chip.name
        message = (
            f"{fraction:.1%} of a chip's HBM; {engine.label} leaves {engine.usable_share(chip):.0%} "
            f"({engine.memory.source}); solve with {on_command_line('--')}engine {engine.engine} for the best layout within it"
        )
        found.append(Limit(server.name, message, True))
    most, in_pass = _most_sequences(deployment.instance, server.replica), server.per_pass()
    if in_pass > most:
        message = f"{in_pass} sequences of a rank in a decode pass; {engine.label} has room for {most:.0f}"
        found.append(Limit(server.name, message, True))
    return found


def _most_sequences(instance: Instance, replica: Replica) -> float:
    if replica.role == "prefill":
        return float("inf")
    return moved_by(instance, exchange_in(instance, replica)).most_sequences


def _fits(instance: Instance, layout: Layout, replica: Replica) -> bool:
    price = price_replica(instance, layout, replica)
    return not any(
        exceeds(float(used), instance.usable_hbm_bytes(instance.cluster.chip(chip).chip))
        for stage, own in zip(replica.stages, price.stages, strict=True)
        for chip, used in zip(stage.chips, own.used_bytes, strict=True)
    )


def with_room(instance: Instance, layout: Layout) -> Layout:
    """The layout with fewer sequences on each rank where HBM or the exchange has no room for all."""
    replicas = []
    for replica in layout.replicas:
        low, most = 0, max(replica.rank_sequences(), default=0)
        allowed = _most_sequences(instance, replica) * replica.shape.pp
        high = int(min(most, allowed))
        if high == most and _fits(instance, layout, replica):
            replicas.append(replica)
            continue
        while low < high:
            middle = (low + high + 1) // 2
            if _fits(instance, layout, with_sequences(replica, middle)):
                low = middle
            else:
                high = middle - 1
        replicas.append(with_sequences(replica, max(low, 1)))
    return layout.model_copy(update={"replicas": tuple(replicas)})


def with_sequences(replica: Replica, most: int) -> Replica:
    """The replica with at most so many sequences on each attention rank."""
    counts = replica.rank_sequences()
    width = replica.shape.chips_per_stage
    rank_of = {chip: place % width // replica.shape.tp for place, chip in enumerate(replica.chips)}
    kept = [min(most, count) for count in counts]
    homes: dict[int, list[KvShare]] = {rank: [] for rank in range(len(counts))}
    for share in replica.kv:
        if not share.idle:
            homes[rank_of[share.chip]].append(share)
    changed: dict[int, KvShare] = {}
    for rank, shares in homes.items():
        for share, count in zip(
            shares, spread(kept[rank], len(shares)) if shares else (), strict=True
        ):
            scale = kept[rank] / counts[rank] if counts[rank] else 1.0
            size = None if share.bytes is None else share.bytes * scale
            changed[id(share)] = share.model_copy(update={"sequences": count, "bytes": size})
    return replica.model_copy(
        update={
            "shape": replica.shape.model_copy(update={"batch": sum(kept)}),
            "kv": tuple(changed.get(id(share), share) for share in replica.kv),
        }
    )


def exchange_notes(deployment: Deployment) -> list[str]:
    """Replicas whose experts exchange tokens by collectives, by which backend, and why."""
    widths: dict[tuple[bool, str], set[int]] = {}
    for server in deployment.servers:
        found, replica = exchange_in(deployment.instance, server.replica), server.replica
        if found is not None and found.kind == "collectives":
            own = widths.setdefault((replica.cuts_experts, found.backend), set())
            own.add(replica.shape.chips_per_stage)
    return [
        f"experts {'cut over' if cut else 'on'} {', '.join(map(str, sorted(own)))} chips exchange tokens by collectives "
        f"({backend}): {_CUT if cut else _UNSERVED}, and the figures count that"
        for (cut, backend), own in widths.items()
    ]


def unlike_notes(deployment: Deployment) -> list[str]:
    """Servers whose ranks hold unlike numbers of sequences: the limit written is that of the busiest."""
    found = []
    for server in deployment.servers:
        counts = server.replica.rank_sequences()
        if server.unlike_ranks:
            found.append(
                f"{server.name}: figures are for {sum(counts)} sequences, {min(counts)} to {max(counts)} on a "
                f"rank; the engine has one limit for all ranks and takes up to {max(counts)} on each"
            )
    return found
