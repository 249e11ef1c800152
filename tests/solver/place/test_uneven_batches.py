"""Batches that are not the same on every attention rank: found where they serve more, and never below the bound."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.layout import KvShare, Layout, Replica
from costmodel.question.instance import Instance, Scenario, resolve_instance
from costmodel.question.scenario import load_workload
from costmodel.question.workload import Limits, Slo, Workload
from solver.clock import Clock
from solver.place.attempt import Attempt
from solver.place.standing import standings
from solver.search import Search, SearchResult, search


def question(
    model: str, cluster: str, tokens: tuple[int, int] | None, slo: Slo, **other: object
) -> Instance:
    workload = load_workload("chat")
    if tokens is not None:
        workload = Workload(input_tokens=tokens[0], output_tokens=tokens[1], expert_load="uniform")
    return resolve_instance(
        Scenario(model=model, cluster=cluster, workload=workload, slo=slo, **other)
    )


def with_batch(layout: Layout, index: int, sequences: list[int]) -> Layout:
    """The layout with other sequences on the ranks of one replica."""
    replica = layout.replicas[index]
    tp = replica.shape.tp
    kv = tuple(
        KvShare(chip=replica.stages[0].chips[rank * tp], sequences=count)
        for rank, count in enumerate(sequences)
    )
    shape = replica.shape.model_copy(update={"batch": sum(sequences)})
    replicas = list(layout.replicas)
    replicas[index] = replica.model_copy(update={"kv": kv, "shape": shape})
    return layout.model_copy(update={"replicas": tuple(replicas)})


def neighbours(rng: np.random.Generator, replica: Replica) -> Iterator[list[int]]:
    """Batches close to that of a replica: one more or fewer on some ranks, and some sequences moved."""
    here = np.array(replica.rank_sequences())
    for rank in range(min(len(here), 4)):
        for more in (1, -1, replica.shape.pp):
            changed = here.copy()
            changed[rank] += more
            yield changed.tolist()
    for _ in range(8):
        yield (here + rng.integers(-1, 2, len(here))).tolist()


def none_below_the_bound(instance: Instance, found: SearchResult) -> int:
    """Layouts around an answer that break no rule; fails if one is cheaper than the bound."""
    rng = np.random.default_rng(3)
    bound, good = found.certificate.bound_usd_per_m_output_tokens, 0
    for index, replica in enumerate(found.layout.replicas):
        for sequences in neighbours(rng, replica):
            if min(sequences) < 0 or not any(sequences):
                continue
            judged = evaluate(instance, with_batch(found.layout, index, sequences))
            if judged.feasible:
                good += 1
                assert judged.usd_per_m_output_tokens is not None
                assert judged.usd_per_m_output_tokens >= bound * (1 - 1e-9)
    return good


#: questions whose answer has few sequences on each of some ranks, and a target that one more on all would miss
BOUND_BY_TPOT = [
    ("deepseek-v3", "mi355x", None, Slo(ttft=2.0, tpot=0.0165)),
    ("minimax-m2.7", "hgx-h200", (1000, 500), Slo(tpot=0.015)),
    ("qwen3-30b-a3b", "hgx-h100", (1000, 1000), Slo(tpot=0.0068)),
]


@pytest.mark.parametrize(("model", "cluster", "tokens", "slo"), BOUND_BY_TPOT)
def test_an_uneven_batch_is_found_and_none_beats_the_bound(
    model: str, cluster: str, tokens: tuple[int, int] | None, slo: Slo
) -> None:
    instance = question(model, cluster, tokens, slo)
    found = search(instance, clock=Clock(60), gap=0.02)
    batches = [replica.rank_sequences() for replica in found.layout.replicas]
    assert any(len(set(batch)) > 1 for batch in batches)
    assert none_below_the_bound(instance, found) > 0


def row_of(found: Search, **widths: int) -> int:
    """The one shape of these widths on one domain."""
    (row,) = [
        row
        for row in range(len(found.shapes))
        if (widths | {"slices": 1}).items() <= found.shapes.row(row).items()
    ]
    return row


def test_a_batch_that_the_stages_do_not_divide_is_found() -> None:
    """A limit of five sequences on a rank: four stages hold five, not four."""
    instance = question(
        "llama-3.1-70b", "hgx-h100", (1000, 500), Slo(tpot=0.1),
        limits=Limits(max_sequences_per_rank=5, max_pipeline_stages=4),
    )  # fmt: skip
    own = Search(instance, Clock(60), 0.01, 0, None)
    row = row_of(own, role=1, tp=1, pp=4)
    placed = own.placed.realiser.realise(row, int(own.bounds.per_rank[row]))
    four = own.placed.realiser.realise(row, 4)
    assert placed.sequences == (5,)
    assert placed.requests_per_s > four.requests_per_s
    assert placed.requests_per_s <= own.bounds.requests_per_s[row] * (1 + 1e-9)


def test_fewer_sequences_than_ranks_may_meet_a_target_that_one_on_each_misses() -> None:
    free = question("qwen3-30b-a3b", "hgx-h100", (1000, 500), Slo(ttft=5.0, tpot=1.0))
    search_free = Search(free, Clock(60), 0.01, 0, None)
    row = row_of(search_free, role=1, tp=1, attention_dp=8, pp=1, slots=128)
    slots = (16,) * 8
    experts, _ = search_free.placed.realiser.placements.of(slots, free=True)
    stands, *_ = standings(free, search_free.shapes, row, search_free.pricer)
    attempt = Attempt(stands, slots, experts, 0.0, Clock(60), 0)
    three, all_eight = (attempt.try_batch((0,) * (8 - n) + (1,) * n) for n in (3, 8))
    assert three is not None
    assert all_eight is not None
    between = (float(three[1].service.tpot_s) + float(all_eight[1].service.tpot_s)) / 2
    strict = Search(
        question("qwen3-30b-a3b", "hgx-h100", (1000, 500), Slo(ttft=5.0, tpot=between)),
        Clock(60), 0.01, 0, None,
    )  # fmt: skip
    placed = strict.placed.realiser.realise(row, int(strict.bounds.per_rank[row]))
    assert 3 <= sum(placed.sequences) < 8
    assert max(placed.sequences) == 1
    assert 0 < placed.requests_per_s <= strict.bounds.requests_per_s[row] * (1 + 1e-9)
