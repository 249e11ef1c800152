"""Session traces: prompts share what the file says, no more; lengths and rate are those asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costmodel.question.traffic.reuse import reuse
from costmodel.question.traffic.sessions import NEEDED, read_sessions
from topology.errors import InstanceError

HEADER = ",".join(NEEDED)


def written(folder: Path, *rows: str) -> Path:
    path = folder / "sessions.csv"
    path.write_text("\n".join([HEADER, *rows]))
    return path


@pytest.mark.parametrize("seed", range(20))
def test_a_prompt_shares_what_the_file_says(seed: int, tmp_path: Path) -> None:
    """Tokens that stretches share with the parent, against blocks of 64 written out one by one."""
    rng = np.random.default_rng(seed)
    rows, prompts = [], []
    for number in range(12):
        parent = int(rng.integers(-1, number)) if number else -1
        shared = int(rng.integers(0, len(prompts[parent]) + 1)) if parent >= 0 else 0
        own = [f"{number}.{block}" for block in range(int(rng.integers(1, 6)))]
        prompts.append([*(prompts[parent][:shared] if parent >= 0 else []), *own])
        tokens = 64 * len(prompts[-1])
        rows.append(f"a,{number},{number},{tokens},5,{parent},{shared}")
    (session,) = read_sessions(written(tmp_path, *rows)).sessions
    for turn, prompt in zip(session, prompts, strict=True):
        assert sum(tokens for _, tokens in turn.parts) == turn.input_tokens == 64 * len(prompt)
    for one, blocks in zip(session, prompts, strict=True):
        for other, others in zip(session, prompts, strict=True):
            same = sum(
                tokens
                for (part, tokens), (its, _) in zip(one.parts, other.parts, strict=False)
                if part == its
            )
            equal = [a == b for a, b in zip(blocks, others, strict=False)]
            assert same == 64 * sum(equal)


def test_lengths_and_lanes_are_those_asked_for(tmp_path: Path) -> None:
    rows = [
        f"{name},{turn},{10 * turn},{640 * (turn + 1)},{turn},{turn - 1},{10 * turn}"
        for name in "ab"
        for turn in range(8)
    ]
    sessions = read_sessions(written(tmp_path, *rows))
    found, follows = sessions.drawn(400, 5, 9000.0, 50.0, seed=1)
    assert len(found) == len(follows.after) == 400
    assert (follows.after < 0).sum() == 5
    assert (follows.after < np.arange(400)).all()
    assert found.input_tokens.mean() == pytest.approx(9000.0, rel=1e-3)
    assert found.output_tokens.mean() == pytest.approx(50.0, rel=0.02)
    assert (np.diff(found.arrival_s) >= 0).all()
    # every turn but the first shares all of the turn before it: 28 of 36 parts of a whole session
    assert reuse(found).most == pytest.approx(28 / 36, abs=0.06)
    # a lane begins in the midst of a session, and what came before is known
    first = follows.after < 0
    assert (found.cached_tokens[first] > 0).all()
    assert (found.cached_tokens[~first] == 0).all()
    again, same = sessions.drawn(400, 5, 9000.0, 50.0, seed=1)
    assert (again.arrival_s == found.arrival_s).all()
    assert (same.after == follows.after).all()
    assert list(again.blocks) == list(found.blocks)


def test_a_request_waits_for_the_answer_that_came_last(tmp_path: Path) -> None:
    """The main agent starts two at once; the next of each follows what ended last before it, its pause after that."""
    path = tmp_path / "sessions.csv"
    rows = [
        "a,0,0,640,5,-1,0,4",
        "a,1,6,640,5,0,10,3",
        "a,2,6,640,5,0,10,8",
        "a,3,12,640,5,1,10,1",
        "a,4,20,640,5,2,10,",
        "a,5,400,640,5,4,10,2",
    ]
    path.write_text("\n".join([HEADER + ",api_time_s", *rows]))
    (session,) = read_sessions(path).sessions
    assert [turn.after for turn in session] == [-1, 0, 0, 1, 2, 4]
    assert [turn.pause_s for turn in session] == [0.0, 2.0, 2.0, 3.0, 6.0, 380.0]
    _, follows = read_sessions(path).drawn(40, 1, 640.0, 5.0, seed=0, longest_pause_s=300.0)
    assert follows.pause_s.max() == 300.0
    rows[1] = "a,1,6,640,5,0,10,soon"
    path.write_text("\n".join([HEADER + ",api_time_s", *rows]))
    with pytest.raises(InstanceError, match=":3: api_time_s: expected seconds from 0, got 'soon'"):
        read_sessions(path)


def test_requests_that_come_at_once_have_times(tmp_path: Path) -> None:
    sessions = read_sessions(written(tmp_path, "a,0,0,640,5,-1,0", "b,0,0,640,5,-1,0"))
    assert sessions.drawn(4, 2, 700.0, 5.0, seed=0)[0].arrival_s.tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a,0,0,5,5,-1,0", "b,0,0,5,5,-1,0", "a,1,1,5,5,0,0"], ":4: session 'a' goes on after"),
        (["a,1,0,5,5,-1,0"], ":2: request: expected 0, the next of its session, got 1"),
        (["a,0,0,5,5,0,0"], ":2: parent_request: expected an earlier request than 0, got 0"),
        (["a,0,nan,5,5,-1,0"], ":2: t_s: expected seconds from 0, got 'nan'"),
        (["a,0,0,0,5,-1,0"], ":2: input_tokens: expected a whole number from 1, got '0'"),
        (["a,0,0,5"], ":2: 4 cells under 7 columns"),
        ([], "holds no request"),
    ],
)
def test_a_bad_trace_is_refused_with_its_line(
    rows: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InstanceError, match=message) as stop:
        read_sessions(written(tmp_path, *rows))
    assert len(stop.value.problems) == 1
