"""Replicas of a layout that are alike, and what a table of them says."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.evaluate import Evaluation
from costmodel.layout.layout import Layout, Replica
from costmodel.replica.replica import ReplicaPrice

#: a replica, its price, and every replica that equals it but for its chips
ReplicaGroup = tuple[Replica, ReplicaPrice, list[Replica]]


def replica_groups(layout: Layout, evaluation: Evaluation) -> list[ReplicaGroup]:
    """Replicas of one shape and stages together, prefill first."""
    found: dict[object, ReplicaGroup] = {}
    order = {"prefill": 0, "decode": 1, "mixed": 2}
    for replica, price in zip(layout.replicas, evaluation.priced.replicas, strict=True):
        stages = tuple((s.layers, s.slot_key, s.expert_map) for s in replica.groups)
        key = (order[replica.role], replica.shape, stages)
        found.setdefault(key, (replica, price, []))[2].append(replica)
    return sorted(found.values(), key=lambda group: order[group[0].role])


def slots_words(replica: Replica) -> str:
    """Experts per chip and layer of the first stage, in short."""
    stage = replica.stages[0] if replica.apart is None else replica.apart.experts
    slots = sorted({n for layer in (None, *stage.unlike) for n in stage.slots(layer)})
    if replica.cuts_experts:
        return "cut"
    return "-".join(map(str, slots)) if any(slots) else "-"


def deployment_words(groups: Sequence[ReplicaGroup]) -> list[str]:
    """What the columns of a deployment mean."""
    lines = [
        "count: replicas of this kind. chips: of one replica. tp x dp: chips of one stage (dp: attention "
        "data parallel).",
        "ep: chips that share the experts. pp: stages. batch: sequences at the same time "
        "(prefill: prompts).",
        "slots: experts per chip and layer. skew: load of the busiest chip over the "
        "mean. req/s: of one replica.",
    ]
    if any(replica.cuts_experts for replica, _, _ in groups):
        lines.append("cut: every chip of a stage has a slice of each expert.")
    return lines


def chip_ranges(chips: Sequence[str]) -> str:
    """Chip ids with runs shortened: ``r0g0-r0g7 r1g0``."""
    runs: list[list[str]] = []
    for chip in chips:
        head, number = _split(chip)
        if runs:
            last_head, last_number = _split(runs[-1][-1])
            if head == last_head and number == last_number + 1:
                runs[-1].append(chip)
                continue
        runs.append([chip])
    return " ".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _split(chip: str) -> tuple[str, int]:
    digits = len(chip) - len(chip.rstrip("0123456789"))
    return (chip[:-digits], int(chip[-digits:])) if digits else (chip, -1)
