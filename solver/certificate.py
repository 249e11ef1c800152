"""The certificate: a proven bound, the gap to it, and what the proof covers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.question.instance import Instance
from solver.fleet.asked import links_between
from solver.shapes.pools import PoolClass
from solver.shapes.shapes import ShapeTable, most_domains, tensor_widths
from solver.shapes.spans import span_families
from solver.shapes.stands import neighbours_matter

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


_COPIES = "spare slots holding copies of the busiest experts, as many experts as there are spare slots at most"

#: placements of experts, by the slots that the layers may have
_SLOTS = {
    "same": f"with equal slots per chip, {_COPIES} (none spare, the next three full rows, about 32 and 64 spare; "
    "the same in every layer)",
    "rows": f"with equal slots per chip, {_COPIES}, from none spare to the third full row or about 64 in each "
    "layer whatever the others have",
    "any": f"with a layer's slots as even over the chips as they can be, {_COPIES}, from none spare to the third "
    "full row or about 64 in each layer whatever the others have",
}


@dataclass(frozen=True)
class Certificate:
    """What is proven of the answer.

    ``bound_usd_per_m_output_tokens``: no layout that ``covers`` describes is cheaper, under the
    same cost model; ``gap``: cost over bound minus 1.
    """

    bound_usd_per_m_output_tokens: float
    gap: float
    covers: str


def covers(instance: Instance, classes: tuple[PoolClass, ...], shapes: ShapeTable) -> str:
    """The search space in words."""
    limits = instance.limits
    widths = tensor_widths(instance)
    largest = max(pool_class.size for pool_class in classes)
    domains = most_domains(instance, classes)
    spans = min(domains, max(len(pool_class.pools) for pool_class in classes))
    families = span_families(classes, domains)
    text = (
        f"{len(shapes)} shapes: prefill, decode and mixed replicas; stages of every size from 1 to "
        f"{largest} chips of a domain; tensor parallel {', '.join(map(str, widths[:8]))}"
        f"{' ...' if len(widths) > 8 else ''}; 1 to {limits.max_pipeline_stages} pipeline stages, in one "
        f"domain or one domain each"
    )
    if instance.operations.moe is not None:
        text += (
            f"; experts on all chips of a stage, over 1 to {spans} domains with the same number of "
            f"chips in each; every placement of experts {_SLOTS[instance.scenario.layer_slots]}"
        )
    text += "".join(
        f"; replicas over up to {domains} domains of {family.chip} with {_NUMBERS[family.kind]}, in one stage "
        "or in stages of one width that each lie in one domain"
        for family in families
        if family.spans
    )
    if instance.engine is not None:
        text += f"; of all these, what {instance.engine.title} runs as it stands"
    text += _sets(instance, classes)
    left_out = [_LEFT_OUT[f.kind] for f in families if f.kind != "every"]
    unlike = "".join(f"{words}, " for words in dict.fromkeys(left_out))
    outside = "KV outside HBM"
    if instance.scenario.kv_tiers or instance.workload.hold_s is not None:
        text += _kv_places(instance)
        outside = "layouts whose replicas keep KV in different places"
    drafts = "speculative decoding"
    if instance.speculative is not None:
        drafts = f"another number of drafted tokens than {instance.speculative.draft_tokens}"
    text += (
        f"; every batch, however its sequences lie on the attention ranks, up to {limits.max_sequences_per_rank:,} on "
        "each; every cut of layers into "
        f"stages; every mix of these replicas on the usable chips{_links(instance)}. Not covered: mixed replicas in pipeline stages, chips of different "
        f"types in one replica, {unlike}prefill passes that hold more tokens than a "
        f"rank's whole prompts within {limits.prefill_chunk_tokens:,} (or than an even chunk of one longer prompt), {drafts}, {outside}. The bound holds "
        f"under the cost model's {instance.profile.name} profile, not for measured time"
    )
    return text


def _sets(instance: Instance, classes: Sequence[PoolClass]) -> str:
    """On which sets of chips replicas stand, where these are not alike."""
    domains = instance.cluster.domains
    if all(domains[p.domain].interchangeable_chips for c in classes for p in c.pools):
        return ""
    unlike = [c for c in classes if neighbours_matter(instance.cluster, c.domain)]
    pools = [(domains[c.domain].fabric, c.pools[0].chips) for c in unlike]
    place = {placed.id: placed.position for placed in instance.cluster.chips}
    if pools and all(fabric.every_set_of([place[c] for c in chips]) for fabric, chips in pools):
        text = (
            "; where neighbours matter (a torus), replicas in one domain on every set of its chips, over several "
            "on the quickest sets of each"
        )
    else:
        text = (
            "; where neighbours matter (a torus, failed links), replicas on boxes and compact blocks of chips, "
            "not on every set of chips"
        )
    if any(c.cut_off for c in classes):
        text += "; chips that failures cut off from the largest part of their domain, in replicas of their own"
    return text


def _links(instance: Instance) -> str:
    """What counts of the links between domains, in words."""
    if links_between(instance) is None:
        return ""
    return ", their KV handed over within what NICs and leaves carry"


def _kv_places(instance: Instance) -> str:
    """Where KV may lie, in words."""
    tiers = instance.scenario.kv_tiers
    text = "; KV of sequences in flight in HBM"
    if "host" in tiers:
        text += " or read from host memory in every pass, chosen for prompts and for generation"
    if instance.workload.hold_s is not None:
        text += f"; idle KV in HBM, {''.join(f'{tier}, ' for tier in tiers)}or computed again"
    return text
