"""What replicas over racks save: figures from three answers, words from the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from costmodel.question.instance import Instance, Scenario, resolve_instance
from rackfit.studies.base import Options, Row
from rackfit.studies.questions.rack_boundary import STUDY
from rackfit.studies.run import StudyResult
from rackfit.studies.systems import second_rack

ASKED = Scenario(model="deepseek-v3", cluster="nvl-72@8", workload="chat")


def compared(monkeypatch: pytest.MonkeyPatch, *found: tuple[float, float, bool]) -> Row:
    """The row of one rack, racks on their own, racks together: cost, bound, whether a replica is over racks."""
    answers = iter(
        second_rack._Best(usd, bound, {"over_racks": over}) for usd, bound, over in found
    )
    asked: list[tuple[Any, ...]] = []

    def best(instance: Instance, *how: Any) -> second_rack._Best:
        asked.append(how[:3])
        return next(answers)

    monkeypatch.setattr(second_rack, "_best", best)
    row = second_rack.second_rack(resolve_instance(ASKED), 2, 8.0, Options())
    assert asked == [(1, None, 1), (2, 8.0, 1), (2, 8.0, 2)]
    return row


def test_savings_lie_between_what_bounds_prove(monkeypatch: pytest.MonkeyPatch) -> None:
    row = compared(monkeypatch, (1.1, 1.09, False), (1.0, 0.99, False), (0.9, 0.891, True))
    assert row["over_racks"]
    assert row["saved"] == pytest.approx(0.1)
    assert row["saved_at_least"] == pytest.approx(1 - 0.9 / 0.99)
    assert row["saved_at_most"] == pytest.approx(1 - 0.891)
    assert row["gap"] == pytest.approx(1 / 0.99 - 1)


def test_one_rack_twice_is_an_answer_on_two(monkeypatch: pytest.MonkeyPatch) -> None:
    row = compared(monkeypatch, (1.0, 0.99, False), (1.4, 0.99, False), (1.2, 0.99, True))
    assert (row["usd_inside_racks"], row["usd_over_racks"]) == (1.0, 1.0)
    assert not row["over_racks"]
    assert row["saved"] == row["saved_at_least"] == 0
    assert row["gap"] == pytest.approx(1 / 0.99 - 1)


def test_a_model_that_no_rack_holds_has_no_saving(monkeypatch: pytest.MonkeyPatch) -> None:
    none = (float("inf"), float("inf"), False)
    row = compared(monkeypatch, none, none, (1.0, 0.995, True))
    assert row["usd_inside_racks"] is None
    assert "saved" not in row
    assert row["gap"] == pytest.approx(1 / 0.995 - 1)


def test_words_tell_what_is_proven_from_what_is_open() -> None:
    def row(tpot: float, saved: float, least: float, most: float) -> Row:
        return {
            "error": "", "model_name": "m", "oversubscription": 8, "slo.tpot": tpot, "gap": 0.004,
            "saved": saved, "saved_at_least": least, "saved_at_most": most,
        }  # fmt: skip

    rows = [row(0.02, 0.05, 0.04, 0.06), row(0.03, 0.0, 0.0, 0.005), row(0.05, 0.01, 0.0, 0.02)]
    assert STUDY.conclude(rows) == [
        "Replicas over two racks save, proven: m at 20 ms, 8:1 (4.0 to 6.0%).",
        "They are proven to save less than 1%: m at 30 ms, 8:1 (0.0 to 0.5%).",
        "Open: m at 50 ms, 8:1 (0.0 to 2.0%).",
        "Widest gap of these 3 comparisons: 0.40%.",
    ]
    (chart,) = STUDY.figures([{**one, "assumed": "", "price_basis": ""} for one in rows])
    assert chart.kind == "bar"  # what saves nothing stays visible beside what saves nothing either
    assert [(series.name, point) for series in chart.series for point in series.points] == [
        ("8:1", ("m at 20 ms", 5.0)), ("8:1", ("m at 30 ms", 0.0)), ("8:1", ("m at 50 ms", 1.0)),
    ]  # fmt: skip


def test_a_point_that_is_not_settled_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    row = compared(monkeypatch, (1.0, 0.9, False), (1.0, 0.9, False), (1.0, 0.9, True))
    asked = {
        "error": "",
        "status": "computed",
        "cluster_name": "nvl-72@8",
        "model_name": "deepseek-v3",
    }
    place = {"model": "deepseek-v3", "slo.tpot": 0.015, "oversubscription": 8}
    found = StudyResult(
        replace(STUDY, conclude=lambda rows: []),
        {},
        {key: [value] for key, value in place.items()},
        ({**asked, **place, **row},),
        0,
    )
    assert (
        "Not settled: model deepseek-v3, slo.tpot 0.015, oversubscription 8, "
        "at most 11.2% above the least possible cost." in found.conclusion
    )
