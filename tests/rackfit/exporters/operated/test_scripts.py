"""Exported scripts as an operator runs them: what a site adds, limits, stops, and which files are scripts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from small_layouts import exported, question, server

from rackfit.exporters.export import write_files


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    """Two vLLM servers of one host, and their router."""
    return exported(question("llama-3.1-8b", "hgx-h100"), [server("mixed", 1)] * 2, "vllm").files


def folder_with(files: dict[str, str], folder: Path, program: str, text: str) -> Path:
    """The export beside a stand-in for ``program``."""
    write_files(files, folder / "out")
    stub = folder / "bin" / program
    stub.parent.mkdir()
    stub.write_text(f"#!/usr/bin/env bash\n{text}\n")
    stub.chmod(0o755)
    return folder / "out"


def run(script: Path, first: str = "") -> subprocess.CompletedProcess[str]:
    """A script with the stand-in on its path; ``first``: a command of the shell before it."""
    path = f"{script.parents[1] / 'bin'}:{script.parents[2] / 'bin'}:{os.environ['PATH']}"
    words = ["bash", "-c", f'{first or ":"} && exec bash "$0"', str(script)]
    return subprocess.run(words, env={"PATH": path}, capture_output=True, text=True, timeout=60)


def test_what_a_site_needs_is_read_by_every_script(files: dict[str, str], tmp_path: Path) -> None:
    """An engine's environment is rarely that of a bare ssh; such files use variables that are not set."""
    site = 'export SITE="here$NOT_SET"\n'
    for program, name in (("vllm", "hosts/node0-host0.sh"), ("vllm-router", "router.sh")):
        out = folder_with(files, tmp_path / program, program, 'echo "of $SITE"')
        (out / "site.sh").write_text(site)
        done = run(out / name)
        said = done.stdout + "".join(log.read_text() for log in out.glob("*.log"))
        assert "of here" in said
        assert "unbound" not in done.stderr


def test_a_stopped_script_leaves_nothing_behind(files: dict[str, str], tmp_path: Path) -> None:
    """The next start would find ports and memory taken by servers that are still ending."""
    stub = (
        'case "$*" in *20400*) until [ -e ready ]; do sleep 0.05; done; exit 7;; esac\n'
        "trap 'sleep 0.3; touch ended; exit 0' TERM\ntouch ready\nwhile :; do sleep 0.05; done"
    )
    out = folder_with(files, tmp_path, "vllm", stub)
    assert run(out / "hosts" / "node0-host0.sh").returncode == 7
    assert (out / "ended").exists()


def test_servers_may_lock_as_much_memory_as_the_host_allows(
    files: dict[str, str], tmp_path: Path
) -> None:
    """RDMA locks what it reads; a shell's own limit is a few megabytes."""
    out = folder_with(files, tmp_path, "vllm", "echo $(ulimit -S -l) $(ulimit -H -l)")
    run(out / "hosts" / "node0-host0.sh", "ulimit -S -l 8")
    # the first server that ends has said it; the script may have stopped the other before it could
    said = [text.split() for log in out.glob("mixed-*.log") if (text := log.read_text())]
    assert said
    assert all(soft == hard for soft, hard in said)


def test_files_without_interpreter_are_not_programs(files: dict[str, str], tmp_path: Path) -> None:
    """``commands.sh`` is read; run on one host it would start one server and wait for its end."""
    write_files(files, tmp_path / "out")
    modes = {
        path.name: bool(path.stat().st_mode & 0o111)
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert modes == {"commands.sh": False, "node0-host0.sh": True, "router.sh": True}
