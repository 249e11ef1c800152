"""A worker process that is killed costs at most its own point, never an answer or a file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rackfit.studies.point import Options
from rackfit.studies.run import study
from rackfit.studies.workers import in_processes


def test_what_kills_its_process_is_given_up_and_the_rest_answered() -> None:
    def work(number: int) -> int:
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return number * number

    assert dict(in_processes(work, range(5), jobs=2)) == {0: 0, 1: 1, 2: None, 3: 9, 4: 16}


def test_a_lost_point_is_a_row_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    base = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": "chat"}

    def all_lost(*_: object) -> list[tuple[int, None]]:
        return [(0, None)]

    monkeypatch.setattr("rackfit.studies.backends.in_processes", all_lost)
    (row,) = study("grid", base, over={"slo.tpot": [0.05]}, jobs=2, options=Options()).rows
    assert row["status"] == "internal"
    assert "killed or ran out of memory" in row["error"]


def children(pid: int) -> list[int]:
    """Processes started by ``pid``."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_worker(pid: int) -> bool:
    """Whether a process of the pool works, and is not the one that cleans up after it."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"popen_loky" in words


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds workers through /proc")
def test_a_killed_worker_of_a_study_leaves_every_answer_and_whole_files(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("{model: llama-3.1-8b, cluster: hgx-h100, workload: chat}")
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "rackfit", "study", "grid", str(scenario), "--over",
         "slo.tpot=0.02,0.03,0.04,0.05", "--jobs", "2", "--fresh", "--out", str(out)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])},
    )  # fmt: skip
    killed = 0
    while process.poll() is None and not killed:
        for child in children(process.pid):
            if is_worker(child):
                os.kill(child, signal.SIGKILL)
                killed = child
                break
        time.sleep(0.02)
    _, stderr = process.communicate(timeout=240)
    assert killed, "no worker was seen"
    assert process.returncode == 0, stderr
    assert "Traceback" not in stderr
    document = json.loads((out / "grid.json").read_text())
    assert len(document["rows"]) == 4
    assert all(row["error"] == "" for row in document["rows"])
    assert sorted(path.name for path in out.iterdir()) == [
        "grid.csv", "grid.html", "grid.json", "grid.svg",
    ]  # fmt: skip


MADE = """
import os, sys
made = []
sys.addaudithook(lambda event, values: made.append(str(values[0])) if event == "os.mkdir" else None)
from rackfit.studies.workers import in_processes
assert sorted(in_processes(abs, [-1, 2], 2)) == [(0, 1), (1, 2)]
print(*made, sep="\\n")
"""


def test_processes_make_folders_where_the_person_wants_them(tmp_path: Path) -> None:
    words = [sys.executable, "-c", MADE]
    surroundings = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(words, env=surroundings, capture_output=True, text=True, check=True)
    assert all(line.startswith(str(tmp_path)) for line in done.stdout.split())
