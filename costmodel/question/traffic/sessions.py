"""Session traces: conversations whose prompts grow, each request a later state of an earlier one.

A CSV file with the columns of :data:`NEEDED`: requests of a session stand together, ``request`` counts them from 0,
``t_s`` since the session's start, ``parent_request`` is the earlier request of the session that shares the longest
prefix (-1: none) and ``shared_blocks`` how many blocks of 64 tokens it shares. ``api_time_s``, where there is such a
column, is how long the answer took; then a request waits for the answer that came last before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from costmodel.question.traffic.follows import Follows
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
#: time, prompt, answer (0: none), the request whose prefix is shared (-1: none), tokens that are shared, service time
_Row = tuple[float, int, int, int, int, float]
_FAULTY: _Row = (0.0, 1, 0, -1, 0, 0.0)
#: where in a session a lane begins, shares of its requests
_FIRST = (0.25, 0.75)


@dataclass(frozen=True)
class Turn:
    """One request of a session.

    ``took_s``: from its start to the end of its answer on the day of the recording. ``after``: the place in the session
    of the request whose answer came last before it (-1: none), ``pause_s`` from that answer to it. ``parts``: ids and
    tokens of the stretches that its prompt is made of.
    """

    took_s: float
    input_tokens: int
    output_tokens: int
    after: int
    pause_s: float
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
        input_tokens: float,
        output_tokens: float,
        seed: int,
        longest_pause_s: float = float("inf"),
    ) -> tuple[Requests, Follows]:
        """So many requests of sessions on ``lanes`` side by side, one session after another on each.

        A request waits for the answer before it and then for its pause; arrival times are those of the day of the
        recording. A lane begins in the midst of a session, as in a service that runs: what its first prompt shares
        with earlier ones is known. Lengths are scaled to the means asked for. A session that comes again shares nothing with its
        first time. The same seed gives the same requests.
        """
        rng = np.random.default_rng(seed)
        drawn: list[_Drawn] = []
        for lane in range(lanes):
            order = rng.permutation(len(self.sessions)).tolist()
            skipped, waited = rng.uniform(*_FIRST), rng.uniform()
            at, held, before = 0.0, 0, -1
            # the first `count` requests of all lanes lie before each lane's end
            for copy in range(lane * count, (lane + 1) * count):
                if held >= count:
                    break
                session = self.sessions[order[copy % len(order)]]
                own = _course(session, copy, at, len(drawn), before, longest_pause_s)
                if not held:
                    own = _midst(own, int(skipped * len(session)), waited, len(drawn))
                drawn.extend(own)
                held += len(own)
                last = max(range(len(own)), key=lambda place: own[place].ends_s)
                at, before = own[last].ends_s, len(drawn) - len(own) + last
        first = sorted(range(len(drawn)), key=lambda place: (drawn[place].at_s, place))[:count]
        place = {index: number for number, index in enumerate(first)}
        kept = [drawn[index] for index in first]
        after = np.array([place.get(one.after, -1) for one in kept], dtype=np.int64)
        pauses = np.array([one.pause_s for one in kept])
        return _requests(kept, input_tokens, output_tokens), Follows(after, pauses)


@dataclass(frozen=True)
class _Drawn:
    """A request on a lane: when it comes if answers take what they took, and what it waits for."""

    turn: Turn
    copy: int
    at_s: float
    after: int
    pause_s: float
    known_parts: int = 0

    @property
    def ends_s(self) -> float:
        return self.at_s + self.turn.took_s


def _course(
    session: tuple[Turn, ...], copy: int, start_s: float, base: int, before: int, longest_s: float
) -> list[_Drawn]:
    """A session from ``start_s`` on, its first requests after the one at ``before``."""
    found: list[_Drawn] = []
    for turn in session:
        pause = min(turn.pause_s, longest_s)
        at = (found[turn.after].ends_s if turn.after >= 0 else start_s) + pause
        after = base + turn.after if turn.after >= 0 else before
        found.append(_Drawn(turn, copy, at, after, pause))
    return found


def _midst(own: list[_Drawn], skipped: int, waited: float, base: int) -> list[_Drawn]:
    """The session without its first requests, in the midst of a pause: earlier parts of its prompt are known."""
    seen = {part for one in own[:skipped] for part, _ in one.turn.parts}
    rest = own[skipped:]
    start = rest[0].at_s - waited * rest[0].pause_s
    found = []
    for one in rest:
        inside = one.after - base >= skipped
        known = 0
        if not inside:
            known = next(
                (i for i, (part, _) in enumerate(one.turn.parts) if part not in seen),
                len(one.turn.parts),
            )
        after = one.after - skipped if inside else -1
        at = max(one.at_s - start, 0.0)
        found.append(replace(one, at_s=at, after=after, known_parts=known))
    return found


def _requests(drawn: list[_Drawn], given: float, asked: float) -> Requests:
    """Their lengths, scaled to the means asked for, and what their prompts share."""
    longer = given / float(np.mean([one.turn.input_tokens for one in drawn]))
    more = asked / float(np.mean([one.turn.output_tokens for one in drawn]))
    ids: dict[tuple[int, int], int] = {}
    blocks, sizes = [], []
    for one in drawn:
        blocks.append(
            tuple(ids.setdefault((one.copy, part), len(ids)) for part, _ in one.turn.parts)
        )
        ends = np.cumsum([tokens for _, tokens in one.turn.parts]) * longer
        sizes.append(tuple(np.diff(np.round(ends), prepend=0).astype(int).tolist()))
    prompts = [max(1, sum(own)) for own in sizes]
    known = [sum(own[: one.known_parts]) for one, own in zip(drawn, sizes, strict=True)]
    answers = [max(1, round(one.turn.output_tokens * more)) for one in drawn]
    return Requests(
        np.array([one.at_s for one in drawn]), np.array(prompts, dtype=np.int64),
        np.array(answers, dtype=np.int64), np.array(known, dtype=np.int64), blocks, sizes,
    )  # fmt: skip


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
    took = seconds(row["api_time_s"], place, "api_time_s") if row.get("api_time_s") else 0.0
    if row["parent_request"] == "-1":
        return at, given, asked, -1, 0, took
    parent = whole(row["parent_request"], "parent_request", place)
    if parent >= number:
        message = f"parent_request: expected an earlier request than {number}, got {parent}"
        raise InstanceError(Problem(place, message))
    return at, given, asked, parent, min(shared, given, before[parent][1]), took


def _session(rows: list[_Row]) -> tuple[Turn, ...]:
    """Turns in the order of their times. A prompt is cut wherever a later one leaves it."""
    cuts: list[set[int]] = [set() for _ in rows]
    for number in range(len(rows) - 1, -1, -1):
        _, _, _, parent, shared, _ = rows[number]
        if parent >= 0:
            cuts[parent] |= {cut for cut in cuts[number] if cut < shared} | {shared}
    parts: list[tuple[tuple[int, int], ...]] = []
    fresh = 0
    for number, (_, given, _, parent, shared, _) in enumerate(rows):
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
    order = sorted(range(len(rows)), key=lambda number: rows[number][0])
    ends: list[float] = []
    turns = []
    for number in order:
        at, given, asked, _, _, took = rows[number]
        over = [place for place, end in enumerate(ends) if end <= at]
        after = max(over, key=lambda place: ends[place], default=-1)
        since = ends[after] if over else rows[order[0]][0]
        turns.append(Turn(took, given, asked, after, at - since, parts[number]))
        ends.append(at + took)
    return tuple(turns)
