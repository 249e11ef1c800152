"""Own runs move what they can tell, and predict better what they have not seen."""

import json
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.calibration.left_out import one_draw, without
from costmodel.measured.fitting.fit import problem_of
from costmodel.measured.fitting.intervals import NINETY
from costmodel.measured.fitting.parameters import ALL, BY_CELL, scales_of
from costmodel.measured.own.calibration import calibrate_own, pricing_at, update_cell
from costmodel.measured.own.deviations import deviations
from costmodel.measured.own.pace import PACE
from costmodel.measured.own.prior import cell, prior_of, shipped_known
from costmodel.measured.own.profile import error_words, moved, own_profile
from costmodel.measured.own.shipped import deployment_of
from costmodel.measured.own.update import Belief, update
from costmodel.measured.predict import predict, predict_under
from costmodel.measured.runs import runs_of
from costmodel.question.profile import load_profile

pytest.importorskip("scipy")

PROFILE, KNOWN = load_profile("calibrated"), shipped_known()


@pytest.fixture(scope="module")
def runs(rows):
    """Runs of dense and of routed models on one chip under one engine."""
    some = [
        row
        for row in rows
        if row.system == "h200_sxm" and row.engine == "sglang" and row.prefill is None
    ]
    return runs_of(some[::3])[0]


def made_with(runs, scales, noise=0.0, seed=0):
    """The runs' rows with the times that parameters give, and scatter."""
    found = predict(runs, pricing_at(scales), PROFILE.first_token)
    scatter = np.exp(noise * np.random.default_rng(seed).standard_normal(len(runs)))
    return [
        replace(run, row=replace(run.row, tpot_s=float(tpot), ttft_s=None))
        for run, tpot in zip(runs, found.tpot_s * scatter, strict=True)
    ]


def test_no_runs_leave_what_is_shipped():
    prior = prior_of(KNOWN, PROFILE, "h100", "vllm")
    assert np.array_equal(update_cell(prior, [], PROFILE, KNOWN).after.mean, prior.mean)
    shipped = cell(PROFILE, "h100", "vllm")
    assert shipped == PROFILE.engines["vllm"].chips["h100"]
    assert prior.mean == pytest.approx([*scales_of(shipped), 0.0])


def test_what_is_shipped_of_parameters_belongs_to_the_profile():
    assert (*(p.name for p in ALL), PACE) == KNOWN.parameters
    measured = {
        f"{chip} {name}"
        for name, own in PROFILE.engines.items()
        for chip, one in own.chips.items()
        if one.provenance == "measured"
    }
    assert measured < set(KNOWN.cells)
    for name in KNOWN.cells:
        chip, engine = name.split()
        assert np.linalg.eigvalsh(KNOWN.covariance(chip, engine)).min() > 0
    # a chip that was never measured is known less well, parameter by parameter
    new, old = (np.diag(KNOWN.covariance(chip, "vllm")) for chip in ("mi300x", "h100"))
    assert (new > 0.999 * old).all()
    assert (new > old)[[p in BY_CELL for p in ALL]].all()


def test_runs_that_agree_with_the_shipped_constants_leave_them(runs):
    prior = prior_of(KNOWN, PROFILE, "h200", "sglang")
    found = update_cell(prior, made_with(runs, prior.mean), PROFILE, KNOWN)
    assert found.after.mean == pytest.approx(prior.mean, abs=1e-3)
    assert (found.after.sd <= prior.covariance.diagonal() ** 0.5 + 1e-9).all()


def test_only_what_runs_can_tell_moves(rows):
    """Dense models on one chip say nothing of experts, exchanges and all-reduces."""
    some = [
        row
        for row in rows
        if row.system == "h100_sxm" and "Llama-3.1-8B" in row.model and row.decode.chips == 1
    ]
    runs = runs_of(some[:6])[0]
    assert len(runs) == 6
    prior = prior_of(KNOWN, PROFILE, runs[0].chip, runs[0].row.engine)
    slower = made_with(runs, prior.mean)
    slower = [replace(r, row=replace(r.row, tpot_s=1.3 * r.row.tpot_s)) for r in slower]
    found = {part.name: part for part in moved(update_cell(prior, slower, PROFILE, KNOWN))}
    silent = ("moe_overhead_s", "experts", "grouped", "all_to_all", "exchange_overhead_s",
              "all_reduce", "reduce_ramp_s")  # fmt: skip
    for name in silent:
        assert found[name].told < 0.05
        assert found[name].value == pytest.approx(found[name].before, rel=0.02)
    assert max(part.told for part in found.values()) > 0.3
    assert found["kernel_overhead_s"].value > found["kernel_overhead_s"].before


def test_hidden_parameters_are_recovered(runs):
    """A small slice of ``python -m benchmarks.calibration recovery``."""
    prior = prior_of(KNOWN, PROFILE, "h200", "sglang")
    factor = np.linalg.cholesky(prior.covariance)
    rng = np.random.default_rng(3)
    better, inside = [], []
    for trial in range(8):
        truth = prior.mean + factor @ rng.standard_normal(len(factor))
        made = made_with(runs, truth, noise=0.05, seed=trial)
        exact = predict(runs, pricing_at(truth), PROFILE.first_token).tpot_s
        chosen = rng.choice(len(runs), 10, replace=False)
        rest = np.setdiff1d(np.arange(len(runs)), chosen)
        assert len(rest) >= 20
        after = update_cell(prior, [made[i] for i in chosen], PROFILE, KNOWN)
        errors = []
        for scales in (prior.mean, after.after.mean):
            tpot = predict(runs, pricing_at(scales), PROFILE.first_token).tpot_s
            errors.append(np.abs(tpot / exact - 1)[rest].mean())
        better.append(errors[1] < errors[0])
        assert errors[1] < 2 * errors[0]
        inside.append(np.abs(after.after.mean - truth) < NINETY * after.after.sd)
    assert np.mean(better) >= 0.8
    assert 0.8 < np.mean(inside) < 0.99


def test_runs_that_the_shipped_constants_predict_move_nothing(runs):
    """Times that scatter as runs do anyway say nothing; times that are off by more say it in part, then wholly."""
    prior = prior_of(KNOWN, PROFILE, "h200", "sglang")
    few = runs[:5]

    def moved_by(sd: float) -> float:
        exact = predict(few, pricing_at(prior.mean), PROFILE.first_token).tpot_s
        off = sd * np.array([1.0, -1.0, 1.0, -1.0, 1.0])
        made = [
            replace(run, row=replace(run.row, tpot_s=float(tpot)))
            for run, tpot in zip(few, exact * np.exp(off), strict=True)
        ]
        after = update_cell(prior, made, PROFILE, KNOWN).after
        return float(np.abs((after.mean - prior.mean) / np.sqrt(np.diag(prior.covariance))).max())

    assert moved_by(0.99 * KNOWN.row_sd) == 0.0
    little, much = moved_by(1.1 * KNOWN.row_sd), moved_by(4.0 * KNOWN.row_sd)
    assert 0.0 < little < much


def test_errors_are_of_runs_that_were_left_out(rows):
    """One run that contradicts the others counts with its whole error, though it moved the constants."""
    some = [r for r in rows if r.system == "h100_sxm" and "Llama-3.1-8B" in r.model][:6]
    some[0] = replace(some[0], tpot_s=5 * some[0].tpot_s)
    found = calibrate_own(some, [], PROFILE, KNOWN)
    before, after = found.tpot()
    assert before is not None
    assert after is not None
    assert found.after is not None
    assert found.after.tpot_s[0] < 0.5 * some[0].tpot_s
    assert f"{before.mape:.1%} as shipped, {after.mape:.1%} predicted by" in error_words(found)[0]


def test_one_run_is_used_and_not_scored(rows):
    row = next(r for r in rows if r.system == "h100_sxm" and "Llama-3.1-8B" in r.model)
    found = calibrate_own([row], [], PROFILE, KNOWN)
    assert found.after is None
    assert "cannot be predicted by others" in error_words(found)[0]
    own = own_profile(found, PROFILE, "own")
    assert own.held_out == PROFILE.held_out


def test_a_chip_of_one_run_is_left_out_of_the_scores(rows):
    some = [r for r in rows if r.system == "h100_sxm" and "Llama-3.1-8B" in r.model][:3]
    alone = next(r for r in rows if r.system == "b200_sxm" and r.prefill is None)
    found = calibrate_own([*some, alone], [], PROFILE, KNOWN)
    together = [r for r in some if sum(o.engine == r.engine for o in some) > 1]
    assert len(together) > 1
    for one in found.tpot():
        assert one is not None
        assert one.n == len(together)
        assert np.isfinite(one.mape)


def test_constants_of_the_first_token_are_own_where_they_predict_better(rows):
    """Runs whose first tokens are twice the shipped ones tell so; runs of mere noise do not."""
    runs = [
        run
        for run in runs_of(
            [row for row in rows if row.system == "h100_sxm" and row.engine == "vllm"][:30]
        )[0]
        if run.row.prefill is None
    ][:8]
    shipped = predict_under(runs, PROFILE)
    assert len(runs) == 8
    for factors, own in ((np.full(8, 2.0), True), (np.array([3.0, 1 / 3] * 4), False)):
        told = [
            replace(run.row, tpot_s=float(tpot), ttft_s=float(ttft * factor))
            for run, tpot, ttft, factor in zip(
                runs, shipped.tpot_s, shipped.ttft_s, factors, strict=True
            )
        ]
        cell = calibrate_own(told, [], PROFILE, KNOWN).cells[0]
        assert bool(cell.first_token) == own


def test_the_own_profile_replaces_its_cells_alone(rows):
    some = [r for r in rows if r.system == "h100_sxm" and "Llama-3.1-8B" in r.model][:5]
    engines = {row.engine for row in some}
    found = calibrate_own(some, [], PROFILE, KNOWN)
    own = own_profile(found, PROFILE, "own")
    for name, former in PROFILE.engines.items():
        for chip, values in former.chips.items():
            changed = own.engines[name].chips[chip] != values
            assert changed == (chip == "h100" and name in engines)
    assert own.default == PROFILE.default
    assert own.chips["b200"] == PROFILE.chips["b200"]
    assert own.chips["h100"] in [own.engines[name].chips["h100"] for name in engines]
    # what is written predicts as the calibration did, but for its rounding
    for one in found.cells:
        mine = [run for run in found.runs if run.row.engine == one.prior.engine]
        written = predict_under(mine, own)
        direct = predict(mine, one.pricing(), {**PROFILE.first_token, **one.first_token})
        assert written.tpot_s == pytest.approx(direct.tpot_s, rel=1e-3)
        assert written.ttft_s == pytest.approx(direct.ttft_s, rel=1e-3)


def test_a_parameter_at_its_limit_is_said():
    prior = prior_of(KNOWN, PROFILE, "h100", "vllm")
    prior.mean[[p.name for p in ALL].index("experts")] = 40.0
    parts = {part.name: part for part in moved(update_cell(prior, [], PROFILE, KNOWN))}
    assert parts["experts"].limit == 0.95
    assert parts["hbm"].limit is None
    assert parts["hbm"].low < parts["hbm"].value < parts["hbm"].high


def test_the_spread_between_deployments_is_found():
    """Groups whose additions were drawn with known spreads."""
    rng = np.random.default_rng(0)
    groups = [np.arange(20 * i, 20 * i + 20) for i in range(200)]
    slopes = rng.standard_normal((2, 4000))
    added = np.array([1.5, 0.2])[:, None] * rng.standard_normal((2, 200))
    errors = (slopes * np.repeat(added, 20, axis=1)).sum(axis=0)
    errors += 0.05 * rng.standard_normal(4000)
    spread, scatter = deviations(errors, slopes, groups)
    assert spread == pytest.approx([1.5, 0.25], rel=0.15)  # the small one is held a little
    assert 0.025 < scatter < 0.06


def test_an_update_of_linear_errors_is_the_closed_form():
    rng = np.random.default_rng(1)
    slopes = rng.standard_normal((12, 3))
    truth = np.array([0.5, -0.3, 0.1])
    before = Belief(np.zeros(3), np.eye(3), 0.05)
    found = update(before, lambda x: slopes @ (x - truth), lambda _: slopes, noise=0.05)
    closed = np.linalg.inv(np.eye(3) + slopes.T @ slopes / 0.05**2)
    assert found.mean == pytest.approx(closed @ (slopes.T @ slopes / 0.05**2) @ truth, abs=1e-3)
    assert found.covariance == pytest.approx(closed, rel=0.01)


def test_the_scatter_of_own_runs_is_found():
    rng = np.random.default_rng(2)
    slopes = rng.standard_normal((400, 2))
    noise = 0.2 * rng.standard_normal(400)
    found = update(
        Belief(np.zeros(2), np.eye(2), 0.05), lambda x: slopes @ x - noise, lambda _: slopes
    )
    assert found.row_sd == pytest.approx(0.2, rel=0.1)


def test_own_problem_batches_follow_the_shipped_constants(runs):
    prior = prior_of(KNOWN, PROFILE, "h200", "sglang")
    assert len(problem_of(runs, pricing_at(prior.mean)).batches) == len(runs)
    assert json.loads(KNOWN.model_dump_json())["row_sd"] == KNOWN.row_sd


def test_five_runs_of_a_left_out_system_predict_its_others_better(rows):
    """A small slice of ``python -m benchmarks.calibration left-out``."""
    dense = [r for r in rows if r.prefill is None and "Llama-3.1-70B" in r.model]
    fitted = [r for r in dense if r.system in ("h100_sxm", "b200_sxm")]
    own = [r for r in dense if r.system == "h200_sxm"]
    runs = runs_of([*fitted[::4], *own])[0]
    profile, known = without(runs, "system", "h200")
    assert "h200" not in profile.chips
    pools = defaultdict(list)
    for run in runs:
        if run.chip == "h200":
            pools[deployment_of(run)].append(run)
    rng = np.random.default_rng(6)
    draws = [
        one_draw("h200", pool, profile, known, rng)
        for pool in pools.values()
        if len(pool) >= 15
        for _ in range(3)
    ]
    assert len(draws) >= 3
    assert np.median([1 - draw.tpot[1] / draw.tpot[0] for draw in draws]) > 0
