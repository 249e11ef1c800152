"""The replay agrees with a plain simulator that prices every pass by the cost model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from costmodel.layout.layout import KvShare, Layout, Replica, Shape, Stage, spread
from costmodel.question.instance import Instance
from costmodel.question.traffic.requests import Requests
from costmodel.replay.fleet import standing
from costmodel.replay.gaps import Gaps
from costmodel.replay.job import Habits
from costmodel.replay.pass_table import Line
from costmodel.replay.replay import Course, run
from tests.costmodel.replay.reference import Plain


def mixed_layout(instance: Instance, tp: int, ranks: int, batch: int) -> Layout:
    chips = tuple(placed.id for placed in instance.cluster.chips[: tp * ranks])
    moe = instance.operations.moe
    slots, maps, name = None, {}, None
    if moe is not None:
        slots = -(-moe.num_experts // len(chips))
        row = tuple(slot % moe.num_experts for slot in range(slots * len(chips)))
        name, maps = "even", {"even": dict.fromkeys(instance.operations.moe_layers, row)}
    stage = Stage(
        layers=(0, len(instance.model.layers) - 1),
        chips=chips,
        slots_per_chip=slots,
        expert_map=name,
    )
    kv = [
        KvShare(chip=chips[rank * tp], sequences=count)
        for rank, count in enumerate(spread(batch, ranks))
    ]
    shape = Shape(tp=tp, ep=len(chips) if moe else 1, pp=1, attention_dp=ranks, batch=batch)
    replica = Replica(role="mixed", shape=shape, stages=(stage,), kv=tuple(kv))
    return Layout(replicas=(replica,), expert_maps=maps)


@pytest.mark.parametrize("seed", range(8))
def test_the_replay_agrees_with_a_plain_simulator(
    seed: int, tiny: Callable[[int, int, int, int], Instance]
) -> None:
    rng = np.random.default_rng(seed)
    instance = tiny(seed, 4, 2, int(rng.choice([0, 4])))
    ranks = int(rng.choice([1, 2, 4]))
    layout = mixed_layout(instance, 1 if ranks > 2 else int(rng.choice([1, 2])), ranks, 8 * ranks)
    chunk = int(rng.integers(64, 200))
    plain = Plain(instance, layout, layout.replicas[0], chunk)
    count = 240
    given = rng.integers(20, 400, count)
    asked = rng.integers(1, 60, count)
    alone = [
        Requests(np.zeros(1), given[i : i + 1], asked[i : i + 1], np.zeros(1, dtype=np.int64))
        for i in range(12)
    ]
    service = np.mean([plain.run(one)[0].end_s for one in alone])
    arrival = np.cumsum(rng.exponential(service / (2.0 * ranks), count))
    requests = Requests(arrival, given, asked, np.zeros(count, dtype=np.int64))
    expected = plain.run(requests)
    habits = Habits(chunk_tokens=chunk)
    fleet = standing(instance, layout, habits, Gaps(), requests.longest)
    for one in fleet:
        one.server.share = Line.flat(0.0)  # the plain simulator has room for any KV
    jobs = run(instance, fleet, requests, Course(habits))
    found_first = np.array([job.first_s for job in jobs]) - arrival
    found_whole = np.array([job.ends_s for job in jobs]) - arrival
    first = np.array([s.first_s for s in expected]) - arrival
    whole = np.array([s.end_s for s in expected]) - arrival
    for found, plainly in ((found_first, first), (found_whole, whole)):
        assert found.mean() == pytest.approx(plainly.mean(), rel=0.01)
        assert np.percentile(found, 99) == pytest.approx(np.percentile(plainly, 99), rel=0.03)
