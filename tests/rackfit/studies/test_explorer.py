"""Sliders of a page: only over whole grids, in the order of the axes, with names as text."""

from __future__ import annotations

import json
import re

from rackfit.studies.base import Row
from rackfit.studies.explorer import explorer

BAD = "</script><script>alert(1)</script>"


def row(cluster: str, target: float) -> Row:
    return {"cluster": cluster, "slo.tpot": target, "status": "optimal", "gap": 0.0, "error": "",
            "usd_per_m_output_tokens": target + len(cluster)}  # fmt: skip


def test_a_part_of_a_grid_has_no_sliders() -> None:
    axes = {"cluster": ["a", "b"], "slo.tpot": [0.1, 0.02]}
    whole = [row(cluster, target) for cluster in axes["cluster"] for target in (0.1, 0.02)]
    assert explorer(axes, whole)
    assert explorer(axes, whole[:3]) == ""
    assert explorer(axes, [*whole[:3], whole[0]]) == ""
    assert explorer({}, [row("a", 0.1)]) == ""


def test_numbers_are_ordered_and_points_follow() -> None:
    axes = {"cluster": ["bb", "a"], "slo.tpot": [0.1, 0.02]}
    rows = [row(str(cluster), target) for cluster in axes["cluster"] for target in (0.1, 0.02)]
    text = explorer(axes, rows)
    told = json.loads(re.findall(r'<script type="application/json">(.*?)</script>', text)[0])
    assert told["axes"][1] == {"name": "slo.tpot", "values": [0.02, 0.1], "nested": True}
    costs = [point["usd_per_m_output_tokens"] for point in told["points"]]
    assert costs == [2.02, 2.1, 1.02, 1.1]
    assert 'type="range" min="0" max="10"' in text


def test_hostile_names_stay_text() -> None:
    axes = {"cluster": [BAD, "b"], "slo.tpot": [0.1, 0.02]}
    rows = [row(str(cluster), target) for cluster in axes["cluster"] for target in (0.1, 0.02)]
    text = explorer(axes, rows)
    assert "alert(1)</script>" not in text
    assert text.count("<script") == text.count("</script>") == 2
    told = json.loads(re.findall(r'<script type="application/json">(.*?)</script>', text)[0])
    assert told["axes"][0]["values"][0] == BAD
