"""How the experts of a replica exchange tokens under the engine that the question names."""

from __future__ import annotations

from costmodel.layout.layout import Replica
from costmodel.passes.communication import ALL_TO_ALL, Moved
from costmodel.passes.routed import dispatch_element_bytes
from costmodel.question.exchange import Exchange, Ranks, domain_runs
from costmodel.question.instance import Instance
from topology import Chip


def exchange_of(instance: Instance, chip: Chip, role: str, ranks: Ranks) -> Exchange | None:
    """The backend of the engine that serves a replica; ``None`` where nothing is exchanged."""
    engine, moe = instance.engine, instance.operations.moe
    if engine is None or moe is None or ranks.attention_dp == 1:
        return None
    if ranks.cut:
        return next((one for one in engine.exchange if one.kind == "collectives"), None)
    return next(
        one
        for one in engine.exchange
        if (one.models is None or engine.models.have(one.models, instance.model))
        and one.fits(moe.expert_dtype, chip, role, ranks)
    )


def exchange_in(instance: Instance, replica: Replica) -> Exchange | None:
    """:func:`exchange_of` a replica on named chips."""
    if instance.engine is None or replica.shape.attention_dp == 1:
        return None
    runs = domain_runs(instance.cluster, [stage.chips for stage in replica.stages])
    chip = instance.cluster.chip(replica.chips[0]).chip
    even = all(len(set(stage.slots())) == 1 for stage in replica.stages)
    ranks = Ranks(replica.shape.attention_dp, runs, even, replica.cuts_experts)
    return exchange_of(instance, chip, replica.role, ranks)


def moved_by(instance: Instance, found: Exchange | None, *, cut: bool = False) -> Moved:
    """How tokens reach the experts by a backend; where no engine says, by all-to-all, or all of them to ``cut`` ones."""
    moe = instance.operations.moe
    if found is None or moe is None:
        return Moved(gathers=True) if cut else ALL_TO_ALL
    gathers, widening = found.kind == "collectives", 1.0
    if gathers and found.gathers == "as they are":
        sent = dispatch_element_bytes(moe, instance.operations)
        widening = instance.operations.activation_bytes / sent
    if found.most_tokens is None:
        return Moved(gathers, widening)
    drafts = instance.speculative
    verified = 1 if drafts is None else 1 + drafts.draft_tokens
    return Moved(gathers, widening, float(found.most_tokens // verified))


def moved_in(instance: Instance, replica: Replica) -> Moved:
    """How tokens reach the experts of a replica."""
    return moved_by(instance, exchange_in(instance, replica), cut=replica.cuts_experts)
