"""Which of two systems is faster, and by how much: orders that a model must not get backwards."""

from collections import defaultdict
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from costmodel.measured.fitting.calibration import shipped_rows
from costmodel.measured.predict import predict_under
from costmodel.measured.runs import runs_of
from costmodel.measured.scores import possible
from costmodel.question.profile import load_profile
from rackfit.studies.systems.measured import SPECULATIVE, pairs, plain_ratio, plain_speeds

PUBLISHED = Path(__file__).parents[2] / "docs" / "published.md"
#: DeepSeek-R1 in FP4, 1k prompts and answers, prefill apart, MTP, at 125 tokens/s per user: total
#: tokens/s per GPU, newer system first. Source: InferenceX (Apache-2.0), 2026-08.
MEASURED = (4130, 941)
PAIR = pairs()["NVL72 over nodes"]


def test_a_rack_is_above_nodes_at_125_tokens_per_second_of_each_user():
    """One draft, accepted as the DeepSeek-V3 report says (85 to 90 %): measured 4.39 times, within 25 %.

    Documented disagreement: since the profile's last fit both systems are priced slower than they ran; why is
    not known.
    """
    assert SPECULATIVE == {"draft_tokens": 1, "acceptance": 0.85}
    found = plain_speeds(PAIR)
    assert found[0] / found[1] == pytest.approx(PAIR.ratio, rel=0.25)
    assert MEASURED[0] / MEASURED[1] == pytest.approx(PAIR.ratio, rel=0.01)
    slower = [1 - one / ran for one, ran in zip(found, MEASURED, strict=True)]
    assert min(slower) > 0
    assert f"by up to {max(slower):.0%}, since the last fit" in PUBLISHED.read_text()


def test_a_rack_stays_above_nodes_with_three_drafts_but_less_far():
    """Documented disagreement: how many tokens were drafted is not published. With three of them (2.5 tokens
    per pass) the order holds, the ratio does not.
    """
    ratio = plain_ratio(PAIR, {"draft_tokens": 3, "acceptance": 0.69})
    assert 1 < ratio < 0.75 * PAIR.ratio
    assert f"{ratio:.1f} times: the order holds" in PUBLISHED.read_text()


def crossing(batches, times, target):
    """Batch at which a curve crosses a time, between its points (log-log); ``None`` if it does not."""
    order = np.argsort(batches)
    x, y = np.log(np.array(batches)[order]), np.log(np.array(times)[order])
    above = np.flatnonzero(y >= np.log(target))
    if not len(above) or above[0] == 0:
        return None
    place = above[0]
    share = (np.log(target) - y[place - 1]) / (y[place] - y[place - 1])
    return float(np.exp(x[place - 1] + share * (x[place] - x[place - 1])))


@pytest.fixture(scope="module")
def curves():
    """InferenceX curves of aggregated workers: users, measured and predicted TPOT, by all that is fixed."""
    rows, _ = shipped_rows()
    swept = [
        row
        for row in rows
        if row.prefill is None and not row.fixed_lengths and row.decode.attention_dp == 1
    ]
    names = ("llama-3.1-70b", "gpt-oss-120b", "DeepSeek")
    runs, _ = runs_of(
        [row for row in swept if any(name.lower() in row.model.lower() for name in names)]
    )
    runs = [run for run, good in zip(runs, possible(runs), strict=True) if good]
    found = predict_under(runs, load_profile("calibrated"))
    result = defaultdict(dict)
    for run, predicted in zip(runs, found.tpot_s, strict=True):
        row = run.row
        key = (
            row.model,
            row.system,
            row.engine,
            row.precision,
            row.decode,
            row.input_tokens,
            row.output_tokens,
        )
        result[key].setdefault(row.concurrency, []).append((row.tpot_s, float(predicted)))
    return {
        key: [(users, *np.mean(points, axis=0)) for users, points in sorted(curve.items())]
        for key, curve in result.items()
        if len(curve) >= 4
    }


@pytest.mark.slow
@pytest.mark.parametrize("target_s", [0.008, 0.012, 0.020])
def test_batch_at_which_each_curve_crosses_a_target(curves, target_s):
    """Where both cross: the batch within 25 % in the median, curves in order (rank correlation 0.86 to 0.95)."""
    pairs = []
    for curve in curves.values():
        users, measured, predicted = zip(*curve, strict=True)
        both = (crossing(users, measured, target_s), crossing(users, predicted, target_s))
        if None not in both:
            pairs.append(both)
    assert len(pairs) >= 20
    measured, predicted = np.array(pairs).T
    assert median(np.abs(predicted / measured - 1)) <= 0.25
    ranks = [np.argsort(np.argsort(one)) for one in (measured, predicted)]
    assert np.corrcoef(ranks)[0, 1] >= 0.85
