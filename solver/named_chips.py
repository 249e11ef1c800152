"""What a search does where neighbours matter: replicas find sets of chips beside each other, or fewer chips do."""

from __future__ import annotations

from dataclasses import replace

from solver.fleet.asked import Fleet
from solver.fleet.best import solve_fleet
from solver.known import Known

#: parts of the chips that fleets are looked for on where the best does not find room
_ROOM = (0.9, 0.8)
#: seconds for such a fleet
_FLEET_S = 2.0


class NamedChips(Known):
    """State of a search that knows how to stand fleets on named chips."""

    #: replicas that were chosen from for sets by stage
    _tried: frozenset[object] = frozenset()
    #: the last fleet that was stood as the fleet model has it
    _stood: Fleet | None = None

    def with_room(self) -> None:
        """Look for fleets of fewer chips, whose sets find room beside each other sooner."""
        for part in _ROOM:
            fleet = None if self.clock.over else self._fleet_on(part)
            if fleet is None or self.question.cost_of(fleet) > self.best_cost * (1 - self.target):
                continue
            if fresh := fleet.shapes - set(self.placed.realised):
                self.place(sorted(fresh))
                if self.pack(in_stages=True):
                    return

    def pack(self, *, in_stages: bool = False) -> bool:
        """Try the best fleet on named chips: the sets that each replica likes best may not fit beside each other.

        ``in_stages``: nor those of its stages, of many chips. Whether that is better than the incumbent.
        """
        # entered where neighbours matter, and nowhere else
        from solver.place.pack import packed
        from solver.place.stage_sets import by_stage

        known = self.placed, self.classes, self.question
        if in_stages:
            found, tried = by_stage(*known, self.best_fleet, self.best_cost, self._tried)
            self._tried |= tried
        else:
            found = packed(*known, self.bounds.per_rank, self.best_fleet, self.best_cost)
            self.bound_anew()
        return found is not None and self.judge(*found, float("inf"))

    def half_gone(self) -> bool:
        """Whether half of the time is gone."""
        limit = self.clock.limit_s
        return limit is not None and self.clock.remaining_s < limit / 2

    def _fleet_on(self, part: float) -> Fleet | None:
        """The best fleet hoped for on a part of each pool's chips."""
        fewer = []
        for one in self.classes:
            size = int(part * one.size)
            pools = tuple(replace(pool, chips=pool.chips[:size]) for pool in one.pools)
            fewer.append(replace(one, size=size, pools=pools, prices=one.prices[:size]))
        fits = [
            item
            for item in self.hoped()
            if all(max(item.slices_in(one.index), default=0) <= one.size for one in fewer)
        ]
        return solve_fleet(
            fits, fewer, self.question, clock=self.clock, time_limit_s=_FLEET_S,
            seed=self.seed, accept_gap=self.target,
        ).fleet  # fmt: skip
