"""Attention and experts apart: what a replica of two groups of chips must be for its price to hold.

A decode replica of a mixture of experts, in one stage: attention on its stage's chips, the routed experts of all layers
on chips of ``apart``, each group on one type of chip. Both in one domain whose chips are all wired alike to switches, or in
domains of their own. What does not combine with it is refused: drafts, two halves of a pass, KV read from outside
HBM, engines (none of the catalogue runs it), and keeping to what was measured (nobody published runs of it).
"""

from __future__ import annotations

from collections.abc import Iterator

from costmodel.layout.layout import Layout, Replica
from costmodel.question.instance import Instance
from costmodel.replica.fleet import PricedLayout
from costmodel.rules import Violation
from topology.collectives.between import wired_alike

STRUCTURE = True


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """Everything that is wrong with replicas whose experts lie apart."""
    return [
        Violation("apart", f"replicas[{index}].apart", message)
        for index, replica in enumerate(layout.replicas)
        if replica.apart is not None
        for message in (*_build(instance, replica), *_question(instance, replica))
    ]


def _build(instance: Instance, replica: Replica) -> Iterator[str]:
    """How the replica is built."""
    apart, shape = replica.apart, replica.shape
    assert apart is not None
    if replica.role != "decode":
        yield f"is of a {replica.role} replica; only decode replicas are priced with experts apart"
    if instance.operations.moe is None:
        yield "the model has no routed experts"
    if shape.pp != 1 or len(replica.stages) != 1:
        yield f"pp is {shape.pp}; attention is one stage"
    if any(any(stage.slots()) or stage.expert_map for stage in replica.stages):
        yield "attention's chips have expert slots, too; routed experts lie on the chips of experts alone"
    last = len(instance.model.layers) - 1
    if apart.experts.layers != (0, last):
        first, end = apart.experts.layers
        yield f"its experts are of layers {first}-{end}; expected those of all layers, 0-{last}"
    if not apart.experts.chips:
        yield "has no chips of experts"
    cluster = instance.cluster
    groups = {"attention": replica.kv_chips, "experts": apart.experts.chips}
    if not all(chip in cluster for chips in groups.values() for chip in chips):
        return
    for name, chips in groups.items():
        types = sorted({cluster.chip(chip).chip.name for chip in chips})
        if len(types) > 1:
            yield f"{name} on {' and '.join(types)}; each group has chips of one type"
    homes = [{cluster.chip(chip).domain for chip in chips} for chips in groups.values()]
    shared = sorted(homes[0] & homes[1])
    if not shared:
        return
    name = cluster.domains[shared[0]].name
    if homes[0] != homes[1] or len(shared) > 1:
        yield (
            f"attention and experts share {name} and stand in other domains, too; expected both in one domain, or "
            "domains of their own"
        )
    elif not wired_alike(cluster, shared[0]):
        yield (
            f"attention and experts share {name}, whose chips are not all wired alike to switches; expected a switched "
            "domain, or domains of their own"
        )


def _question(instance: Instance, replica: Replica) -> Iterator[str]:
    """What of the question does not combine with it."""
    if instance.speculative is not None:
        yield "drafted tokens do not combine with experts apart; leave out speculative, or apart"
    if instance.scenario.two_batch_overlap:
        yield "passes in two halves do not combine with experts apart, whose microbatches hide the exchange"
    if instance.engine is not None:
        yield f"{instance.engine.label} does not run attention and experts apart"
    if instance.scenario.within_measured:
        yield "no measured run has experts apart; leave out within_measured, or apart"
    if replica.place_in_flight != "hbm":
        yield f"KV in {replica.place_in_flight} does not combine with experts apart; expected hbm"
