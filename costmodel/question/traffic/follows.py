"""Requests that wait for the answers before them: conversations, and agents that think between two calls."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from costmodel.question.traffic.requests import Array, Ints


@dataclass(frozen=True)
class Follows:
    """Which request each waits for, ``[requests]`` each.

    ``after``: the place of the request whose answer has to be there first (-1: none, it comes at its own time).
    ``pause_s``: seconds from that answer's end to the request.
    """

    after: Ints
    pause_s: Array

    @property
    def mean_pause_s(self) -> float:
        """Mean seconds between an answer and the request that waits for it."""
        pauses = self.pause_s[self.after >= 0]
        return float(pauses.mean()) if len(pauses) else 0.0

    def stretched(self, by: float) -> Follows:
        """The same requests with all pauses so many times as long."""
        return replace(self, pause_s=self.pause_s * by)

    def rows(self, rows: Ints) -> Follows:
        """Some of the requests, in order; those whose predecessor is not among them come at their own time."""
        place = np.full(len(self.after) + 1, -1, dtype=np.int64)  # the last stands for none
        place[rows] = np.arange(len(rows))
        return Follows(place[self.after[rows]], self.pause_s[rows])

    def next_of(self) -> list[list[int]]:
        """Of each request, those that wait for it."""
        found: list[list[int]] = [[] for _ in self.after]
        for index in np.flatnonzero(self.after >= 0).tolist():
            found[int(self.after[index])].append(index)
        return found
