"""The command line in a process of its own, and what it left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from rackfit.cli.app import build_app, exit_code
from topology.errors import RackfitError

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Ran:
    """Exit code, and what was printed."""

    code: int
    out: str
    err: str


def rackfit(*words: object, cwd: Path | None = None, **environment: str) -> Ran:
    """Run one command; a traceback fails."""
    done = subprocess.run(
        [sys.executable, "-m", "rackfit", *map(str, words)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT), "RACKFIT_DEBUG": ""} | environment,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=120,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)


def refused(message: str, *words: object, cwd: Path | None = None, **environment: str) -> str:
    """The error of a command that is bad input: one message, exit code 2, nothing on stdout."""
    ran = rackfit(*words, cwd=cwd, **environment)
    assert ran.code == 2, (ran.code, ran.err)
    assert message in ran.err, ran.err
    assert ran.out == ""
    assert len(ran.err.splitlines()) <= 26
    return ran.err


def asked(*words: object) -> tuple[int, str]:
    """Exit code and message of one command in this process. Any exception but a message fails."""
    result = CliRunner().invoke(build_app(), [str(word) for word in words])
    if isinstance(result.exception, RackfitError):
        return exit_code(result.exception), f"{result.exception}\n{result.stderr}"
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stderr + result.stdout
