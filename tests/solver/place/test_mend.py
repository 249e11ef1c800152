"""Layouts without the replicas that the judge refuses where they stand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.rules import Violation
from solver.place.mend import mended


def question(model: str = "llama-3.1-8b", cluster: str = "hgx-h100", **slo: float) -> Instance:
    asked: dict[str, Any] = {"model": model, "cluster": cluster, "workload": "chat", "slo": slo}
    return resolve_instance(Scenario.model_validate(asked))


def beside(*layouts: Layout) -> Layout:
    """All replicas of some layouts as one layout."""
    replicas = tuple(replica for layout in layouts for replica in layout.replicas)
    return layouts[0].model_copy(update={"replicas": replicas})


def two(instance: Instance, *batches: int) -> Layout:
    """Mixed replicas on one chip each."""
    return beside(
        *(
            plain_layout(instance, "mixed", tp=1, batch=batch, first_chip=place)
            for place, batch in enumerate(batches)
        )
    )


def between(few: int, many: int) -> Instance:
    """A question whose target holds with a few sequences on a chip, and not with many."""
    free = question()
    fast, slow = (evaluate(free, two(free, batch)).tpot_s for batch in (few, many))
    return question(tpot=(fast + slow) / 2)


def broken(instance: Instance, layout: Layout) -> list[tuple[str, str]]:
    return [(v.rule, v.place) for v in evaluate(instance, layout).violations]


def test_a_replica_that_misses_its_target_is_left_out() -> None:
    instance = between(8, 64)
    layout = two(instance, 4, 64, 8)
    assert broken(instance, layout) == [("tpot_target", "replicas[1]")]
    found = mended(instance, layout, evaluate(instance, layout))
    assert found is not None
    left, evaluation = found
    assert left.replicas == (layout.replicas[0], layout.replicas[2])
    assert evaluation.violations == ()
    assert evaluation.requests_per_s == evaluate(instance, left).requests_per_s


def test_nothing_is_left_where_every_replica_misses_its_target() -> None:
    instance = between(8, 64)
    layout = two(instance, 64, 64)
    assert len(broken(instance, layout)) == 2
    assert mended(instance, layout, evaluate(instance, layout)) is None


def test_a_pool_alone_serves_nothing() -> None:
    instance = between(8, 64)
    layout = beside(
        plain_layout(instance, "prefill", tp=1, batch=1),
        plain_layout(instance, "decode", tp=1, batch=64, first_chip=1),
    )
    assert broken(instance, layout) == [("tpot_target", "replicas[1]")]
    assert mended(instance, layout, evaluate(instance, layout)) is None


def test_another_rule_is_not_mended() -> None:
    instance = between(8, 64)
    layout = two(instance, 4, 5000)
    rules = {rule for rule, _ in broken(instance, layout)}
    assert "hbm_capacity" in rules
    assert mended(instance, layout, evaluate(instance, layout)) is None


@pytest.mark.parametrize("place", ["domain r1", "unit 0 of domains"])
def test_of_a_full_uplink_the_last_replica_that_crosses_it_is_left_out(place: str) -> None:
    instance = question("gpt-oss-20b", "hgx-h100@3")
    wide = plain_layout(instance, "mixed", tp=1, attention_dp=2, batch=2, first_chip=7)
    layout = beside(
        wide,
        plain_layout(instance, "mixed", tp=1, attention_dp=2, batch=2, first_chip=1),
        plain_layout(instance, "mixed", tp=1, attention_dp=2, batch=2, first_chip=15),
        plain_layout(instance, "mixed", tp=1, attention_dp=2, batch=2, first_chip=10),
    )
    evaluation = evaluate(instance, layout)
    assert evaluation.violations == ()
    refused = replace(
        evaluation, violations=(Violation("uplink_capacity", place, "sends more than it carries"),)
    )
    found = mended(instance, layout, refused)
    assert found is not None
    assert found[0].replicas == (layout.replicas[0], layout.replicas[1], layout.replicas[3])
