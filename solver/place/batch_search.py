"""The batch of an attempt that serves most: even on all ranks, then with more sequences on some of them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Protocol

from costmodel.layout.layout import KvTier
from solver.bounds.batches import take_turns
from solver.clock import Clock
from solver.place.attempt import Attempt, FoundReplica, served

#: smaller batches tried for a better cut into stages
_BATCHES = 24
#: cuts are the best up to the rounding of times to whole picoseconds
_ROUNDING = 1e-6
#: ranks up to which every number of them is tried where the rate need not grow with it
_EACH = 8


class Tried(Protocol):
    """A shape on chips whose batches can be tried; ``slots`` of experts on the chips of its ranks."""

    ranks: int
    shape: dict[str, int]
    slots: tuple[int, ...]
    clock: Clock

    @property
    def idle(self) -> KvTier | None:
        """Where conversations wait, if any do."""

    def try_batch(self, sequences: tuple[int, ...]) -> FoundReplica | None:
        """The replica with so many sequences on each rank, if every rule holds."""


class Batches:
    """Looks for the batch of one shape on chips; times and bytes grow with it."""

    def __init__(self, attempt: Tried):
        self.attempt = attempt
        self.ranks, self.pp = attempt.ranks, attempt.shape["pp"]

    def best(self, most: int) -> FoundReplica | None:
        """Best replica with at most so many sequences on a rank, at its largest batch or close below."""
        found, per_rank = self._largest_even(self.ranks, most)
        used = self.ranks
        if found is None and self.ranks > 1:
            # not one on each: on as many ranks as there can be
            used, found = self._most_ranks(self.ranks, 0, 1)
            if found is not None:
                found, per_rank = self._largest_even(used, most)
        if found is None:
            return None
        if self.attempt.idle == "hbm":
            return self._with_more_room(found, used, per_rank)
        return self._fill_up(found, used, per_rank, most)

    def _largest_even(self, used: int, most: int) -> tuple[FoundReplica | None, int]:
        """Largest batch that is even on the last ``used`` ranks, by bisection (times and bytes grow with it)."""
        best: FoundReplica | None = None
        low, high, probe, step = 0, most, most, 1
        while low < high:
            found = self.attempt.try_batch(self._lying(used, probe))
            if found is not None:
                best, low = found, probe
            else:
                high = probe - 1
            # the bound is close: step down from it faster and faster, then bisect
            if best is None and high > 0:
                probe, step = max(1, high + 1 - step), step * 2
            else:
                probe = (low + high + 1) // 2
            if self.attempt.clock.over and best is not None:
                break
        return best, low

    def _most_ranks(self, used: int, low: int, high: int) -> tuple[int, FoundReplica | None]:
        """Most of ``used`` ranks that can have ``high`` sequences where the others have ``low``."""
        least, most, best = 0, used - 1, None
        while least < most and not self.attempt.clock.over:
            probe = (least + most + 1) // 2
            found = self.attempt.try_batch(self._lying(used, low, high, probe))
            if found is not None:
                best, least = found, probe
            else:
                most = probe - 1
        return least, best

    def _fill_up(self, found: FoundReplica, used: int, per_rank: int, most: int) -> FoundReplica:
        """More sequences on some ranks than the largest even batch has, if that serves more.

        A step on all ranks at once is coarse where each holds few sequences.
        """
        tried = [found]
        full = per_rank - per_rank % self.pp
        if full < per_rank:  # HBM is full: fewer in whole microbatches may serve more
            for more in range(0 if full == 0 else used if used <= _EACH else 1):
                if not self.attempt.clock.over:
                    tried.append(
                        self.attempt.try_batch(self._lying(used, full, per_rank, more)) or found
                    )
            return max(tried, key=served)
        high = per_rank
        for step in range(min(self.pp, most - per_rank), 0, -1):
            if used > 1 and self.attempt.try_batch(self._lying(used, per_rank, per_rank + step, 1)):
                high = per_rank + step
                break
        if high > per_rank:
            more, best = self._most_ranks(used, per_rank, high)
            tried.append(best or found)
            while len(set(self.attempt.slots)) > 1 and high < most and not self.attempt.clock.over:
                # where others are full, ranks with fewer expert slots may go on
                higher = self.attempt.try_batch(self._lying(used, per_rank, high + 1, more))
                if higher is None:
                    break
                tried.append(higher)
                high += 1
        return max(tried, key=served)

    def _lying(self, used: int, low: int, high: int = 0, more: int = 0) -> tuple[int, ...]:
        """Sequences of each rank: ``high`` on the last ``more`` ranks, ``low`` on others of those used.

        The last ranks' chips have fewest expert slots.
        """
        return (0,) * (self.ranks - used) + (low,) * (used - more) + (high,) * more

    def _with_more_room(self, found: FoundReplica, used: int, per_rank: int) -> FoundReplica:
        """A smaller batch where idle KV lies in HBM and a larger batch leaves it less room."""
        low, high, best = 1, per_rank, found
        while low < high and not self.attempt.clock.over:
            middle = (low + high) // 2
            pair = [
                self.attempt.try_batch(self._lying(used, batch)) for batch in (middle, middle + 1)
            ]
            rates = [0.0 if one is None else served(one) for one in pair]
            best = max([best, *(one for one in pair if one is not None)], key=served)
            low, high = (middle + 1, high) if rates[1] > rates[0] else (low, middle)
        return best


class BatchSearch(Batches):
    """Looks for the batch of one attempt, and for the cut into stages that goes with it."""

    attempt: Attempt

    def __init__(self, attempt: Attempt):
        super().__init__(attempt)

    def best_cut(
        self, found: FoundReplica | None, upper_at: Callable[..., float]
    ) -> tuple[FoundReplica | None, float]:
        """A smaller batch where its caches leave room for a better cut into stages.

        Also the rate that no batch exceeds: ``inf`` unless every cut was the best of its batch, which
        rests on layers whose times no placement changes. ``upper_at``: bound on all batches with so many
        sequences on a rank at most, or what tells only whether it is above ``enough``.
        """
        if found is None or self.pp == 1 or self.attempt.idle is not None:
            return found, inf
        if take_turns(self.attempt.instance):
            return found, inf
        best, beyond, above = found, 0.0, found[0].shape.batch
        step = self.ranks if above <= _BATCHES * self.ranks else self.ranks * self.pp
        step = 1 if self.attempt.exact else step
        for tried in range(_BATCHES + 1):
            enough = served(best) if tried < _BATCHES else 0.0
            fewer_on_each = -(-(above - 1) // self.ranks)
            bound = upper_at(fewer_on_each, enough=enough) if above > 1 else 0.0
            if bound <= served(best) * (1 + 1e-9):
                break
            if tried == _BATCHES or self.attempt.clock.over:
                beyond = max(beyond, bound)
                self.attempt.proven = False
                break
            if self.attempt.piped and not self.attempt.exact:
                fewer = self.ranks * self.attempt.fewer(-(-above // self.ranks))
            else:
                fewer = (above - 1) // step * step
            low, more = divmod(fewer, self.ranks)
            one = (
                self.attempt.try_batch(self._lying(self.ranks, low, low + 1, more))
                if fewer
                else None
            )
            best = max(best, one or best, key=served)
            if self.ranks == 1:
                best = self._best_between(best, fewer + 1, above - 1)
            above = fewer
        reach = max(served(best) * (1 + _ROUNDING), beyond)
        clock = self.attempt.clock
        # a cut that ran out of its time proves nothing of its batch
        settled = not clock.over and clock.unsettled == self.attempt.unsettled_before
        settled = settled and not self.attempt.instance.operations.moe_layers
        # and no cut is the best of both kinds of passes of a mixed replica
        settled = settled and not self.attempt.piped
        whole = (
            settled and self.attempt.alike and self.attempt.instance.profile.combination == "per_op"
        )
        return best, reach if whole else inf

    def _best_between(self, best: FoundReplica, low: int, high: int) -> FoundReplica:
        """The better of a replica and any on one rank with ``low`` to ``high`` sequences.

        A cut that holds more sequences holds ``low``, whose best cut is no slower: none serves more than that
        one with ``high``.
        """
        one = self.attempt.try_batch((low,)) if low <= high else None
        if one is None:
            return best
        best = max(best, one, key=served)
        if served(one) * high / low <= served(best) * (1 + 1e-9):
            return best
        middle = (low + high) // 2
        best = self._best_between(best, low + 1, middle)
        return self._best_between(best, middle + 1, high)
