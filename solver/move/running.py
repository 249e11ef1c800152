"""What can become of a replica that runs: it stays, with fewer sequences where targets ask for it, or serves another phase.

None of these moves a byte from chip to chip. Chips that failed take their replica with them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from costmodel.evaluate import equivalence, evaluate
from costmodel.layout.layout import Layout, Replica, Role
from costmodel.question.instance import Instance
from costmodel.tolerance import exceeds
from solver.place.build import hand_over_s, kv_shares

#: rules that a replica alone cannot keep or break
_OF_ALL = frozenset({"both_pools", "rate_served"})


@dataclass(frozen=True)
class Option:
    """A way on for the running replica ``of``: with which decision, requests/s, and whether its engine restarts.

    An engine goes on with the same or a lower limit of sequences; another role or more sequences take a restart, which
    reads ``weight_bytes`` again.
    """

    of: int
    replica: Replica
    requests_per_s: float
    restarts: bool
    weight_bytes: float


def standing(instance: Instance, layout: Layout) -> list[int]:
    """Replicas whose chips all work."""
    usable = instance.cluster.usable_ids
    return [at for at, one in enumerate(layout.replicas) if usable.issuperset(one.chips)]


def options(instance: Instance, layout: Layout) -> list[Option]:
    """Every way on for the replicas that stand, by the evaluator's rules for the question."""
    alone = replace(instance, scenario=instance.scenario.model_copy(update={"rate": None}))
    known: dict[Hashable, list[tuple[Role, tuple[int, ...] | None, float, float]]] = {}
    found = []
    for at in standing(instance, layout):
        replica = layout.replicas[at]
        key = equivalence(alone, replica)
        if key not in known:
            known[key] = _ways(alone, layout, replica)
        for role, sequences, rate, size in known[key]:
            one = replica if sequences is None else _with(alone, replica, role, sequences)
            restarts = role != replica.role or one.shape.batch > replica.shape.batch
            found.append(Option(at, one, rate, restarts, size))
    return found


def _ways(
    instance: Instance, layout: Layout, replica: Replica
) -> list[tuple[Role, tuple[int, ...] | None, float, float]]:
    """Role, sequences of each rank (``None``: as they are), requests/s and bytes of weights."""
    ways: list[tuple[Role, tuple[int, ...] | None, float, float]] = []
    as_it_is = _serves(instance, layout, replica)
    if as_it_is is not None:
        ways.append((replica.role, None, *as_it_is))
    if instance.scenario.kv_tiers or instance.workload.hold_s is not None:
        return ways  # places of KV are a plan of the whole layout
    roles: tuple[Role, ...] = ("mixed",) if replica.role == "mixed" else ("prefill", "decode")
    for role in roles:
        found = _largest(instance, layout, replica, role)
        if found is not None and not (
            role == replica.role and as_it_is is not None and found[1][0] <= as_it_is[0]
        ):
            ways.append((role, found[0], *found[1]))
    return ways


def _largest(
    instance: Instance, layout: Layout, replica: Replica, role: Role
) -> tuple[tuple[int, ...], tuple[float, float]] | None:
    """Most sequences, as many on every rank, with which a role keeps every rule; times and bytes grow with them."""
    ranks = replica.shape.attention_dp
    limit = instance.limits.max_sequences_per_rank
    if role == "prefill":
        limit = min(
            limit,
            instance.limits.prompts_in_pass(instance.workload) * len(replica.stages),
        )
    best: tuple[int, tuple[float, float]] | None = None
    low, high, probe = 0, limit, 1
    while low < high:
        served = _serves(instance, layout, _with(instance, replica, role, (probe,) * ranks))
        if served is not None:
            best, low = (probe, served), probe
            probe = min(2 * probe, high) if high == limit else (low + high + 1) // 2
        else:
            high = probe - 1
            probe = (low + high + 1) // 2
    return None if best is None else ((best[0],) * ranks, best[1])


def _with(instance: Instance, replica: Replica, role: Role, sequences: tuple[int, ...]) -> Replica:
    """The replica in a role with so many sequences on each rank; weights stay where they are."""
    shape = replica.shape.model_copy(update={"batch": sum(sequences)})
    kv = kv_shares(instance, role, shape.tp, replica.stages, sequences)
    return replica.model_copy(update={"role": role, "shape": shape, "kv": kv})


def _serves(instance: Instance, layout: Layout, replica: Replica) -> tuple[float, float] | None:
    """Requests/s and bytes of weights of one replica, if it keeps every rule and hands KV over in time."""
    judged = evaluate(instance, layout.model_copy(update={"replicas": (replica,)}))
    if any(broken.rule not in _OF_ALL for broken in judged.violations):
        return None
    if not judged.priced.replicas:
        return None
    (price,) = judged.priced.replicas
    target = instance.slo.ttft
    if replica.role == "prefill" and target is not None:
        chips = [stage.chips for stage in replica.stages]
        far_s = hand_over_s(instance, chips, replica.shape.tp)[0]
        if exceeds(float(price.service.ttft_s) + far_s, target):
            return None
    size = sum(
        float(sum(stage.memory["weights"]) + sum(stage.memory["experts"])) for stage in price.stages
    )
    return float(price.service.requests_per_s), size
