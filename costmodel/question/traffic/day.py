r"""Requests drawn anew from what was published of them by the hour: how many, their mean lengths, their known prefixes.

The day is copied: ``copies`` sources send the same requests, each request of each copy up to ``shift`` earlier or
later. Copies share nothing; requests of one copy share the beginning of their prompts (one stem), as deep as the
hour's share of known tokens asks. Hours get exactly the requests of the table: where an hour has no whole number of
requests a copy, one request stands at its end so that the right number of copies comes before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from costmodel.question.spread import MAX_TOKENS
from costmodel.question.traffic.description import BothLengths
from costmodel.question.traffic.requests import MOST_DRAWN, Requests
from costmodel.question.traffic.table import cells_of, header_of, row_of, text_lines
from costmodel.question.traffic.trace import whole
from topology.errors import InstanceError, Problem
from topology.names import shown
from topology.quantity import PositiveSeconds, is_number

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

HOUR_S = 3600.0
_NEEDED = ("requests", "input_tokens", "output_tokens")
_KNOWN = (*_NEEDED, "known_prefix")
#: hours of a table
_MOST_HOURS = 24 * 31


class Day(BaseModel):
    """How a table of hours becomes requests.

    ``hours``: a CSV with a row for each hour: ``requests``, ``input_tokens`` and ``output_tokens`` (means) and, where
    known, ``known_prefix`` (share of the prompt tokens that a cache which never forgets has). ``longest``: tokens of
    a prompt with its answer. Prefixes are shared in blocks of ``block_tokens``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    hours: str
    copies: Annotated[int, Field(ge=1, le=MOST_DRAWN)] = 1
    shift: PositiveSeconds = 30.0
    longest: Annotated[int, Field(ge=2, le=MAX_TOKENS)] = MAX_TOKENS
    block_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 64


@dataclass(frozen=True)
class Hours:
    """A table by hour ``[hours]``: requests, mean lengths, share of the prompt tokens that are known."""

    requests: Ints
    input_tokens: Array
    output_tokens: Array
    known_prefix: Array
    place: str

    @classmethod
    def read(cls, path: Path) -> Hours:
        """Read the CSV of a day. Raises ``InstanceError`` with file and line."""
        place = shown(path)
        lines = text_lines(path)
        header = header_of(next(lines, ""), _NEEDED, _KNOWN, f"{place}:1")
        rows: list[tuple[float, ...]] = []
        for line, cells in cells_of(lines, path, 1):
            at = f"{place}:{line}"
            row = row_of(cells, header, at)
            if len(rows) == _MOST_HOURS:
                raise InstanceError(Problem(at, f"more than {_MOST_HOURS} hours"))
            rows.append(
                (
                    whole(row["requests"], "requests", at),
                    _number(row["input_tokens"], "input_tokens", at, 1.0, MAX_TOKENS),
                    _number(row["output_tokens"], "output_tokens", at, 1.0, MAX_TOKENS),
                    _number(row.get("known_prefix", "0"), "known_prefix", at, 0.0, 1.0),
                )
            )
        total = sum(row[0] for row in rows)
        if not 1 <= total <= MOST_DRAWN:
            message = f"{total:,.0f} requests; expected 1 to {MOST_DRAWN:,}"
            raise InstanceError(Problem(place, message))
        columns = np.array(rows).T
        return cls(columns[0].astype(np.int64), columns[1], columns[2], columns[3], place)


def _number(text: str, name: str, place: str, least: float, most: float) -> float:
    value = float(text) if is_number(text) else float("nan")
    if not least <= value <= most:
        message = f"{name}: expected a number from {least:g} to {most:g}, got {text!r:.40}"
        raise InstanceError(Problem(place, message))
    return value


def draw_day(day: Day, hours: Hours, lengths: BothLengths, seed: int) -> Requests:
    """The requests of a day; the same seed gives the same. ``lengths`` give their spread, the table the means.

    Raises ``InstanceError`` where no such requests exist.
    """
    rng = np.random.default_rng(seed)
    source = _Source.of(day, hours, rng)
    count = len(source.hour)
    output = source.with_means(
        lengths.output.draw(count, rng), hours.output_tokens, day.longest - 1, "output_tokens"
    )
    given = source.with_means(
        lengths.input.draw(count, rng), hours.input_tokens, day.longest - output, "input_tokens"
    )
    depths = source.depths(given, day.block_tokens)
    row = np.repeat(np.arange(count), day.copies)
    copy = np.tile(np.arange(day.copies), count)
    arrival = np.maximum(source.times(day.shift, rng), 0.0)
    order = np.argsort(arrival, kind="stable")
    row, copy, arrival = row[order], copy[order], arrival[order]
    blocks, sizes = _prefixes(row, copy, given, depths)
    zeros = np.zeros(len(row), dtype=np.int64)
    return Requests(arrival, given[row], output[row], zeros, blocks, sizes)


@dataclass(frozen=True)
class _Source:
    """Requests of one copy in their order ``[requests]``: time, hour, and share of the copies that come in that hour.

    Where the share is below 1 the request stands at the hour's end, and the other copies come in the next hour.
    """

    hours: Hours
    copies: int
    at_s: Array
    hour: Ints
    share: Array

    @classmethod
    def of(cls, day: Day, hours: Hours, rng: np.random.Generator) -> _Source:
        copies, total = day.copies, int(hours.requests.sum())
        if total % copies:
            message = f"{total:,} requests are no whole number for each of {copies} copies"
            raise InstanceError(Problem(hours.place, message))
        if not day.shift <= HOUR_S / 2:
            raise InstanceError(Problem("day.shift", "expected at most half an hour"))
        at: list[float] = []
        hour: list[int] = []
        share: list[float] = []
        until = 0
        for number, many in enumerate(hours.requests.tolist()):
            before, until = until, until + many
            alone = until // copies - ceil(before / copies)
            ends = until % copies
            if alone < 0 or (many and alone + bool(ends) == 0):
                message = f"{many} requests are too few for {copies} copies beside the hours around"
                raise InstanceError(Problem(f"{hours.place}:{number + 2}", message))
            start, end = number * HOUR_S, (number + 1) * HOUR_S
            inside = rng.uniform(start + day.shift, end - day.shift, alone)
            at += sorted(inside.tolist())
            share += [1.0] * alone
            if ends:
                at.append(end + day.shift * (1.0 - 2.0 * ends / copies))
                share.append(ends / copies)
            hour += [number] * (alone + bool(ends))
        return cls(hours, copies, np.array(at), np.array(hour), np.array(share))

    def times(self, shift: float, rng: np.random.Generator) -> Array:
        """Arrivals ``[requests * copies]``. At the border of an hour, copies are spread evenly over the shift."""
        count, copies = len(self.at_s), self.copies
        moved = rng.uniform(-1.0, 1.0, (count, copies))
        for row in np.flatnonzero(self.share < 1.0):
            place = rng.permutation(copies)
            # off the edges, so that rounding moves nobody into another hour
            moved[row] = 2.0 * (place + rng.uniform(0.01, 0.99, copies)) / copies - 1.0
        return np.asarray((self.at_s[:, None] + shift * moved).ravel())

    def weights(self, hour: int) -> tuple[Ints, Array]:
        """Requests of which copies come in an hour, and how many copies."""
        own = np.flatnonzero(self.hour == hour)
        copies = self.copies * self.share[own]
        first = int(np.searchsorted(self.hour, hour))
        if first and self.share[first - 1] < 1.0 and self.hour[first - 1] == hour - 1:
            own = np.concatenate([[first - 1], own])
            copies = np.concatenate([[self.copies * (1.0 - self.share[first - 1])], copies])
        return own, copies

    def with_means(self, drawn: Ints, means: Array, most: Ints | int, name: str) -> Ints:
        """Lengths scaled hour by hour to the table's means, none above ``most``."""
        found = drawn.copy()
        limit = np.broadcast_to(most, found.shape)
        for hour, mean in enumerate(means.tolist()):
            rows, copies = self.weights(hour)
            own = self.hour[rows] == hour
            if not own.any():
                continue
            wanted = mean * copies.sum() - (found[rows] * copies)[~own].sum()
            rows, copies = rows[own], copies[own]
            if not copies.sum() <= wanted <= (limit[rows] * copies).sum():
                message = (
                    f"{name}: no lengths up to {int(limit.max())} have a mean of {mean:g} here"
                )
                raise InstanceError(Problem(f"{self.hours.place}:{hour + 2}", message))
            found[rows] = _scaled(drawn[rows], copies, wanted, limit[rows])
        return found

    def depths(self, given: Ints, block: int) -> Ints:
        """Tokens of the copy's stem with which each prompt begins, in whole blocks.

        The first prompt that is long enough brings the stem. What an hour's prompts know of it adds up to the hour's
        share, equal for all that are long enough.
        """
        shares = self.hours.known_prefix
        most = (given - 1) // block * block
        # deeper than an hour needs on average: long prompts make up for short ones
        stem = 2 * ceil(float((shares * self.hours.input_tokens).max()) / block) * block
        stem = min(stem, int(most.max()))
        found = np.zeros(len(given), dtype=np.int64)
        if not stem:
            return found
        brings = int(np.argmax(most >= stem))
        found[brings] = stem
        for hour, share in enumerate(shares.tolist()):
            rows, copies = self.weights(hour)
            wanted = share * float((given[rows] * copies).sum())
            knows = rows > brings
            settled = knows & (self.hour[rows] < hour)
            wanted -= float((found[rows] * copies)[settled].sum())
            open_, left = rows[knows & ~settled], copies[knows & ~settled]
            order = np.argsort(most[open_], kind="stable")
            for turn, place in enumerate(order.tolist()):
                each = wanted / float(left[order[turn:]].sum())
                row = open_[place]
                found[row] = min(max(0, round(each / block)) * block, int(most[row]), stem)
                wanted -= float(found[row] * left[place])
        return found


def _scaled(drawn: Ints, weights: Array, wanted: float, most: Ints) -> Ints:
    """Whole lengths from 1 to ``most``, proportional to what was drawn, whose weighted sum is ``wanted``."""
    low, high = 0.0, float((most / drawn).max()) + 1.0
    for _ in range(60):
        middle = (low + high) / 2
        total = float((np.clip(np.rint(drawn * middle), 1, most) * weights).sum())
        low, high = (middle, high) if total < wanted else (low, middle)
    return np.asarray(np.clip(np.rint(drawn * high), 1, most), dtype=np.int64)


def _prefixes(
    row: Ints, copy: Ints, given: Ints, depths: Ints
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Ids and sizes of the blocks of each request: pieces of its copy's stem, and a rest that nobody else has."""
    if not depths.any():
        return [], []
    cuts = np.unique(np.concatenate([[0], depths]))
    pieces = tuple(np.diff(cuts).tolist())
    deep = np.searchsorted(cuts, depths).tolist()
    sizes = [
        (*pieces[:many], own - depth)
        for many, own, depth in zip(deep, given.tolist(), depths.tolist(), strict=True)
    ]
    copies = int(copy.max()) + 1
    stems = [tuple(range(one * len(pieces), (one + 1) * len(pieces))) for one in range(copies)]
    fresh = copies * len(pieces)
    blocks = [
        (*stems[one][: deep[own]], fresh + number)
        for number, (own, one) in enumerate(zip(row.tolist(), copy.tolist(), strict=True))
    ]
    return blocks, [sizes[own] for own in row.tolist()]
