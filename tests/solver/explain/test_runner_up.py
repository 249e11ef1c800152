"""The runner-up: built differently, verified, no cheaper than the answer, at least its bound."""

import numpy as np
import pytest

from costmodel.evaluate import evaluate
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Workload
from rackfit.api import solve
from rackfit.report.uncertainty_words import runner_up_lines
from solver.clock import Clock
from solver.runner_up import MainShape, like
from solver.search import search
from solver.shapes.shapes import ROLES, ShapeTable
from solver.verify import better

QUESTIONS = {
    "dense": {"model": "llama-3.1-8b", "cluster": "hgx-h100"},
    "experts": {"model": "gpt-oss-20b", "cluster": "hgx-h100"},
    "rate": {"model": "llama-3.1-8b", "cluster": "hgx-h100", "rate": 5.0},
    "physics": {"model": "gpt-oss-20b", "cluster": "hgx-h100", "profile": "physics", "pay": "used"},
}


@pytest.fixture(scope="module", params=QUESTIONS)
def found(request):
    return solve(
        Scenario(
            **QUESTIONS[request.param],
            workload=Workload(input_tokens=1000, output_tokens=200, expert_load="uniform"),
            slo={"ttft": "2 s", "tpot": "40 ms"},
        )
    )


def test_it_is_built_differently_and_costs_no_less(found):
    other = found.search.runner_up
    main = other.without
    for replica in other.layout.replicas:
        shape = replica.shape
        widths = [(shape.tp, main.tp), (shape.pp, main.pp), (shape.tp * shape.attention_dp, main.stage_chips)]  # fmt: skip
        close = all(max(pair) <= 1.25 * min(pair) for pair in widths)
        assert replica.role != main.role or not close
    best = found.evaluation.usd_per_m_output_tokens
    assert other.evaluation.usd_per_m_output_tokens >= best * (1 - 1e-12)
    assert found.comparison.excess >= -1e-12


def test_it_is_judged_by_the_evaluator(found):
    other = found.search.runner_up
    again = evaluate(found.instance, other.layout)
    assert again.feasible
    assert again.usd_per_m_output_tokens == other.evaluation.usd_per_m_output_tokens
    assert other.least_usd_per_m_output_tokens <= again.usd_per_m_output_tokens * (1 + 1e-9)


def test_the_answer_is_that_without_it(found):
    plain = search(resolve_instance(found.instance.scenario), clock=Clock(60))
    assert plain.runner_up is None
    if (
        plain.layout != found.layout
    ):  # the runner-up was cheaper, by less than the gap, or as dear and faster
        assert better(found.evaluation, plain.evaluation)
    assert found.certificate.gap <= plain.certificate.gap + 1e-12


def test_the_document_and_the_words_say_whether_it_is_within_the_noise(found):
    data = found.as_dict()["runner_up"]
    assert data["usd_per_m_output_tokens"] == pytest.approx(
        found.evaluation.usd_per_m_output_tokens * (1 + data["excess"])
    )
    lines = runner_up_lines(found)
    if found.instance.profile.held_out is None:
        assert data["within_noise"] is None
        assert "is not known" in lines[1]
    else:
        assert data["within_noise"] is (data["excess"] <= data["noise"])
        assert (
            f"{'is smaller than' if data['within_noise'] else 'exceeds'} the model's error"
            in lines[1]
        )
        assert data["turned"] <= 0.5


def test_whole_and_cut_experts_on_as_many_chips_are_alike_and_told_so():
    """What it is the best without is all that its bound leaves out; what it is of is told apart."""
    found = solve(
        Scenario(
            model="gpt-oss-120b", cluster="hgx-h200",
            workload=Workload(input_tokens=4000, output_tokens=1000), slo={"tpot": "6 ms"},
            engine="vllm",
        ),
        gap=0.01, workers=1,
    )  # fmt: skip
    other = found.search.runner_up
    first = runner_up_lines(found)[0]
    out = other.without
    assert f"without decode replicas like tp {out.tp} on {out.stage_chips} chips: $" in first
    cut = [one for one in other.layout.replicas if one.cuts_experts and len(one.chips) > 1]
    assert cut
    for replica in cut:
        shape = replica.shape
        assert f"{replica.role} tp {shape.tp} experts cut over {shape.chips_per_stage}" in first
    assert MainShape("decode", 2, 2, 6).words(experts=True) == (
        "decode replicas like tp 2 on 6 chips a stage, pp 2"
    )
    assert MainShape("mixed", 1, 1, 1).words(experts=True) == "mixed replicas like tp 1 on 1 chip"
    assert MainShape("mixed", 4, 2, 4).words(experts=False) == "mixed replicas like tp 4 pp 2"


def test_a_quarter_wider_is_alike():
    def column(*values):
        return np.array(values, dtype=np.int64)

    zeros = column(0, 0, 0, 0, 0)
    decode = ROLES.index("decode")
    table = ShapeTable(
        role=column(decode, decode, decode, decode, ROLES.index("mixed")),
        pool_class=zeros, tp=column(1, 1, 1, 2, 1), attention_dp=column(8, 10, 11, 4, 8),
        pp=column(1, 1, 1, 1, 1), slices=zeros, slice_chips=zeros, stage_pools=zeros, slots=zeros,
        span=zeros,
    )  # fmt: skip
    assert like(table, MainShape("decode", 1, 1, 8)).tolist() == [True, True, False, False, False]
    # the same from the other side
    assert like(table, MainShape("decode", 1, 1, 10)).tolist() == [True, True, True, False, False]


def test_no_time_no_runner_up():
    scenario = Scenario(model="llama-3.1-8b", cluster="hgx-h100", workload="chat")
    clock = Clock()
    instance = resolve_instance(scenario)
    found = search(
        instance, clock=clock, runner_up=True,
        on_progress=lambda progress: clock.stop() if progress.incumbent else None,
    )  # fmt: skip
    assert found.runner_up is None
    assert found.evaluation.feasible
