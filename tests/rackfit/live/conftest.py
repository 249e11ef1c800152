"""``rackfit check`` as a user calls it."""

from __future__ import annotations

import sys

import pytest

from rackfit.cli.app import main
from tests.rackfit.live.layouts import Run


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """``rackfit check``: its exit code, what it prints, and what it complains of."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rackfit", "check", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        return int(stop.value.code or 0), said.out, said.err

    return run
