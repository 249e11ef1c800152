"""Mixed replicas in pipeline stages: both of their passes run on one cut of the layers."""

from __future__ import annotations

import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo, Workload
from solver.answer import Progress
from solver.clock import Clock
from solver.place import attempt
from solver.place.stages import next_batch
from solver.search import search


def question(
    model: str, cluster: str, workload: Workload | str, slo: Slo, **more: object
) -> Instance:
    asked = {"model": model, "cluster": cluster, "workload": workload, "slo": slo, **more}
    return resolve_instance(Scenario.model_validate(asked))


@pytest.mark.parametrize("engine", [None, "vllm", "sglang", "trtllm"])
def test_a_model_that_fills_two_nodes_runs_in_stages(engine: str | None) -> None:
    """812 GB of weights on sixteen H100: no room for a replica of each role, which was all that was looked at."""
    asked = question(
        "llama-3.1-405b", "hgx-h100@2", Workload(input_tokens=2000, output_tokens=500), Slo(ttft=10.0, tpot=0.1),
        **({} if engine is None else {"engine": engine}),
    )  # fmt: skip
    found = search(asked, clock=Clock())
    assert found.status == "optimal"
    (replica,) = found.layout.replicas
    assert (replica.role, replica.shape.tp, replica.shape.pp) == ("mixed", 8, 2)
    domains = [{asked.cluster.chip(c).domain for c in stage.chips} for stage in replica.stages]
    assert sorted(map(len, domains)) == [1, 1]
    assert not any("mixed replicas in pipeline" in line for line in found.certificate.covers)


@pytest.mark.parametrize("cuts", [(None, "decode", "prefill"), (None,)])
def test_stages_that_are_quick_for_prompts_are_tried_where_first_tokens_are_tight(
    cuts: tuple[str | None, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages that are best for both passes together miss this first token with more than two sequences; no bound rests on them."""
    workload = Workload(input_tokens=219, output_tokens=40)
    free = question("qwen3-32b", "rtx4090@2", workload, Slo(), pay="used")
    five = evaluate(free, plain_layout(free, "mixed", tp=8, pp=2, batch=5))
    assert five.ttft_s is not None
    assert five.tpot_s is not None
    tight = Slo(ttft=five.ttft_s * 1.0001, tpot=five.tpot_s * 1.02)
    monkeypatch.setattr(attempt, "_EITHER", cuts)
    found = search(question("qwen3-32b", "rtx4090@2", workload, tight, pay="used"), clock=Clock())
    usd = five.usd_per_m_output_tokens
    assert usd is not None
    assert found.certificate.bound_usd_per_m_output_tokens <= usd
    assert ((found.evaluation.usd_per_m_output_tokens or 0.0) <= usd) is (len(cuts) == 3)


def test_replicas_that_draft_over_stages_are_not_looked_at() -> None:
    asked = question(
        "deepseek-v3", "hgx-h100@2", Workload(input_tokens=2000, output_tokens=500), Slo(tpot=0.1),
        speculative={"draft_tokens": 1, "acceptance": 0.8},
    )  # fmt: skip
    found = search(asked, clock=Clock())
    assert all(r.role != "mixed" or r.shape.pp == 1 for r in found.layout.replicas)
    assert "not covered: mixed replicas in pipeline stages" in found.certificate.covers


def test_they_are_searched_after_the_rest() -> None:
    """Without them $2.72 per million tokens were proven, and they cost $1.62: stages send less over slow links."""
    asked = ("mixtral-8x22b", "rtx4090@3", Workload(input_tokens=200, output_tokens=20), Slo())
    found = search(question(*asked, pay="used"), clock=Clock())
    left_out = {"pay": "used", "limits": {"mixed_stages": False}}
    without = search(question(*asked, **left_out), clock=Clock())
    assert found.status == without.status == "optimal"
    assert "not covered: mixed replicas in pipeline stages" in without.certificate.covers
    assert not any("mixed replicas in pipeline" in line for line in found.certificate.covers)
    assert any(r.role == "mixed" and r.shape.pp > 1 for r in found.layout.replicas)
    cheaper = found.evaluation.usd_per_m_output_tokens or 0.0
    assert cheaper < 0.7 * without.certificate.bound_usd_per_m_output_tokens


def test_what_waits_counts_in_every_bound_that_is_printed() -> None:
    asked = question(
        "mixtral-8x22b", "rtx4090@3", Workload(input_tokens=200, output_tokens=20), Slo(), pay="used"
    )  # fmt: skip
    seen: list[Progress] = []
    found = search(asked, clock=Clock(), on_progress=seen.append)
    cost = found.evaluation.usd_per_m_output_tokens or 0.0
    bounds = [one.bound for one in seen if one.bound is not None]
    assert len(bounds) > 1
    assert all(bound <= cost * (1 + 1e-9) for bound in bounds)


def test_a_node_more_costs_no_more() -> None:
    """Where a model just fits two nodes they were searched, where something else fits they were not: $3.20 and $6.23."""
    costs = []
    for nodes in (2, 3):
        asked = question(
            "llama-3.1-405b", f"hgx-h100@{nodes}", Workload(input_tokens=2000, output_tokens=500),
            Slo(), pay="used",
        )  # fmt: skip
        found = search(asked, clock=Clock())
        assert found.status == "optimal"
        costs.append(found.evaluation.usd_per_m_output_tokens or 0.0)
    assert costs[1] <= costs[0] * 1.01


def test_smaller_batches_are_tried_where_another_cut_fits() -> None:
    """Between the batch and the next one that is tried, the same cuts fit as beside the batch."""
    asked = question(
        "gemma-3-27b", "hgx-h100", Workload(input_tokens=3000, output_tokens=300), Slo()
    )
    layers = asked.operations.num_layers

    def fitting(batch: int) -> set[int]:
        """First layers of second stages beside which HBM holds so many sequences."""
        found = set()
        for first in range(1, layers):
            plain = plain_layout(asked, "mixed", tp=2, pp=2, batch=batch)
            (replica,) = plain.replicas
            ranges = ((0, first - 1), (first, layers - 1))
            stages = tuple(
                stage.model_copy(update={"layers": own})
                for stage, own in zip(replica.stages, ranges, strict=True)
            )
            cut = Layout(replicas=(replica.model_copy(update={"stages": stages}),))
            if not evaluate(asked, cut).violations:
                found.add(first)
        return found

    chip = asked.cluster.usable[0].chip
    efficiency = asked.profile.for_chip(chip.name)
    batch, seen = 320, []
    while len(seen) < 4:
        (draft,) = plain_layout(asked, "mixed", tp=2, pp=2, batch=batch).replicas
        fewer = next_batch(asked, draft, chip, efficiency, ())
        seen.append(fitting(batch))
        assert 0 < fewer < batch
        assert fitting(fewer + 1) == seen[-1]
        batch = fewer
    assert len(seen[0]) < len(seen[-1])
