"""Slurm's job and task scripts, run with a stand-in for ``srun``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from small_layouts import exported, question, server

from rackfit.exporters.export import write_files


def job(folder: Path, cluster: str, *command: str) -> subprocess.CompletedProcess[str]:
    """``job.sbatch`` of two servers; ``srun`` runs the first task of each step, at once."""
    found = exported(question("llama-3.1-8b", cluster), [server("mixed", 1)] * 2, "slurm")
    write_files(found.files, folder / "out")
    srun = folder / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text(
        '#!/usr/bin/env bash\nwhile [[ $1 == --* ]]; do shift; done\nSLURM_PROCID=0 exec "$@"\n'
    )
    srun.chmod(0o755)
    environment = {
        "PATH": f"{srun.parent}:{os.environ['PATH']}",
        "SLURM_SUBMIT_DIR": str(folder / "out"),
    }
    return subprocess.run(
        ["bash", str(folder / "out" / "job.sbatch"), *command],
        env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_a_job_without_command_fails(tmp_path: Path) -> None:
    """Every task would end at once, and the job be called completed."""
    done = job(tmp_path, "hgx-h100")
    assert done.returncode != 0
    assert "usage: sbatch job.sbatch COMMAND" in done.stderr


@pytest.mark.parametrize(
    ("cluster", "variable"),
    [("hgx-h100", "CUDA_VISIBLE_DEVICES"), ("mi300x", "HIP_VISIBLE_DEVICES"), ("gaudi3", None)],
)
def test_a_task_sees_the_devices_of_its_vendor(
    cluster: str, variable: str | None, tmp_path: Path
) -> None:
    said = 'echo "$RACKFIT_SERVER $RACKFIT_GPUS $(env | grep VISIBLE)" >"$RACKFIT_SERVER"'
    command = f"{said}; until [ -s mixed-0 ] && [ -s mixed-1 ]; do sleep 0.05; done"
    assert job(tmp_path, cluster, "bash", "-c", command).returncode == 0
    for number in range(2):
        words = (tmp_path / "out" / f"mixed-{number}").read_text().split()
        wanted = [] if variable is None else [f"{variable}={number}"]
        assert words == [f"mixed-{number}", str(number), *wanted]


def test_devices_that_nothing_hides_are_named() -> None:
    servers = [server("mixed", 1)] * 2
    hidden, open_ = (
        exported(question("llama-3.1-8b", cluster), servers, "slurm").notes
        for cluster in ("mi300x", "gaudi3")
    )
    assert any("RACKFIT_GPUS" in note for note in open_)
    assert not any("RACKFIT_GPUS" in note for note in hidden)
