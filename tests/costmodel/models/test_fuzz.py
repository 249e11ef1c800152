"""No input makes the reader raise anything but ``InstanceError``, hang, or eat memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).with_name("fuzz.py")
ROOT = Path(__file__).resolve().parents[3]
PEAK_MB = 300


def _run(num: int, limit_s: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, str(FUZZ), str(num)],
        capture_output=True,
        text=True,
        timeout=limit_s,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    outcome: dict[str, float] = json.loads(done.stdout)
    return outcome


def _check(outcome: dict[str, float], num: int) -> None:
    assert outcome["inputs"] >= num
    assert outcome["model"] > num / 50
    assert outcome["refused"] > num / 5
    assert outcome["peak_mb"] < PEAK_MB


def test_some_hundred_damaged_configs() -> None:
    _check(_run(300, 300), 300)


@pytest.mark.slow
def test_twenty_thousand_damaged_configs() -> None:
    _check(_run(20_000, 3600), 20_000)
