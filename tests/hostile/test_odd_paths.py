"""Paths that nothing can have are one message in every command that takes one."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from run_cli import asked

from costmodel.measured.rows import read_measured
from costmodel.measured.runs import runs_of
from rackfit.documents.output import write_whole
from rackfit.exporters.export import write_files
from topology.catalogue import data_dir
from topology.errors import InstanceError

QUESTION = "--model qwen3-30b-a3b --cluster hgx-h100"
LINES = (
    "place X --gpus 8 --slots 72",
    "place gpt-oss-20b --gpus 8 --slots 72 --coactivation X",
    "place gpt-oss-20b --gpus 8 --slots 72 --current X",
    f"evaluate X --from vllm {QUESTION}",
    "evaluate X",
    "new X",
    "model X",
    "solve X",
    f"solve {QUESTION} --profile X",
    f"solve {QUESTION} --workload X",
    f"solve {QUESTION} --expert-load X",
    f"solve {QUESTION} --engine X",
    f"solve {QUESTION} --out X",
    "size --buy X --rate 1 --model qwen3-30b-a3b",
    "replay X --rate 1",
    "report X",
    "export X --to json",
    "diff X X",
    "validate X",
    "validate --load X",
    "calibrate X",
    "study grid X",
    "study grid --out X",
    "catalogue clusters --picture X",
    "collective all-reduce --cluster X --bytes 1",
)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("name", ["x" * 3000, "pipe.yaml"])
def test_a_path_that_nothing_can_have_is_one_message(
    line: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.yaml")
    code, said = asked(*(name if word == "X" else word for word in line.split()))
    assert code == 2, said
    assert said
    assert [path.name for path in tmp_path.iterdir()] == ["pipe.yaml"]


def test_exports_go_to_a_path_that_can_be(tmp_path: Path) -> None:
    for name in ("x" * 3000, "x" * 3000 + ".json", "é" * 200 + ".dot"):
        with pytest.raises(InstanceError, match="name too long"):
            write_files({"a": "1"}, tmp_path / name)


def test_measured_rows_of_no_measure_are_left_out_with_the_reason(tmp_path: Path) -> None:
    lines = gzip.decompress((data_dir("measured") / "silicon.csv.gz").read_bytes()).decode()
    head, row, *_ = lines.splitlines()
    columns = head.split(",")
    cells = row.split(",")
    for name in ("osl", "mean_osl"):
        if name in columns:
            cells[columns.index(name)] = "2147483647"
    write_whole(f"{head}\n{','.join(cells)}\n", tmp_path / "m.csv")
    rows, skipped = read_measured(tmp_path / "m.csv")
    _, unpriced = runs_of(rows)
    assert "output_tokens" in [*skipped, *unpriced][0].reason
