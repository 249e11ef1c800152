"""A slice of the damaged inputs; ``make fuzz N=100000`` asks as many as wanted."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from random import Random

import pytest
from child import Asker
from commands import COMMANDS, SLOW
from corpus import write_corpus
from mutators import (
    damaged_bytes,
    damaged_data,
    damaged_file,
    damaged_text,
    damaged_words,
    place_in,
    with_flags,
)
from running import MOST_KB, Outcome, _fault, load_all, read, run_input, summary, work_through
from watching import Scratch

from rackfit.cli.app import build_app


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One good file of every kind."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    return folder


def test_no_input_of_a_slice_is_a_fault(corpus: Path, tmp_path: Path) -> None:
    load_all()
    scratch = Scratch(corpus, tmp_path / "scratch")
    asker = Asker(scratch.work)
    outcomes = [run_input(seed, scratch, asker) for seed in range(20)]
    asker.end()
    assert [outcome for outcome in outcomes if outcome.fault] == []
    assert {outcome.code for outcome in outcomes} >= {0, 2}


def test_every_file_has_a_command_and_every_command_its_files(corpus: Path) -> None:
    assert all((corpus / name).is_file() for name in COMMANDS)
    asked = {command[0] for commands in COMMANDS.values() for command in commands}
    # serve reads no file and does not end, check asks other servers: see tests/rackfit/serve and tests/rackfit/live
    assert asked | {"serve", "check"} == {
        command.name for command in build_app().registered_commands
    }


def test_files_are_good_before_they_are_damaged(corpus: Path, tmp_path: Path) -> None:
    load_all()
    scratch = Scratch(corpus, tmp_path / "scratch")
    asker = Asker(scratch.work)
    own = (scratch.work / "out", scratch.work / "tmp", scratch.work / "home")
    for name, commands in COMMANDS.items():
        words = commands[-1]
        if words[0] not in ("solve", "explain", "study", "size", "plan") and name not in SLOW:
            scratch.tidy()
            code, _, _ = asker.ask(list(words), own)
            assert (code, (scratch.work / "tmp" / "touched").read_text()) == (0, ""), words
    asker.end()


def test_damage_comes_of_the_seed_and_is_damage(corpus: Path) -> None:
    for name in COMMANDS:
        content = (corpus / name).read_bytes()
        made = [damaged_file(name, content, Random(seed)) for seed in range(2)]
        assert made[0] == damaged_file(name, content, Random(0))
        assert any(one != content for one in made)
    data = {"a": [1, {"b": 2}], "c": "d"}
    found = {str(place_in(data, Random(seed))[1]) for seed in range(50)}
    assert found == {"a", "0", "1", "b", "c"}
    assert place_in(3, Random(0)) is None
    assert any(damaged_data(deepcopy(data), Random(seed)) != data for seed in range(5))
    words = ["solve", "x", "--seed", "1"]
    damaged = [damaged_words(words, ("--gap",), Random(seed)) for seed in range(20)]
    assert all(one[0] == "solve" for one in damaged)
    assert any("--gap" in one for one in damaged)
    assert b" --pp " in with_flags(b"# x\nvllm serve m --tp 8\n", ("--pp ",), Random(0))
    assert any(damaged_bytes(b"abc", Random(seed)) != b"abc" for seed in range(5))
    assert any(damaged_text(b"a,b\nc d\n", Random(seed)) != b"a,b\nc d\n" for seed in range(5))


def test_what_a_fault_is() -> None:
    assert _fault(0, 1.0, 1000, "") == _fault(2, 1.0, 1000, "rackfit: x: wrong\n") == ""
    for code, seconds, kb, said in (
        (4, 1.0, 1000, ""), (99, 1.0, 1000, ""), (-9, 1.0, 1000, ""), (1, 1.0, 1000, "Traceback (most"),
        (0, 11.0, 1000, ""), (0, 1.0, MOST_KB + 1, ""), (2, 1.0, 1000, "rackfit: \x1b[2J"),
        (0, 1.0, 1000, "x.py:3: RuntimeWarning: divide by zero"),
    ):  # fmt: skip
        assert _fault(code, seconds, kb, said)


def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "outcomes.jsonl"
    first = work_through(0, 1, 2, out)
    out.write_text(out.read_text() + '{"seed": 2, "wh')
    again = work_through(0, 1, 3, out)
    assert [outcome.seed for outcome in first] == [0, 1]
    assert [outcome.seed for outcome in again] == [2]
    assert sorted(outcome["seed"] for outcome in read(out)) == [0, 1, 2]
    assert "inputs; by exit code" in summary(read(out))
    fault = Outcome(7, "x", [], 4, 1.0, 1, "exit 4: x")
    assert "seed 7 (x): exit 4: x" in summary([asdict(fault)])
