"""A study killed half-way goes on without repeating points; a Dask or Ray cluster gives the same table."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rackfit.cli.commands.study import study_command
from rackfit.studies import point as point_module
from rackfit.studies.backends import Backend
from rackfit.studies.base import Options
from rackfit.studies.run import study
from topology.errors import InstanceError

BASE = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": "chat"}
OVER: dict[str, list[Any]] = {
    "slo.tpot": [0.01, 0.02, 0.03, 0.05, 0.1],
    "workload.output_tokens": [100, 200],
}
OPTIONS = Options(gap=0.05)
SCRIPT = """
import json, sys
from pathlib import Path
from rackfit.studies.base import Options
from rackfit.studies.run import study
base, over, cache = json.loads(sys.argv[1])
study("grid", base, over=over, cache=Path(cache), options=Options(gap=0.05))
"""


def test_killed_half_way_it_repeats_no_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", SCRIPT, json.dumps([BASE, OVER, str(tmp_path)])]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while len(list(tmp_path.glob("*.json"))) < 3 and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    _, told = process.communicate()
    kept = len(list(tmp_path.glob("*.json")))
    assert kept >= 3, told.decode()
    assert process.returncode == -signal.SIGKILL  # it was not done yet

    asked = []
    real = point_module.search
    monkeypatch.setattr(point_module, "search", lambda *a, **k: (asked.append(1), real(*a, **k))[1])
    result = study("grid", BASE, over=OVER, cache=tmp_path, options=OPTIONS)
    assert result.reused == kept
    assert len(asked) == len(result.rows) - kept
    assert result.rows == study("grid", BASE, over=OVER, options=OPTIONS).rows


@pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="needs the extra: rackfit[dask]"
)
@pytest.mark.filterwarnings("ignore")  # of Dask's own
def test_a_local_dask_cluster_gives_the_same_table() -> None:
    from distributed import Client, LocalCluster

    over = {"slo.tpot": [0.0005, 0.02, 0.05], "workload.output_tokens": [100, 200]}
    alone = study("grid", BASE, over=over, options=OPTIONS)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        spread = study("grid", BASE, over=over, options=OPTIONS, jobs=2, backend="dask")
    assert spread.rows == alone.rows
    assert spread.conclusion == alone.conclusion


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
@pytest.mark.filterwarnings("ignore")  # of Ray's own
@pytest.mark.parametrize("jobs", [1, 2, None])
def test_a_local_ray_cluster_gives_the_same_table(jobs: int | None) -> None:
    import ray

    over = {"slo.tpot": [0.0005, 0.02, 0.05], "workload.output_tokens": [100, 200]}
    alone = study("grid", BASE, over=over, options=OPTIONS)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        spread = study("grid", BASE, over=over, options=OPTIONS, jobs=jobs, backend="ray")
    finally:
        ray.shutdown()
    assert spread.rows == alone.rows
    assert spread.conclusion == alone.conclusion


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_a_backend_that_is_missing_is_named_before_anything_runs(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("distributed", "ray", "ray.util.joblib"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(point_module, "search", lambda *a, **k: pytest.fail("asked a point"))
    with pytest.raises(InstanceError, match=f"--backend {backend}.*rackfit\\[{backend}\\]"):
        study("grid", BASE, over=OVER, options=OPTIONS, backend=backend)


def test_ctrl_c_says_how_far_a_study_came(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def stopped(*_: Any, on_point: Any, **__: Any) -> None:
        on_point(2, 5, {"error": ""}, False)
        raise KeyboardInterrupt

    monkeypatch.setattr("rackfit.studies.run.study", stopped)
    with pytest.raises(KeyboardInterrupt):
        study_command("frontier", cache=tmp_path)
    said = capsys.readouterr().err
    assert "stopped: 2 of 5 points are done; the same command goes on from there" in said
