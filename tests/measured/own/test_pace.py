"""The pace: one factor on all times, within what the hardware can do."""

import numpy as np
import pytest

from costmodel.measured.fitting.terms import term_table
from costmodel.measured.own.calibration import pricing_at, update_cell
from costmodel.measured.own.pace import PACE, own_values
from costmodel.measured.own.prior import prior_of, shipped_known
from costmodel.measured.own.profile import efficiency_of, moved
from costmodel.measured.predict import predict, predict_under
from costmodel.measured.runs import runs_of
from costmodel.question.profile import Efficiency, EngineConstants, load_profile
from tests.measured.own.test_own_runs import made_with

pytest.importorskip("scipy")

PROFILE, KNOWN = load_profile("calibrated"), shipped_known()
PRIOR = prior_of(KNOWN, PROFILE, "h100", "vllm")


@pytest.fixture(scope="module")
def runs(rows):
    return runs_of([row for row in rows if row.system == "h100_sxm" and row.engine == "vllm"][::8])[
        0
    ]


def at_pace(factor):
    return np.append(PRIOR.mean[:-1], np.log(factor))


def test_a_pace_multiplies_times(runs):
    """All of it but the links' latency, which no engine sets."""
    plain, slower = (predict(runs, pricing_at(at_pace(p)), {}).tpot_s for p in (1.0, 1.2))
    assert (slower / plain > 1.18).all()
    assert (slower / plain <= 1.2 + 1e-9).all()


def test_no_pace_is_quicker_than_the_hardware():
    fast = own_values(at_pace(0.3)[:, None])
    for name in ("hbm", "kv", "experts", "compute", "all_reduce", "all_to_all"):
        assert 0 < fast[name][0] <= 1
    assert fast["hbm"][0] == 1


def test_times_never_fall_with_the_batch_at_any_pace(runs):
    passes = [
        max(runs, key=lambda run: run.most).passes(float(n)).decode for n in (1, 2, 8, 64, 256)
    ]
    table = term_table(passes)
    for factor in (0.5, 0.8, 1.0, 1.7):
        constants = pricing_at(at_pace(factor))(np.zeros(len(passes), dtype=int))
        assert (np.diff(table.seconds(constants)) > 0).all()


def test_what_is_written_is_what_was_fitted(runs):
    """The profile's constants hold the pace; a run costs the same by either."""
    scales = at_pace(1.1)
    own = PROFILE.engines["vllm"]
    values = efficiency_of(scales, own.chips["h100"])
    assert isinstance(values, Efficiency)
    assert values.hbm == pytest.approx(own.chips["h100"].hbm / 1.1, rel=1e-3)
    chips = EngineConstants(default=own.default, chips={**own.chips, "h100": values})
    profile = PROFILE.model_copy(update={"engines": {**PROFILE.engines, "vllm": chips}})
    assert predict_under(runs, profile).tpot_s == pytest.approx(
        predict(runs, pricing_at(scales), {}).tpot_s, rel=2e-3
    )


def test_a_deployment_that_is_slower_throughout_is_told_by_its_pace(runs):
    found = moved(update_cell(PRIOR, made_with(runs, at_pace(1.25), 0.02), PROFILE, KNOWN))
    pace = found[-1]
    assert pace.name == PACE
    assert pace.low < 1.25 < pace.high * 1.05
    assert pace.value > 1.1
    assert pace.told > 0.3
