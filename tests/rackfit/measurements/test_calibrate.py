"""``rackfit calibrate``: few runs move the profile, and what that changes is said."""

import json

import pytest
from typer.testing import CliRunner, Result

from costmodel.question.profile import load_profile
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Workload
from rackfit.cli.app import build_app
from rackfit.measurements.decision import decide
from topology.errors import InstanceError

pytest.importorskip("scipy")

RUN = {
    "date": "20261102-101500", "tokenizer_id": "meta-llama/Llama-3.1-8B-Instruct", "endpoint_type": "openai", "backend": "openai", "num_prompts": 320, "duration": 21.0,
    "model_id": "meta-llama/Llama-3.1-8B-Instruct", "request_rate": "inf", "max_concurrency": 32,
    "completed": 320, "failed": 0, "total_input_tokens": 320000, "total_output_tokens": 64000,
    "request_throughput": 15.2, "mean_ttft_ms": 120.0, "p99_ttft_ms": 310.0, "mean_tpot_ms": 9.1,
    "p99_tpot_ms": 11.5,
}  # fmt: skip
LAUNCH = "vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 2 --max-num-seqs 64"
SCENARIO = {
    "model": "llama-3.1-8b", "cluster": "hgx-h100", "engine": "vllm", "within_measured": True,
    "workload": {"input_tokens": 1000, "output_tokens": 200}, "slo": {"tpot": "20 ms"},
}  # fmt: skip


def rackfit(*args: object) -> Result:
    return CliRunner().invoke(build_app(), [str(arg) for arg in args])


@pytest.fixture
def folder(tmp_path):
    for place, (users, tpot) in enumerate(((8, 8.5), (32, 9.1), (64, 10.4))):
        run = RUN | {"max_concurrency": users, "mean_tpot_ms": tpot}
        (tmp_path / f"run{place}.json").write_text(json.dumps(run))
    (tmp_path / "launch.sh").write_text(LAUNCH)
    (tmp_path / "asked.yaml").write_text(json.dumps(SCENARIO))
    return tmp_path


def test_few_runs_give_a_profile_that_solve_takes(folder):
    done = rackfit("calibrate", *sorted(folder.glob("run*.json")), "--chip", "h100", "--out", folder / "own.json",
                   "--scenario", folder / "asked.yaml", "--launch", folder / "launch.sh")  # fmt: skip
    assert done.exception is None, done.exception
    assert "3 runs used, 0 left out" in done.stdout
    assert "TPOT of 3 own runs: mean error" in done.stdout
    assert "predicted by the other runs" in done.stdout
    assert "hardly told by these runs, about as shipped: " in done.stdout
    assert "best" in done.stdout
    assert "against what runs it saves" in done.stdout
    own = load_profile(str(folder / "own.json"))
    assert own.engines["vllm"].chips["h100"] != load_profile("calibrated:vllm").for_chip("h100")
    assert own.engines["trtllm"] == load_profile("calibrated").engines["trtllm"]


@pytest.mark.parametrize(
    ("option", "value"), [("--noise", "0"), ("--noise", "7"), ("--noise", "nan")]
)
def test_noise_is_a_share(folder, option, value):
    done = rackfit("calibrate", folder / "run0.json", "--chip", "h100", option, value)
    assert isinstance(
        done.exception, InstanceError
    )  # the command line makes it one message and exit code 2
    assert "expected a share from 0.001 to 1" in str(done.exception)


def test_the_figures_of_a_decision_are_the_evaluators():
    """The former best is priced under the own profile; slower kernels cost more."""
    scenario = Scenario(
        model="llama-3.1-8b", cluster="hgx-h100", engine="vllm",
        workload=Workload(input_tokens=1000, output_tokens=200), within_measured=True,
    )  # fmt: skip
    base = load_profile("calibrated")
    chip = base.engines["vllm"].chips["h100"]
    slower = chip.model_copy(update={"kernel_overhead_s": 3 * chip.kernel_overhead_s})
    vllm = base.engines["vllm"]
    engines = base.engines | {
        "vllm": vllm.model_copy(update={"chips": {**vllm.chips, "h100": slower}})
    }
    found = decide(scenario, base.model_copy(update={"engines": engines}))
    assert found.before is not None
    assert found.after is not None
    was, now = found.before.usd_per_m_output_tokens, found.after.usd_per_m_output_tokens
    assert was is not None
    assert now is not None
    assert now > was
    assert f"${now:.4f}" in found.lines()[0]
    assert f"${was:.4f}" in found.lines()[0]
    assert found.kept is not None
    assert found.kept.usd_per_m_output_tokens is not None
    assert found.kept.usd_per_m_output_tokens >= now * (1 - 0.01)  # both are proven within 1 %
