"""Where neighbours matter, each stage of a replica stands on a set of its own, beside those of all others."""

from __future__ import annotations

import pytest

from costmodel.evaluate import evaluate
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from solver.clock import Clock
from solver.place.stage_sets import by_stage
from solver.rounds import Search
from solver.shapes.pools import pool_classes
from solver.shapes.stands import stands
from topology import load_cluster
from topology.cluster import Cluster


def _positions(cluster: Cluster, chips: tuple[str, ...]) -> list[int]:
    return [cluster.chip(chip).position for chip in chips]


@pytest.mark.parametrize(
    ("width", "stages", "sides"), [(16, 6, (4, 4)), (40, 4, (5, 8)), (64, 2, (8, 8))]
)
def test_stages_of_a_replica_exchange_as_quickly_as_boxes(
    width: int, stages: int, sides: tuple[int, int]
) -> None:
    cluster = load_cluster("tpu-v5e")
    fabric = cluster.domains[0].fabric
    box = [16 * row + column for row in range(sides[0]) for column in range(sides[1])]
    (pool,) = pool_classes(cluster)[0].pools
    shape = {"tp": 1, "attention_dp": width, "pp": stages, "slots": 160}
    slowest = []
    for stand in stands(cluster, shape, [(pool, pool.chips, width * stages)]):
        own = [_positions(cluster, stage) for stage in stand]
        assert len({place for stage in own for place in stage}) == width * stages
        slowest.append(max(fabric.exchange(stage).s_per_byte for stage in own))
    assert min(slowest) == pytest.approx(fabric.exchange(box).s_per_byte)


@pytest.mark.parametrize("failed", [(), ("r0g5",), ("r0g5", "r0g40", "r0g77")])
def test_replicas_of_several_stages_find_room_beside_each_other(failed: tuple[str, ...]) -> None:
    scenario = Scenario.model_validate(
        {
            "model": "mixtral-8x7b",
            "cluster": "tpu-v5e-8x12",
            "failed": failed,
            "workload": {"input_tokens": 2000, "output_tokens": 500},
            "slo": {"ttft": "5s", "tpot": "50ms"},
        }
    )
    search = Search(resolve_instance(scenario), Clock(None), 0.01, 0, None)
    fleet = search.fleet(search.items.best(), 6.0).fleet
    assert fleet is not None
    search.place(sorted(fleet.shapes))
    known = search.placed, search.classes, search.question
    found, tried = by_stage(*known, None, float("inf"), frozenset())
    assert found is not None
    layout, claimed = found
    several = [one for one in layout.replicas if len(one.stages) > 1]
    assert {one.role for one in several} == {"prefill", "decode"}
    judged = evaluate(search.instance, layout)
    assert not judged.violations
    # each is as quick as it is alone
    assert judged.requests_per_s == pytest.approx(claimed.requests_per_s, rel=2e-3)
    # the same is not looked at again, nor taken where it is no better
    assert by_stage(*known, None, float("inf"), frozenset(tried)) == (None, set())
    cost = search.question.cost_of(claimed)
    again, _ = by_stage(*known, None, cost, frozenset())
    assert again is None or search.question.cost_of(again[1]) < cost
