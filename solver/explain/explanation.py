"""Why an instance has no layout: limits that conflict, changes that repair it, and what was not looked at."""

from __future__ import annotations

from dataclasses import dataclass

from solver.explain.relax import Relaxable


@dataclass(frozen=True)
class Change:
    """One limit's nearest feasible value: with ``value`` a layout was found, with ``fails_at`` none.

    The two are about 1 % or one unit apart, further where the time ended before what lies between was looked at.
    """

    limit: Relaxable
    value: float
    fails_at: float

    def words(self) -> str:
        """The change as a phrase."""
        show, limit = self.limit.show, self.limit
        return (
            f"{limit.title}: {show(self.value)} instead of {show(limit.asked)} "
            f"({show(self.fails_at)} does not solve)"
        )

    def as_dict(self) -> dict[str, object]:
        """Plain data."""
        return {
            "limit": self.limit.key,
            "title": self.limit.title,
            "unit": self.limit.unit,
            "asked": self.limit.asked,
            "solves_at": self.value,
            "fails_at": self.fails_at,
        }


@dataclass(frozen=True)
class Explanation:
    """Why an instance has no layout.

    ``conflicts``: smallest sets of limits that cannot hold together, found one after another (the
    second with the first dropped). ``repairs``: smallest sets of changes, each of which makes the
    instance solvable. ``proven``: the bound shows that nothing fits; else no layout was found.
    ``not_looked_at``: what the time left open, in words; empty where the answer is whole.
    """

    reason: str
    proven: bool
    conflicts: tuple[tuple[Relaxable, ...], ...]
    repairs: tuple[tuple[Change, ...], ...]
    solves: int
    not_looked_at: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Plain data: limits by key, values in the unit that stands beside them."""
        return {
            "reason": self.reason,
            "proven": self.proven,
            "conflicts": [[limit.key for limit in limits] for limits in self.conflicts],
            "repairs": [[change.as_dict() for change in repair] for repair in self.repairs],
            "solves": self.solves,
            "not_looked_at": list(self.not_looked_at),
        }

    def words(self) -> list[str]:
        """The answer in lines of plain language."""
        lines = [self.reason if self.proven else f"{self.reason} (not proven impossible)"]
        if not self.conflicts and not self.not_looked_at:
            return [*lines, "No limit is to blame: even with all of them dropped nothing fits"]
        for number, limits in enumerate(self.conflicts):
            titles = " with ".join(_with_value(limit) for limit in limits)
            also = "Also in conflict" if number else "Smallest conflicting set of limits"
            lines.append(f"{also}: {titles}")
        for number, repair in enumerate(self.repairs):
            head = "or" if number else "What would fit:"
            lines.append(f"{head} {'; together with '.join(change.words() for change in repair)}")
        return [*lines, *not_looked_at_words(self.not_looked_at)]


def not_looked_at_words(left: tuple[str, ...]) -> list[str]:
    """The line that says what the time left open; none where that is nothing."""
    return [f"Not looked at in the time: {'; '.join(left)}"] if left else []


def _with_value(limit: Relaxable) -> str:
    return f"{limit.title} = {limit.show(limit.asked)}"
