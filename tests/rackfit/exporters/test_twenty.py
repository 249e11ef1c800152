"""The twenty deployments are questions that can be asked, and a line of the page comes from an answer."""

from __future__ import annotations

from pathlib import Path

from benchmarks.engines.deployments import answer, deployments
from benchmarks.engines.page import PAGE, largest_fraction, row, tables
from benchmarks.engines.reading import device_of
from costmodel.question.engine_files import engine_names


def test_every_row_is_a_question(tmp_path: Path) -> None:
    rows = deployments()
    assert len({one.name for one in rows}) == len(rows) == 20
    for one in rows:
        instance = one.instance(tmp_path)
        assert instance.engine is not None
        assert instance.engine.engine in engine_names()
        assert device_of(one) == instance.cluster.usable[0].chip.name


def test_a_line_of_the_page_comes_from_an_answer(tmp_path: Path) -> None:
    one = next(one for one in deployments() if one.name == "l8b-vllm")
    document = answer(one, tmp_path)
    line = row(one, tmp_path)
    cost = document["evaluation"]["usd_per_m_output_tokens"]
    assert f"| {one.before:.3f} | {cost:.3f} | 0.0 % |" in line
    assert 0.8 < largest_fraction(one, tmp_path) <= 0.95
    found = tables(tmp_path)
    assert line in found["twenty"]
    assert "1 of 20 questions were solved" in found["twenty"]
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"<!-- {name} -->" in text for name in (*found, "reads"))
