"""The twenty deployments are questions that can be asked, and a line of the page comes from an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.engines.deployments import answer, deployments
from benchmarks.engines.page import PAGE, largest_fraction, row, tables
from benchmarks.engines.reading import device_of, files_summary
from benchmarks.engines.trtllm_files import read_files
from costmodel.question.engine_files import engine_names
from rackfit.exporters.export import write_files
from tests.rackfit.exporters.conftest import exported, solved


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


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("engine-decode", "backend: WIDEEP", "backend: FAST", "moe_config.backend: 'FAST' is none of"),
        ("engine-decode", "gpus_per_node:", "gpus_a_node:", "gpus_a_node: no such field"),
        ("engine-decode", "moe_tensor_parallel_size: 1", "moe_tensor_parallel_size: 2", "experts x tensor"),
        ("engine-prefill", "max_num_tokens:", "max_num_tokens: 1 #", "max_batch_size above max_num_tokens"),
        ("disaggregated", "num_instances: ", "num_instances: 9", "urls for 9"),
        ("commands.sh", "--host 0.0.0.0", "--hosts 0.0.0.0", "--hosts is not an option of"),
        ("commands.sh", "-n 6 --host", "-n 5 --host", "ranks for tensor x pipeline"),
    ],
)  # fmt: skip
def test_files_of_tensorrt_llm_are_read_beside_its_facts(
    tmp_path: Path, file: str, old: str, new: str, said: str
) -> None:
    question = ("qwen3-235b-a22b", "hgx-h200@2")
    instance = solved(*question).instance
    files = exported(*question, "trtllm").files
    write_files(files, tmp_path / "one")
    read = read_files(instance, tmp_path / "one")
    assert read["problems"] == []
    assert read["fields"] > 20
    assert files_summary([read])[-1].endswith("| 0 |")
    changed = next(path for path in (tmp_path / "one").iterdir() if path.name.startswith(file))
    text = changed.read_text()
    assert old in text
    changed.write_text(text.replace(old, new))
    problems = read_files(instance, tmp_path / "one")["problems"]
    assert any(said in problem for problem in problems), problems
