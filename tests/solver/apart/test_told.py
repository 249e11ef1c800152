"""An answer with experts apart is written, read, drawn and told; what does not run it says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rackfit.cli.app import build_app
from tests.solver.apart.test_asked import ASKED
from topology.errors import RackfitError


def options() -> list[str]:
    work, slo = ASKED["workload"], ASKED["slo"]
    return [
        "--model", ASKED["model"], "--cluster", ASKED["cluster"],
        "--input-tokens", str(work["input_tokens"]), "--output-tokens", str(work["output_tokens"]),
        "--tpot", str(slo["tpot"]), "--ttft", str(slo["ttft"]), "--apart", "only",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("apart")
    asked = [
        "solve",
        *options(),
        "--out",
        str(folder / "l.json"),
        "--report",
        str(folder / "r.html"),
    ]
    done = CliRunner().invoke(build_app(), asked)
    assert done.exit_code == 0, done.output
    return folder / "l.json", done.output


def test_the_answer_says_which_chips_are_whose(solved: tuple[Path, str]) -> None:
    assert "microbatches" in solved[1]
    assert "attention on r0g" in solved[1]
    page = (solved[0].parent / "r.html").read_text()
    assert "Expert load" in page


def test_the_document_is_judged_again(solved: tuple[Path, str]) -> None:
    done = CliRunner().invoke(build_app(), ["evaluate", str(solved[0])])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["export", "--to", "sglang"], "attention and experts on chips of their own"),
        (["replay", "--rate", "1"], "replay does not run experts apart"),
    ],
)
def test_what_does_not_run_it_says_so(
    solved: tuple[Path, str], command: list[str], said: str
) -> None:
    done = CliRunner().invoke(build_app(), [command[0], str(solved[0]), *command[1:]])
    assert isinstance(done.exception, RackfitError)
    assert said in str(done.exception)
