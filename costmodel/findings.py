"""What a priced layout is limited by, and what its figures rest on."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.layout.layout import Layout, Replica
from costmodel.question.instance import Instance
from costmodel.question.uncertainty import words_on_intervals
from costmodel.question.workload import Slo
from costmodel.replica.fleet import PricedLayout
from costmodel.replica.replica import ReplicaPrice
from topology import Chip

#: parts of a pass whose names do not say it
_OPERATIONS = {
    "attention_context": "attention over the context",
    "all_reduce": "all-reduces",
    "head": "the LM head",
    "overhead": "kernel launches and engine overhead",
    "dispatch": "sending tokens to experts",
    "combine": "collecting tokens from experts",
}


def bottleneck(instance: Instance, layout: Layout, priced: PricedLayout) -> str:
    """What binds: the pool that limits the rate, its largest part of time, and its full resource."""
    limiting = "mixed"
    if priced.prefill_per_s and priced.decode_per_s:
        limiting = "prefill" if priced.prefill_per_s <= priced.decode_per_s else "decode"
    candidates = [i for i, replica in enumerate(layout.replicas) if replica.role == limiting]
    if not candidates:
        candidates = list(range(len(layout.replicas)))
    index = max(candidates, key=lambda i: len(layout.replicas[i].chips))
    price = priced.replicas[index]
    parts: dict[str, float] = {}
    for stage in price.stages:
        for part, seconds in stage.parts.items():
            parts[part] = parts.get(part, 0.0) + seconds
    total = sum(parts.values())
    largest = max(parts, key=lambda part: parts[part])
    text = (
        f"{layout.replicas[index].role} replicas, which spend {parts[largest] / total:.0%} of a pass "
        f"on {_OPERATIONS.get(largest, largest.replace('_', ' '))}"
    )
    reasons = []
    slo = Slo() if instance.slo.of_replays else instance.slo
    if slo.tpot and float(price.service.tpot_s) > 0.9 * slo.tpot:
        reasons.append("the TPOT target allows no larger batch")
    if slo.ttft and priced.ttft_s(index) > 0.9 * slo.ttft:
        reasons.append("the TTFT target allows no larger batch")
    if hbm_fill(instance, layout.replicas[index], price) > 0.97:
        reasons.append("HBM is full")
    if priced.held_back_by_links:
        reasons.append("the links between domains carry no more KV")
    return text + (f"; {' and '.join(reasons)}" if reasons else "")


def hbm_fill(instance: Instance, replica: Replica, price: ReplicaPrice) -> float:
    """Fraction of the fullest chip's usable HBM that is used."""
    fullest = 0.0
    for stage, stage_price in zip(replica.groups, price.stages, strict=True):
        used: list[float] = stage_price.used_bytes.tolist()
        for chip, own in zip(stage.chips, used, strict=True):
            fullest = max(
                fullest, own / instance.usable_hbm_bytes(instance.cluster.chip(chip).chip)
            )
    return fullest


#: figures of a chip that decide times or money, and what they are called
_OF_CHIPS = {
    "flops_per_s": "FLOP/s", "hbm_bytes_per_s": "HBM bandwidth", "hbm_bytes": "HBM",
    "scale_up_bytes_per_s": "scale-up bandwidth", "nic_bytes_per_s": "NIC bandwidth",
    "usd_per_hour": "price",
}  # fmt: skip


def assumptions(instance: Instance, layout: Layout) -> tuple[str, ...]:
    """What the times and the money of a layout assume: neither measured, published nor derived, one phrase each."""
    chips = _chips(instance, layout)
    paced, unfit = instance.profile.paces, unfitted(instance, layout)
    found = {
        "efficiency (no run on it was measured)": [one for one in unfit if one not in paced],
        "efficiency (published runs alone)": [one for one in unfit if one in paced],
    }
    for field, words in _OF_CHIPS.items():
        found[words] = [chip.name for chip in chips if chip.assumes(field)]
    said = [f"{words} of {', '.join(dict.fromkeys(own))}" for words, own in found.items() if own]
    if instance.operations.moe is not None and instance.expert_loads_provenance == "assumed":
        said.append(f"expert load ({instance.workload.expert_load})")
    if instance.speculative is not None:
        drafter = instance.model.drafter
        by = "" if drafter is None else f" by {drafter.spec.name}"
        said.append(f"acceptance of drafts{by} ({instance.speculative.accepted_words})")
    return tuple(said)


def unfitted(instance: Instance, layout: Layout) -> list[str]:
    """Chips of a layout that no fit saw."""
    names = dict.fromkeys(chip.name for chip in _chips(instance, layout))
    return [one for one in names if instance.profile.for_chip(one).provenance == "assumed"]


def _chips(instance: Instance, layout: Layout) -> list[Chip]:
    """The unlike chips that a layout uses, by name and price."""
    used = {
        (chip.name, chip.usd_per_hour): chip
        for replica in layout.replicas
        for chip in (instance.cluster.chip(own).chip for own in replica.chips)
    }
    return [used[key] for key in sorted(used)]


def _price_words(chip: Chip) -> str:
    """What a price rests on; data of a user's own may not say of which kind it is."""
    kind = chip.provenance.get("usd_per_hour")
    return chip.price_basis if kind is None else f"{kind}: {chip.price_basis}"


def provenance(instance: Instance, layout: Layout) -> dict[str, str]:
    """What each kind of figure rests on: measured, derived or assumed inputs."""
    cluster = instance.cluster
    chips: Sequence[str] = cluster.chip_names
    if len(chips) > 1:
        chips = sorted({cluster.chip(chip).chip.name for r in layout.replicas for chip in r.chips})
    profiles = {instance.profile.for_chip(chip).provenance for chip in chips}
    times = "assumed" if "assumed" in profiles else sorted(profiles)[-1] if profiles else "derived"
    bases = {_price_words(chip) for chip in _chips(instance, layout)}
    drafts = instance.speculative
    accepted = (
        {} if drafts is None else {"acceptance": f"assumed: {drafts.accepted_words} per draft"}
    )
    return accepted | {
        "times": f"{times}: profile {instance.profile.name}",
        "intervals": words_on_intervals(instance.profile, unfitted(instance, layout)),
        "bytes": "derived: model config and placements",
        "expert_load": (
            f"{instance.expert_loads_provenance}: {instance.workload.expert_load}"
            if instance.operations.moe
            else "none: no routed experts"
        ),
        "money": "; ".join(sorted(bases)),
        "energy": "derived: rated chip power times overhead",
    }
