"""What is asked of each pool, ever less, between what failed and what met the targets."""

from __future__ import annotations

from collections.abc import Mapping

from solver.traffic.judge import Verdict

#: capacities so close are equal: less is no longer tried
AS_MUCH = 1.004


class Less:
    """By role, capacity that is asked for: what was ``met``, the least that is still to be tried, and what ``failed``.

    What costs as much is not replayed, and less is asked: so much of one pool need not meet the targets beside less of another.
    """

    def __init__(self, failed: Mapping[str, float], needs: Mapping[str, float]) -> None:
        self.met, self._needs, self._failed = dict(needs), dict(needs), dict(failed)

    def trial(self, role: str) -> dict[str, float] | None:
        """With less of one role, halfway to what failed; ``None`` where that is as much."""
        less = (self._needs[role] * self._failed[role]) ** 0.5
        if self._needs[role] / less < AS_MUCH**0.5:
            return None
        return {**self._needs, role: less}

    def as_dear(self, trial: Mapping[str, float]) -> None:
        """Nothing cheaper asks for so much: what is cheaper lies below."""
        self._needs = dict(trial)

    def judged(self, role: str, trial: Mapping[str, float], verdict: Verdict | None) -> None:
        """What a replay said of a fleet with so much; ``None``: it does not stand."""
        if verdict is not None and verdict.meets:
            self.met, self._needs = dict(trial), dict(trial)
            return
        missed = () if verdict is None else verdict.missed
        # another pool was too slow, of which less was asked unseen
        unseen = [one for one in missed if one != role and self._needs[one] < self.met[one]]
        if role in missed or not unseen:
            self._failed[role] = trial[role]
        for one in unseen:
            self._failed[one] = max(self._failed[one], self._needs[one])
            self._needs[one] = self.met[one]
