"""A replica's stages are what its shape says: ``pp`` stages of ``tp x attention_dp`` chips."""

from __future__ import annotations

from costmodel.layout.layout import Layout
from costmodel.passes.communication import crossing, ranks_of
from costmodel.passes.routed import mixtures
from costmodel.question.instance import Instance
from costmodel.replica.fleet import PricedLayout
from costmodel.rules import Violation

STRUCTURE = True


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """Stage counts, chips per stage, and widths of experts and heads that do not fit."""
    violations = []
    cluster = instance.cluster
    moe = instance.operations.moe
    heads = instance.operations.query_heads
    for index, replica in enumerate(layout.replicas):
        shape, place = replica.shape, f"replicas[{index}]"

        def broken(message: str, place: str = place) -> None:
            violations.append(Violation("shape_matches", place, message))

        if len(replica.stages) != shape.pp:
            broken(f"{len(replica.stages)} stages, pp is {shape.pp}")
        for stage in replica.stages:
            if len(stage.chips) != shape.chips_per_stage:
                broken(
                    f"{len(stage.chips)} chips in a stage, tp x attention_dp is "
                    f"{shape.tp} x {shape.attention_dp}"
                )
        uneven = sorted(count for count in heads if count % shape.tp)
        if uneven:
            broken(f"tp {shape.tp} does not divide {uneven[0]} query heads")
        experts = shape.chips_per_stage if moe else 1
        where = f"all {experts} chips of a stage"
        if replica.apart is not None:
            experts = len(replica.apart.experts.chips)
            where = f"{experts} chips of their own"
        drafted = [one for one in mixtures(instance.operations) if moe is None]
        if lost := [one for one in drafted if not one.cut_over(shape.chips_per_stage)]:
            broken(
                f"{lost[0].expert_width} columns of an expert of the draft are not cut evenly over all "
                f"{shape.chips_per_stage} chips of a stage"
            )
        if replica.cuts_experts and moe is not None:
            for one in mixtures(instance.operations):
                if not one.cut_over(experts):
                    blocks = f" in blocks of {one.expert_block}" if one.expert_block > 1 else ""
                    broken(
                        f"{one.expert_width} columns of an expert{blocks} are not cut evenly over {where}"
                    )
                    break
            if shape.ep != 1:
                broken(f"ep is {shape.ep}; it is 1 where each expert is cut over {where}")
        elif shape.ep != experts:
            broken(f"ep is {shape.ep}; experts lie on {where}")
        if replica.apart is not None and any(
            crossing(cluster, rank)
            for stage in replica.stages
            for rank in ranks_of(stage.chips, shape.tp)
        ):
            broken("an attention rank's tp shards lie in different domains, its experts apart")
    return violations
