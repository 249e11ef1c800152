"""Figures and words say what the tables say: both are made again from the written table alone."""

from __future__ import annotations

import csv
import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from asking import ask

from rackfit.figures.drawing import chart_spec, chart_svg
from rackfit.studies.base import Row, Study, solved
from rackfit.studies.registry import find_study, studies

DENSE = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": "chat"}
MIXED = {"model": "qwen3-30b-a3b", "cluster": "hgx-h100", "workload": "chat"}
#: a small table of each study: axes and scenario
SMALL: dict[str, tuple[dict[str, list[Any]], dict[str, Any]]] = {
    "batch": ({"limits.max_sequences_per_rank": [4, 64], "board.batch": [72, 7200]}, DENSE),
    "buy": ({"mean_rate": [10.0], "crossing": ["rented_low"], "api_usd_per_request": [1e-4]}, DENSE),
    "compare": ({"cluster": ["hgx-h100", "hgx-h200"]}, DENSE),
    "context": (
        {"model": ["llama-3.1-8b"], "workload.input_tokens": [1000, 4000],
         "board.context": [1000, 100_000]}, DENSE,
    ),
    "failures": (
        {"solved_again": [True, False], "failed": ["none", "r0g7"]}, DENSE | {"slo": {"tpot": 0.02}},
    ),
    "frontier": ({"cluster": ["hgx-h100"], "slo.tpot": [0.02, 0.05]}, DENSE),
    "grid": ({"slo.tpot": [0.02, 0.05]}, DENSE),
    "pipeline": ({"stages": [1, 2], "board.stages": [1, 2]}, {}),
    "rack-boundary": (
        {"one_copy": [True, False], "ratio": [8], "domains": [1, 2], "oversubscription": []}, {},
    ),
    "scale-up": ({"board.chips": [8, 72]}, {}),
    "sensitivity": ({"unchanged": [True], "parameter": ["usd_per_hour"], "factor": [0.8, 1.2]}, DENSE),
    "sparsity": ({"top_k": [4], "experts": [64, 128]}, MIXED),
    "training-balance": ({"share": ["1:1:1"], "days": [30, 60]}, {}),
}  # fmt: skip


def _ends(found: Study) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """The first and the last value of each axis that a study asks the solver about."""
    named = found.axes({**found.default, **found.fixed})
    blocks = [named] if isinstance(named, dict) else named
    return {key: [values[0], values[-1]] for block in blocks for key, values in block.items()}, {}


#: every other study that asks the solver alone
SMALL |= {
    name: _ends(found)
    for name, found in studies().items()
    if name not in SMALL and found.answer is None
}
#: what the dots of each study's figures are: column, and the factor that the axis has
DOTS = {
    "context": [("usd_per_m_output_tokens", 1.0)],
    "frontier": [("usd_per_m_output_tokens", 1.0)],
    "pipeline": [
        ("weight_bytes_per_chip", 1e-9), ("kv_bytes_per_chip", 1e-9), ("tpot_s", 1e3),
        ("stages_s", 1e3),
    ],
    "rack-boundary": [("decode_tokens_per_s_per_gpu", 1.0)],
    "scale-up": [("weights_s", 1e3)],
    "sparsity": [("usd_per_m_output_tokens", 1.0)],
    "training-balance": [("over_training", 1.0)],
}  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies")
    for name, (over, base) in SMALL.items():
        result = ask(name, over, **base)
        assert solved(result.rows), (name, result.failed)
        result.write(folder)
    return folder


def document(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return found


@pytest.mark.parametrize("name", sorted(SMALL))
def test_figures_and_words_come_from_the_written_table(name: str, written: Path) -> None:
    found, data = find_study(name), document(written, name)
    rows: list[Row] = data["rows"]
    for number, chart in enumerate(found.figures(rows), start=1):
        ending = ".svg" if number == 1 else f"-{number}.svg"
        assert chart_svg(chart) == (written / f"{name}{ending}").read_text()
    said = found.conclude(rows)
    assert said
    assert data["conclusion"][: len(said)] == said


@pytest.mark.parametrize("name", sorted(SMALL))
def test_every_point_and_bar_says_its_numbers_when_pointed_at(name: str, written: Path) -> None:
    for chart in find_study(name).figures(document(written, name)["rows"]):
        spec = chart_spec(chart)
        marks = {layer["mark"]["type"]: layer for layer in spec["layer"]}
        seen = marks["bar"] if chart.kind == "bar" else marks["point"]
        titles = [tip["title"] for tip in seen["encoding"]["tooltip"]]
        assert titles[:3] == ["series", chart.x_label, chart.y_label]
        looks = {row["look"] for row in spec["datasets"]["rows"]}
        hidden = seen.get("transform", [])  # lines beside dots: roofs and diagonals
        assert hidden == [] or (
            hidden == [{"filter": "datum.look != 'line'"}] and looks != {"line"}
        )


@pytest.mark.parametrize("name", sorted(SMALL))
def test_csv_and_json_hold_the_same_rows(name: str, written: Path) -> None:
    rows = document(written, name)["rows"]
    with (written / f"{name}.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(rows)
    for line, row in zip(table, rows, strict=True):
        for key, value in row.items():
            assert line[key] == ("" if value is None else str(value))


@pytest.mark.parametrize("name", ["frontier", "grid"])
def test_sliders_hold_the_cells_of_the_csv(name: str, written: Path) -> None:
    page = (written / f"{name}.html").read_text()
    section = page.split('<section class="explore">')[1]
    found = re.search(r'<script type="application/json">(.*?)</script>', section)
    assert found
    told = json.loads(found[1])
    with (written / f"{name}.csv").open() as file:
        table = list(csv.DictReader(file))
    names = [axis["name"] for axis in told["axes"]]
    places = list(product(*(axis["values"] for axis in told["axes"])))
    assert len(places) == len(told["points"]) == len(table) >= 2
    by_place = {tuple(line[name] for name in names): line for line in table}
    for place, point in zip(places, told["points"], strict=True):
        line = by_place[tuple(map(str, place))]
        assert {"status", "bound_usd_per_m_output_tokens", "gap", "digest"} <= set(point)
        for key, value in point.items():
            assert line[key] == ("" if value is None else str(value))


@pytest.mark.parametrize("name", sorted(DOTS))
def test_every_dot_is_a_cell_of_the_table(name: str, written: Path) -> None:
    rows = solved(document(written, name)["rows"])
    cells = {
        f"{row[column] * factor:.4g}"
        for row in rows
        for column, factor in DOTS[name]
        if column in row
    }
    drawn = []
    for path in written.glob(f"{name}*.svg"):
        drawn += re.findall(
            r'aria-label="[^"]*: [^"]*, ([^",;]+)[^"]*"[^>]*aria-roledescription="point"',
            path.read_text(),
        )
    assert len(drawn) >= 2
    assert set(drawn) <= cells


@pytest.mark.parametrize("name", sorted(SMALL))
def test_words_follow_the_table(name: str, written: Path) -> None:
    """Other numbers, other words: nothing in a conclusion is typed in."""
    found, rows = find_study(name), document(written, name)["rows"]
    axes = set(document(written, name)["axes"])
    numbered = [sentence for sentence in found.conclude(rows) if re.search(r"\d", sentence)]
    assert numbered
    changed = [
        {
            key: value * (1.5 + index)
            if isinstance(value, float) and key not in axes and key not in ("gap", "utilisation")
            else value
            for key, value in row.items()
        }
        for index, row in enumerate(rows)
    ]
    after = found.conclude(changed)
    assert after != found.conclude(rows)
