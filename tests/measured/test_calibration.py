"""The fit: what is known comes back, what is shipped is plausible, intervals hold their value."""

import json
import subprocess
import sys

import numpy as np
import pytest

from costmodel.measured.fitting.calibration import LEAST_ROWS, calibrate, shipped_rows
from costmodel.measured.fitting.fit import fit, predicted_tpot_s, problem_of, start_of
from costmodel.measured.fitting.intervals import parameter_intervals
from costmodel.measured.fitting.parameters import ALL, BY_CELL, COMMON, efficiency_at
from costmodel.measured.own.prior import UNKNOWN_SD, cell_covariance, factor_rows, fit_covariance
from costmodel.measured.own.shipped import known_of
from costmodel.measured.runs import runs_of
from costmodel.measured.scores import score
from costmodel.question.profile import load_profile
from topology.catalogue import data_dir
from topology.errors import InstanceError

pytest.importorskip("scipy")

KNOWN_NAMES = tuple(parameter.name for parameter in ALL)


@pytest.fixture(scope="module")
def problem(rows):
    some = [row for row in rows if row.system in ("h100_sxm", "b200_sxm") and row.prefill is None]
    runs = runs_of(some[::12])[0]
    return problem_of(runs, start_of(runs).pricing(runs))


def test_a_fit_finds_back_what_made_the_times(problem):
    """Times made by known parameters are predicted within 3 % by the fit that only saw them."""
    truth = start_of(problem.runs)
    rng = np.random.default_rng(5)
    x = truth.x.copy()
    levels = len(COMMON) + len(BY_CELL)
    x[:levels] += rng.normal(0, 0.3, levels)
    made = predicted_tpot_s(problem, type(truth)(truth.structure, x))
    again = type(problem)(problem.runs, problem.table, problem.batches, made)
    found = predicted_tpot_s(again, fit(again))
    assert np.median(np.abs(found / made - 1)) < 0.03


def test_the_fit_is_the_same_every_time(problem):
    assert np.array_equal(fit(problem).x, fit(problem).x)


def test_intervals_hold_their_value(problem):
    found = parameter_intervals(problem, fit(problem))
    assert set(found) == {(run.chip, run.row.engine) for run in problem.runs}
    for values in found.values():
        for low, value, high in values.values():
            assert low <= value <= high


def test_the_covariance_of_a_fit_is_one_and_makes_a_prior(problem):
    """Also where a parameter stands at its limit, so that rows say nothing of it."""
    fitted = fit(problem)
    x = fitted.x.copy()
    x[KNOWN_NAMES.index("experts")] = 40.0
    covariance, spread = fit_covariance(problem, type(fitted)(fitted.structure, x))
    assert np.linalg.eigvalsh(covariance).min() > 0
    pairs = {(run.chip, run.row.engine) for run in problem.runs}
    for chip, engine in (*sorted(pairs), ("", "")):
        own = cell_covariance(fitted.structure, covariance, spread, chip, engine)
        lower = factor_rows(own)
        assert [len(row) for row in lower] == list(range(1, len(KNOWN_NAMES) + 1))
        assert np.sqrt(np.diag(own)).max() < 3 * UNKNOWN_SD
    known = known_of(problem, fitted, {})
    assert known.parameters == (*KNOWN_NAMES, "pace")
    assert 0 < known.row_sd < 0.5


def test_a_measured_error_of_nothing_is_nothing():
    assert score(np.array([]), np.array([])) is None
    found = score(np.array([1.2, 0.9]), np.array([1.0, 1.0]))
    assert found is not None
    assert found.mape == pytest.approx(0.15)
    assert found.bias == pytest.approx(0.05)


def test_too_few_rows_are_refused(rows):
    with pytest.raises(InstanceError, match=f"at least {LEAST_ROWS}"):
        calibrate(rows[:3], [], "few")


def test_shipped_profile_is_plausible_and_small():
    assert len(BY_CELL) == 1
    profile = load_profile("calibrated")
    cells = [one for engine in profile.engines.values() for one in engine.chips.values()]
    chips = {run.chip for run in runs_of(shipped_rows()[0][::7])[0]}
    assert all(chips <= set(engine.chips) for engine in profile.engines.values())
    for one in cells:
        assert 0 < one.hbm <= 1
        assert 0 < (one.kv or 0) <= 1
        assert 0 < (one.experts or 0) <= 1
        assert all(0 < share <= 1 for share in one.compute.values())
        assert one.kernel_overhead_s > 0
        assert one.sequence_overhead_s >= 0
    assert profile.default.provenance == "assumed"
    # kernels that join what experts do exist for Blackwell, and are told apart for one engine
    slower = {
        chip: one.unfused_moe_overhead_s for chip, one in profile.engines["trtllm"].chips.items()
    }
    assert slower["h100"] == slower["h200"] > 1e-5
    assert slower["b200"] == slower["gb300"] == 0
    assert {one.unfused_moe_overhead_s for one in profile.engines["vllm"].chips.values()} == {0}
    assert load_profile("calibrated:vllm").for_chip("h200") == profile.engines["vllm"].chips["h200"]
    with pytest.raises(InstanceError, match="no engine 'acme'"):
        load_profile("calibrated:acme")


def test_shipped_profile_says_what_it_is_worth():
    raw = json.loads((data_dir("profiles") / "calibrated.json").read_text())
    assert raw["error"].count("left out") == 3
    low, middle, high = raw["interval"]
    assert low < 0 < high
    assert abs(middle) < 0.1


@pytest.mark.slow
def test_shipped_profile_and_report_are_reproduced_bit_for_bit():
    done = subprocess.run(
        [sys.executable, "-m", "costmodel.measured", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_constants_are_shipped_as_people_write_them():
    """A solver ends at 4.9999997e-05; what is shipped and printed is 5e-05."""
    values = {one.name: np.array([one.start * (1 - 6e-8)]) for one in (*COMMON, *BY_CELL)}
    values["softmax"] = np.ones(1)
    found = efficiency_at(values, 0, 1e9, measured=True)
    starts = {one.name: one.start for one in BY_CELL}
    assert found.kernel_overhead_s == starts["kernel_overhead_s"]
    numbers = [*found.compute.values(), *(v for v in vars(found).values() if isinstance(v, float))]
    assert len(numbers) >= 17
    assert all(number == float(f"{number:.4g}") for number in numbers)
