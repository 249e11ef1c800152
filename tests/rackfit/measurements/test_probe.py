"""``rackfit probe``: runs that tell most, whose commands mean what was priced."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from costmodel.evaluate import evaluate
from costmodel.measured.own.calibration import pricing_at
from costmodel.measured.predict import predict
from costmodel.measured.rows import Group
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo, Workload
from rackfit.cli.app import build_app
from rackfit.measurements import probe as probe_module
from rackfit.measurements.bench_commands import launch_command
from rackfit.measurements.deployment import deployed_as
from rackfit.measurements.probe import DRAWS, LEAST_DRAWS, log_cost, probe
from solver.clock import Clock
from topology.errors import InstanceError

pytest.importorskip("scipy")

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
QUESTION = ("--model", "llama-3.1-8b", "--cluster", "hgx-h100", "--input-tokens", "2000",
            "--output-tokens", "200", "--tpot", "20 ms")  # fmt: skip


def rackfit(*args: object) -> Result:
    return CliRunner().invoke(build_app(), [str(arg) for arg in args])


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize(
    "group", [Group(4, 1, 1, 1), Group(2, 1, 2, 1), Group(8, 1, 1, 1, 8), Group(1, 8, 1, 1, 8)]
)
def test_launch_commands_are_read_back_as_the_workers_they_were_written_for(engine, group):
    read = deployed_as(launch_command(engine, MODEL, group, 64), engine, "here")
    assert read.engine == engine
    assert read.prefill is None
    found = read.decode
    assert (found.tp, found.attention_dp, found.pp, found.workers) == (
        group.tp, group.attention_dp, group.pp, 1,
    )  # fmt: skip
    assert (found.expert_ways > 1) == (group.expert_ways > 1)


@pytest.fixture(scope="module")
def probed():
    scenario = Scenario(
        model="llama-3.1-8b", cluster="hgx-h100", engine="vllm", slo=Slo(tpot=0.02),
        workload=Workload(input_tokens=2000, output_tokens=200),
    )  # fmt: skip
    return probe(resolve_instance(scenario), 3, worlds=2)


def test_a_probe_is_about_layouts_of_the_question(probed):
    assert 1 <= len(probed.layouts) <= 4
    assert (np.diff(probed.question.expected) >= 0).all()
    best = evaluate(probed.instance, probed.layouts[0])
    assert best.usd_per_m_output_tokens is not None
    # the profile's values are rounded, nothing else differs
    assert np.exp(probed.question.expected[0]) == pytest.approx(
        best.usd_per_m_output_tokens, rel=1e-3
    )
    assert len(probed.picks) == 3
    gains = [pick.gain for pick in probed.picks]
    assert all(gain >= -1e-6 for gain in gains)
    assert probed.picks[-1].answer_sd < probed.question.answer_sd([])


def test_a_time_limit_that_ends_first_leaves_out_sampled_sets_and_says_so(probed, monkeypatch):
    assert (probed.solved, probed.tried) == ((2, 2), (DRAWS, DRAWS))
    assert probed.cut_short is None
    # time stands still until runs are tried; then none is left
    priced = []
    real = probe_module.log_cost

    def counted(*words):
        priced.append(words)
        return real(*words)

    class Ending(Clock):
        @property
        def remaining_s(self):
            return 0.0 if len(priced) > 100 else 100.0

    monkeypatch.setattr(probe_module, "Clock", Ending)
    monkeypatch.setattr(probe_module, "log_cost", counted)
    found = probe(probed.instance, 3, worlds=2)
    layouts = len(found.layouts)
    assert len(found.question.costs) == found.tried[0] < DRAWS
    assert found.tried[0] % 2 == 0
    assert found.tried[0] >= LEAST_DRAWS
    assert len(priced) <= max(100, LEAST_DRAWS * layouts) + 4 * layouts
    half = found.tried[0] // 2
    for place, former in ((0, 0), (half, DRAWS // 2)):
        assert found.question.costs[place] == pytest.approx(probed.question.costs[former])
    text = "\n".join(found.lines())
    assert f"the time limit came first: runs tried on {found.tried[0]} of {DRAWS} sampled" in text
    assert found.as_dict()["tried_sets"] == found.tried[0]


def test_no_time_for_other_sets_leaves_the_first_answer(probed, monkeypatch):
    class Late(Clock):
        @property
        def remaining_s(self):
            return 0.0

    monkeypatch.setattr(probe_module, "Clock", Late)
    found = probe(probed.instance, 1, worlds=2)
    assert (found.solved, found.tried) == ((0, 2), (LEAST_DRAWS, DRAWS))
    assert "solved under 0 of 2 sampled parameter sets" in "\n".join(found.lines())


def test_runs_are_tried_on_what_the_cost_model_says_under_drawn_parameters(probed):
    question, prior = probed.question, probed.prior
    rng = np.random.default_rng(0)
    half = rng.multivariate_normal(prior.mean, prior.covariance, DRAWS // 2, method="cholesky")
    for place, drawn in ((0, half[0]), (DRAWS // 2, 2 * prior.mean - half[0])):
        costs = [log_cost(probed.instance, layout, drawn) for layout in probed.layouts]
        assert question.costs[place] == pytest.approx(costs)
        times = predict(probed.runs, pricing_at(drawn), {}).tpot_s
        assert np.exp(question.runs[place]) == pytest.approx(times)


def test_runs_see_the_question_and_its_prefill_and_its_decoding(probed):
    """Prompts of 2,000 tokens with 200 of answer, the same with few of answer, and answers to short prompts."""
    lengths = {(run.row.input_tokens, run.row.output_tokens) for run in probed.runs}
    assert lengths == {(2000, 200), (2000, 16), (64, 200)}


def test_a_layout_that_misses_a_target_counts_as_dearer(probed):
    instance, layout, mean = probed.instance, probed.layouts[0], probed.prior.mean
    found = evaluate(instance, layout)
    assert found.tpot_s is not None
    tight = instance.scenario.model_copy(update={"slo": Slo(tpot=found.tpot_s / 1.5)})
    dearer = log_cost(resolve_instance(tight), layout, mean) - log_cost(instance, layout, mean)
    assert dearer == pytest.approx(np.log(1.5), rel=0.01)


def test_the_command_prints_runs_with_their_commands():
    done = rackfit("probe", *QUESTION, "--engine", "vllm", "--runs", 2, "--json")
    assert done.exception is None, done.exception
    data = json.loads(done.stdout)
    assert len(data["runs"]) == 2
    for run in data["runs"]:
        assert run["launch"].startswith("vllm serve llama-3.1-8b ")
        assert f"--max-concurrency {run['concurrency']} " in run["bench"]
        assert deployed_as(run["launch"], "vllm", "here").decode.chips == run["chips"]


def test_runs_are_proposed_for_two_of_the_layouts():
    done = rackfit(
        "probe", *QUESTION, "--engine", "vllm", "--runs", 2, "--between", "2,1", "--json"
    )
    assert done.exception is None, done.exception
    data = json.loads(done.stdout)
    assert data["between"] == [2, 1]
    first, second = (run["right"] for run in data["runs"])
    assert 0.5 < first <= second + 0.05


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "name the engine that would be measured"),
        (("--engine", "vllm", "--between", "2"), "expected the numbers of two layouts"),
        (("--engine", "vllm", "--between", "1,1"), "expected the numbers of two layouts"),
        (("--engine", "vllm", "--between", "1,99"), "expected two of the layouts 1 to"),
        (("--engine", "vllm", "--profile", "physics"), "was not fitted"),
    ],
)
def test_questions_that_no_run_answers_are_refused(options, message):
    done = rackfit("probe", *QUESTION, *options)
    assert isinstance(done.exception, InstanceError)
    assert message in str(done.exception)
