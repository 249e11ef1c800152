"""Session traces: conversations whose prompts grow, each request a later state of an earlier one.

A CSV file with the columns of :data:`NEEDED`: requests of a session stand together, ``request`` counts them from 0,
``t_s`` since the session's start, ``parent_request`` is the earlier request of the session that shares the longest
prefix (-1: none) and ``shared_blocks`` how many blocks of 64 tokens it shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from costmodel.question.traffic.requests import Requests
from costmodel.question.traffic.table import cells_of, header_of, row_of, text_lines
from costmodel.question.traffic.trace import seconds, whole
from topology.errors import InstanceError, Problem
from topology.names import shown

NEEDED = (
    "session", "request", "t_s", "input_tokens", "output_tokens", "parent_request", "shared_blocks",
)  # fmt: skip
#: tokens of a block of ``shared_blocks``
_BLOCK = 64
_MOST_PROBLEMS = 10
#: time, prompt, answer (0: none), the request whose prefix is shared (-1: none), tokens that are shared
_Row = tuple[float, int, int, int, int]
_FAULTY: _Row = (0.0, 1, 0, -1, 0)


@dataclass(frozen=True)
class Turn:
    """One request of a session. ``parts``: ids and tokens of the stretches that its prompt is made of."""

    t_s: float
    input_tokens: int
    output_tokens: int
    parts: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Sessions:
    """Conversations in the order of their file."""

    sessions: tuple[tuple[Turn, ...], ...]

    def __len__(self) -> int:
        return sum(map(len, self.sessions))

    def drawn(
        self,
        count: int,
        lanes: int,
        rate: float,
        input_tokens: float,
        output_tokens: float,
        seed: int,
    ) -> Requests:
        """So many requests of sessions on ``lanes`` side by side, one after another on each.

        All lengths are scaled to the means asked for, and all times so that requests come at ``rate`` per second:
        what a session waits for its answers is that of the day when it was recorded. A session that comes again
        shares nothing with its first time. The same seed gives the same requests.
        """
        rng = np.random.default_rng(seed)
        turns: list[tuple[float, int, Turn]] = []
        for lane in range(lanes):
            order = rng.permutation(len(self.sessions)).tolist()
            at, held, copy = 0.0, 0, lane * count
            while (
                held < count
            ):  # the first `count` requests of all lanes lie before each lane's end
                session = self.sessions[order[copy % len(order)]]
                turns += [(at + turn.t_s, copy, turn) for turn in session]
                at, held, copy = at + session[-1].t_s, held + len(session), copy + 1
        turns.sort(key=lambda one: one[:2])
        turns = turns[:count]
        return self._requests(turns, rate, input_tokens, output_tokens)

    def _requests(
        self, turns: list[tuple[float, int, Turn]], rate: float, given: float, asked: float
    ) -> Requests:
        longer = given / float(np.mean([turn.input_tokens for _, _, turn in turns]))
        more = asked / float(np.mean([turn.output_tokens for _, _, turn in turns]))
        ids: dict[tuple[int, int], int] = {}
        blocks, sizes = [], []
        for _, copy, turn in turns:
            blocks.append(tuple(ids.setdefault((copy, part), len(ids)) for part, _ in turn.parts))
            ends = np.cumsum([tokens for _, tokens in turn.parts]) * longer
            sizes.append(tuple(np.diff(np.round(ends), prepend=0).astype(int).tolist()))
        times = np.array([at for at, _, _ in turns])
        prompts = np.array([max(1, sum(own)) for own in sizes], dtype=np.int64)
        answers = np.array([max(1, round(turn.output_tokens * more)) for _, _, turn in turns])
        plain = Requests(
            times - times[0],
            prompts,
            answers.astype(np.int64),
            np.zeros_like(prompts),
            blocks,
            sizes,
        )
        return plain.at_rate(rate) if plain.duration_s else plain  # all at once have no rate


def read_sessions(path: Path) -> Sessions:
    """Read a session trace, gzip'd or not. Raises ``InstanceError`` with file and line of the first problems."""
    lines = text_lines(path)
    header = header_of(next(lines, ""), NEEDED, NEEDED, f"{shown(path)}:1")
    rows: dict[str, list[_Row]] = {}
    problems: list[Problem] = []
    last = None
    for line, cells in cells_of(lines, path, 1):
        place = f"{shown(path)}:{line}"
        try:
            row = row_of(cells, header, place)
            name = row["session"]
            if name != last and name in rows:
                message = f"session {name[:40]!r} goes on after another: keep its requests together"
                raise InstanceError(Problem(place, message))
            last = name
            own = rows.setdefault(name, [])
            own.append(_FAULTY)  # so that one fault is not told of every later request
            own[-1] = _turn(row, own[:-1], place)
        except InstanceError as error:
            problems += error.problems
            if len(problems) >= _MOST_PROBLEMS:
                break
    if problems:
        raise InstanceError(problems)
    if not rows:
        raise InstanceError(Problem(shown(path), "holds no request"))
    return Sessions(tuple(_session(own) for own in rows.values()))


def _turn(row: dict[str, str], before: list[_Row], place: str) -> _Row:
    """Time, prompt and answer, the request whose prefix is shared, and the tokens that are shared."""
    number = whole(row["request"], "request", place)
    if number != len(before):
        message = f"request: expected {len(before)}, the next of its session, got {number}"
        raise InstanceError(Problem(place, message))
    at = seconds(row["t_s"], place)
    given = whole(row["input_tokens"], "input_tokens", place, least=1)
    asked = whole(row["output_tokens"], "output_tokens", place)
    shared = whole(row["shared_blocks"], "shared_blocks", place) * _BLOCK
    if row["parent_request"] == "-1":
        return at, given, asked, -1, 0
    parent = whole(row["parent_request"], "parent_request", place)
    if parent >= number:
        message = f"parent_request: expected an earlier request than {number}, got {parent}"
        raise InstanceError(Problem(place, message))
    return at, given, asked, parent, min(shared, given, before[parent][1])


def _session(rows: list[_Row]) -> tuple[Turn, ...]:
    """Turns in the order of their times. A prompt is cut wherever a later one leaves it."""
    cuts: list[set[int]] = [set() for _ in rows]
    for number in range(len(rows) - 1, -1, -1):
        _, _, _, parent, shared = rows[number]
        if parent >= 0:
            cuts[parent] |= {cut for cut in cuts[number] if cut < shared} | {shared}
    parts: list[tuple[tuple[int, int], ...]] = []
    fresh = 0
    for number, (_, given, _, parent, shared) in enumerate(rows):
        kept: list[tuple[int, int]] = []
        held = 0
        if parent >= 0:
            for part, tokens in parts[parent]:
                if held + tokens > shared:
                    break
                kept.append((part, tokens))
                held += tokens
        for end in sorted({cut for cut in cuts[number] if held < cut < given} | {given}):
            if end > held:
                kept.append((fresh, end - held))
                fresh, held = fresh + 1, end
        parts.append(tuple(kept))
    found = [
        Turn(at, given, asked, own)
        for (at, given, asked, _, _), own in zip(rows, parts, strict=True)
    ]
    return tuple(sorted(found, key=lambda turn: turn.t_s))
