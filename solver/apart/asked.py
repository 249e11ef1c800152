"""What a question with experts apart may ask, and what its certificate says of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from costmodel.question.instance import Instance
from solver.apart.table import MICROBATCHES, footings, step
from solver.shapes.pools import PoolClass
from topology.errors import InstanceError, Problem


def check_apart(instance: Instance) -> None:
    """Raise ``InstanceError`` with everything in the question that does not combine with experts apart."""
    scenario = instance.scenario
    refused = {
        "model": instance.operations.moe is None and "has no routed experts",
        "speculative": instance.speculative is not None
        and "drafts are not priced with experts apart",
        "two_batch_overlap": scenario.two_batch_overlap
        and "microbatches hide the exchange of experts that lie apart",
        "engine": scenario.engine is not None and "no engine of the catalogue runs experts apart",
        "kv_tiers": bool(scenario.kv_tiers) and "KV of replicas with experts apart lies in HBM",
        "workload.hold_s": instance.workload.hold_s is not None
        and "KV of waiting conversations is not searched with experts apart",
        "within_measured": scenario.within_measured and "no measured run has experts apart",
        "layer_slots": scenario.layer_slots != "same"
        and "all layers of experts that lie apart have the same slots",
    }
    problems = [
        Problem(place, f"{why}: leave it out, or apart") for place, why in refused.items() if why
    ]
    if problems:
        raise InstanceError(problems)


def covered(instance: Instance, classes: Sequence[PoolClass]) -> Iterator[str]:
    """What the proof covers of replicas with experts apart, line by line."""
    stands = footings(instance, classes)
    batches = f"{MICROBATCHES[0]} to {MICROBATCHES[-1]} microbatches in flight"
    names = [one.chip.name for one in classes]
    if any(one.together for one in stands):
        yield (
            "decode replicas with attention on any number of a switched domain's chips, routed experts on any number of its "
            f"others, {batches}"
        )
    pairs = dict.fromkeys(
        (names[one.attention[0]], names[one.experts[0]]) for one in stands if not one.together
    )
    if pairs:
        said = ", ".join(f"{a} and {b}" for a, b in pairs)
        steps = max(step(one) for one in classes)
        each = "any number" if steps == 1 else f"any multiple of {steps}"
        yield (
            f"decode replicas with attention and routed experts in domains of their own ({said}), each in one domain on {each} "
            f"of chips that it sells, or in whole domains that are alike, {batches}"
        )
    if instance.scenario.apart == "only":
        yield "no decode or mixed replica with attention and experts on the same chips: apart is only"
    yield (
        "not covered: shared experts beside the routed ones, other numbers of microbatches, experts of one layer apart and of "
        "another not, groups on chips of several types, on two types of which a domain has both, or in domains whose chips have unlike links"
    )
