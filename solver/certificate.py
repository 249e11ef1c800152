"""The certificate: a proven bound, the gap to it, and what the proof covers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from costmodel.question.instance import Instance
from solver.fleet.asked import links_between
from solver.shapes.pools import PoolClass
from solver.shapes.shapes import (
    NARROWEST,
    ShapeTable,
    families_of,
    most_domains,
    pipes_mixed,
    ranks_may_span,
    tensor_widths,
)
from solver.shapes.spans import SpanFamily
from solver.shapes.stands import every_set

#: chips that a replica may take in each domain, by family of spans
_NUMBERS = {
    "every": "any number of chips in each",
    "by_class": "any number of chips in each, the same in domains that are alike",
    "even": "all their chips, or the same number in each, whether the domains are alike or not",
}

#: and what is then not covered
_LEFT_OUT = {
    "by_class": "one replica with unequal numbers of chips in like domains",
    "even": "one replica with unequal numbers of chips in several domains (unless it takes all of each)",
    "none": "one replica with unequal numbers of chips in several domains or over domains that "
    "differ in usable chips, links or NICs",
}

#: families whose pools are also filled with whole stages
_FILLED = "as many whole stages in each as it holds and the rest in one more, the largest first"
_BUT_FILLED = " (unless whole stages fill all but one)"


#: what is not covered of attention ranks, by whether any are searched over several domains
_RANKS_LEFT_OUT = {
    False: "attention ranks over several domains",
    True: "attention ranks over several domains with unequal numbers of chips in each",
}

_COPIES = "spare slots hold copies, and no expert has more of them than a busier one of its layer"

#: placements of experts, by the slots that the layers may have
_SLOTS = {
    "same": f"experts in equal slots on every chip; {_COPIES}; with no spare slot, the next three full rows, about "
    "32 and about 64 spare slots, the same in every layer",
    "rows": f"experts in equal slots on every chip; {_COPIES}; from no spare slot to the third full row or about 64, "
    "in each layer whatever the others have",
    "any": f"experts in slots as even over the chips as they can be; {_COPIES}; from no spare slot to the third full "
    "row or about 64, in each layer whatever the others have",
}


@dataclass(frozen=True)
class Certificate:
    """What is proven of the answer.

    ``bound_usd_per_m_output_tokens``: no layout that ``covers`` describes is cheaper, under the
    same cost model; ``gap``: cost over bound minus 1.
    """

    bound_usd_per_m_output_tokens: float
    gap: float
    covers: tuple[str, ...]


def covers(
    instance: Instance, classes: tuple[PoolClass, ...], shapes: ShapeTable
) -> tuple[str, ...]:
    """The search space as a list: what is in it, then what is not."""
    limits, engine = instance.limits, instance.engine
    domains = most_domains(instance, classes)
    families = families_of(instance, classes)
    found = [*_of_shapes(instance, classes, shapes, domains)]
    found += [
        f"replicas over up to {domains} domains of {family.chip} with {_numbers(family)}, in one stage or in "
        "stages of one width that each lie in one domain"
        for family in families
        if family.spans
    ]
    found += _sets(instance, classes)
    keeps = bool(instance.scenario.kv_tiers) or instance.workload.hold_s is not None
    found += _kv_places(instance) if keeps else ()
    found += [
        f"every batch of up to {limits.max_sequences_per_rank:,} sequences on an attention rank, however they lie "
        "on the ranks",
        "every cut of the layers into stages",
        f"every mix of these replicas on the usable chips{_links(instance)}",
    ]
    if instance.scenario.two_batch_overlap:
        found.append("every pass of several attention ranks in two halves")
    if engine is not None:
        found.append(f"of all these, what {engine.title} runs as it stands")
    drafts = instance.speculative
    missing = [
        *_cuts_left_out(instance, shapes),
        *(
            [_RANKS_LEFT_OUT[any(ranks_may_span(instance, one) for one in classes)]]
            if min(domains, len(instance.cluster.domains)) > 1
            else []
        ),
        *([] if pipes_mixed(instance) else ["mixed replicas in pipeline stages"]),
        "chips of different types in one replica",
        *dict.fromkeys(
            _LEFT_OUT[family.kind] + _BUT_FILLED * family.filled
            for family in families
            if family.kind != "every"
        ),
        "speculative decoding"
        if drafts is None
        else f"another number of drafted tokens than {drafts.draft_tokens}",
        "layouts whose replicas keep KV in different places" if keeps else "KV outside HBM",
        f"measured time: the bound holds under the cost model's {instance.profile.name} profile",
    ]
    if instance.scenario.apart:
        # entered where it is asked for, and nowhere else
        from solver.apart.asked import covered

        *own, left_out = covered(instance, classes)
        return (*found, *own, *(f"not covered: {what}" for what in missing), left_out)
    return (*found, *(f"not covered: {what}" for what in missing))


def _numbers(family: SpanFamily) -> str:
    """Chips that a replica may take in each domain."""
    own = [_NUMBERS[family.kind]] if family.kind in _NUMBERS else []
    return " or ".join([*own, _FILLED] if family.filled else own)


def _of_shapes(
    instance: Instance, classes: tuple[PoolClass, ...], shapes: ShapeTable, domains: int
) -> Iterator[str]:
    """How replicas may be built."""
    widths = tensor_widths(instance)
    yield f"{len(shapes)} shapes of prefill, decode and mixed replicas"
    yield f"stages of every size from 1 to {max(one.size for one in classes)} chips of a domain"
    yield f"tensor parallel {', '.join(map(str, widths[:8]))}{' ...' if len(widths) > 8 else ''}"
    stages = instance.limits.max_pipeline_stages
    yield f"1 to {stages} pipeline stages, in one domain or one domain each"
    if instance.operations.moe is not None:
        spans = min(domains, max(len(one.pools) for one in classes))
        yield (
            f"experts on all chips of a stage, over 1 to {spans} domains with the same number of chips in each"
        )
        yield _SLOTS[instance.scenario.layer_slots]
        cut = _cut(shapes)
        if cut:
            chips = ", ".join(map(str, cut[:8])) + (" ..." if len(cut) > 8 else "")
            yield f"each expert cut over all chips of a stage of {chips}"


def _cut(shapes: ShapeTable) -> list[int]:
    """Chips of the stages over which experts are cut."""
    return sorted({int(chips) for chips in shapes.stage_chips[shapes.slots == 0]})


def _cuts_left_out(instance: Instance, shapes: ShapeTable) -> Iterator[str]:
    """Experts that could be cut and are not."""
    if instance.operations.moe is None:
        return
    if _cut(shapes):
        yield f"experts cut into slices of fewer than {NARROWEST} columns"
    else:
        yield "experts that are each cut over all chips of a stage"


def _sets(instance: Instance, classes: Sequence[PoolClass]) -> Iterator[str]:
    """On which sets of chips replicas stand, where these are not alike."""
    domains = instance.cluster.domains
    yield from dict.fromkeys(
        domain.granularity.said for domain in domains if domain.granularity.said
    )
    if all(domains[p.domain].interchangeable_chips for c in classes for p in c.pools):
        return
    if every_set(instance.cluster, classes):
        yield (
            "where neighbours matter (a torus), replicas in one domain on every set of its chips, over several "
            "on the quickest sets of each"
        )
    else:
        yield (
            "where neighbours matter (a torus, failed links), replicas on boxes and compact blocks of chips, "
            "not on every set of chips"
        )
    if any(c.cut_off and domains[c.domain].granularity.spans for c in classes):
        yield "chips that failures cut off from the largest part of their domain, in replicas of their own"


def _links(instance: Instance) -> str:
    """What counts of the links between domains, in words."""
    if links_between(instance) is None:
        return ""
    return ", their KV handed over within what NICs and leaves carry"


def _kv_places(instance: Instance) -> Iterator[str]:
    """Where KV may lie."""
    tiers = instance.scenario.kv_tiers
    host = " or in host memory (read in every pass), chosen for prompts and for generation"
    yield f"KV of running sequences in HBM{host if 'host' in tiers and instance.engine is None else ''}"
    if instance.workload.hold_s is not None:
        yield f"KV of waiting conversations in HBM, {''.join(f'{tier}, ' for tier in tiers)}or computed again"
