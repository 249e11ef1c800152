"""What a request names beside what it brings is refused in the same words, whether or not it exists."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackfit.serve.worker import __name__ as worker
from topology.catalogue import data_dir

#: answers command lines in a folder as the process of a request does
_PROCESS = f"""
import json, os, sys
from pathlib import Path
from {worker} import answer, close
folder = Path.cwd()
close(folder)
print(json.dumps([json.loads(answer(words)) for words in json.loads(sys.argv[1])]))
"""


def ways(path: Path, folder: Path) -> list[str]:
    """Names of one file."""
    return [
        str(path), os.path.relpath(path, folder), f"{path.parent}/./{path.name}",
        f"/proc/self/root{path}", str(path.with_suffix(".py")), str(path.parent),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """Answers to questions that name a file that exists, and to the same of one that does not."""
    folder, other = tmp_path_factory.mktemp("request"), tmp_path_factory.mktemp("other")
    chip = (data_dir("chips") / "h100.yaml").read_text()
    there = other / "there"
    there.mkdir()
    (there / "file.yaml").write_text(chip)
    (there / "file.py").write_text("secret = 1")
    (there / "file.csv").write_text("t_s,input_tokens,output_tokens\n0,10,10\n")
    spec = yaml.safe_load((data_dir("clusters") / "hgx-h100.yaml").read_text())
    (domain,) = spec["domains"]
    lines = []
    for name in ("there", "fails"):
        path = other / name / "file.yaml"
        rows = [[{**domain["chips"][0], "chip": way}] for way in ways(path, folder)]
        spec["domains"] = [{**domain, "chips": chips} for chips in rows]
        scenario = {"model": "llama-3.1-8b", "cluster": f"{name}-rack.yaml", "workload": "chat"}
        trace = {"traffic": {"trace": str(path.with_suffix(".csv"))}}
        files = {
            f"{name}-rack.yaml": yaml.safe_dump(spec), f"{name}.yaml": yaml.safe_dump(scenario),
            f"{name}-plain.yaml": yaml.safe_dump(scenario | {"cluster": "hgx-h100"}),
            f"{name}-trace.yaml": yaml.safe_dump(trace),
            f"{name}.sh": f"trtllm-serve openai/gpt-oss-20b --config {path}\n",
        }  # fmt: skip
        for file, content in files.items():
            (folder / file).write_text(content)
        lines += [
            ["solve", f"{name}.yaml", "--json"],
            ["solve", f"{name}-plain.yaml", f"--traffic={name}-trace.yaml", "--json"],
            ["evaluate", f"{name}.sh", "--from=trtllm", f"--scenario={name}-plain.yaml", "--json"],
        ]
    process = [sys.executable, "-c", _PROCESS, json.dumps(lines)]
    done = subprocess.run(process, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return [answers[:3], answers[3:]]


def test_no_answer_tells_whether_a_file_exists(said: list[list[dict[str, Any]]]) -> None:
    there, fails = (json.dumps(answers) for answers in said)
    assert there.replace("there", "fails") == fails


def test_every_way_to_name_it_is_refused(said: list[list[dict[str, Any]]]) -> None:
    for answers in said:
        assert [one["error"]["kind"] for one in answers] == ["bad_input"] * 3
        assert len(answers[0]["error"]["problems"]) == len(ways(Path("a/b"), Path()))
