"""What a search has placed so far: shapes whose KV goes anywhere, and prefill shapes whose KV stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from solver.bounds.pricing import Pricer
from solver.clock import Clock
from solver.fleet.asked import Links
from solver.fleet.items import Item, Items
from solver.place.realise import Realised, Realiser
from solver.place.standing import Slice
from solver.shapes.shapes import ROLES


class PlacedShapes:
    """Realised rows of a shape table. ``leaving``: with KV that goes to other domains, where that allows less."""

    def __init__(
        self,
        items: Items,
        pricer: Pricer,
        links: Links | None,
        clock: Clock,
        seed: int,
        like: PlacedShapes | None = None,
    ):
        """``like``: what another search of the question, with KV elsewhere, has placed; its experts are reused."""
        self.items, self.links, self.instance = items, links, pricer.instance
        self.clock, self.seed = clock, seed
        kind: type[Realiser] = Realiser
        if pricer.instance.scenario.apart:
            # entered where it is asked for, and nowhere else
            from solver.apart.realise import ApartRealiser

            kind = ApartRealiser
        self.realiser, self._nearby = (
            kind(pricer.instance, items.shapes, pricer, clock, seed, nearby=nearby)
            for nearby in (False, True)
        )
        if like is not None:
            self.realiser.take_placements(like.realiser)
        self._nearby.take_placements(self.realiser)
        self.realised: dict[int, Realised] = {}
        self.leaving: dict[int, Realised] = {}

    def place(self, row: int, most_per_rank: int) -> Realised:
        """Realise a shape: with its KV going anywhere, and with more time for prompts if it stays in the domain."""
        found = self.realiser.realise(row, most_per_rank)
        stays = self.items.shapes.role[row] == ROLES.index("prefill")
        stays = stays and self.items.shapes.slices[row] == 1
        better = float(self.items.upper[row]) > found.requests_per_s * (1 + 1e-9)
        if stays and better and self.links is not None and self.instance.slo.ttft is not None:
            near = self._nearby.realise(row, most_per_rank)
            if near.requests_per_s > found.requests_per_s:
                self.leaving[row], found = found, near
        self.realised[row] = found
        return found

    def achieved(self, rows: NDArray[np.bool_] | None = None) -> list[Item]:
        """Items of realised shapes (of some rows), with what they achieve and what their passes send."""
        return [self.sending(item) for item in self.items.best(*self.rates(rows))]

    def rates(
        self, rows: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """By shape: requests/s that realised ones (of some rows) achieve, and with KV that leaves its domain."""
        rates, leaves = np.zeros_like(self.items.upper), np.zeros_like(self.items.upper)
        for row, found in self.realised.items():
            if rows is None or rows[row]:
                rates[row], leaves[row] = found.requests_per_s, self.leaves(row)
        return rates, leaves

    def sending(self, item: Item) -> Item:
        """An item of a realised shape with what its passes send."""
        return replace(item, sent=self.of(item).sent, sent_far=self.of(item).sent_far)

    def leaves(self, row: int) -> float:
        """Requests per second of a placed shape whose KV goes to other domains, 0 where that is not in time."""
        if self.items.leaving[row] <= 0:
            return 0.0
        return self.leaving.get(row, self.realised[row]).requests_per_s

    def on(self, item: Item, slices: Sequence[Slice]) -> Realised:
        """The same on given chips."""
        kept = self.of(item)
        stays = item.shape in self.leaving and not item.leaves
        realiser = self._nearby if stays else self.realiser
        return realiser.realise(item.shape, kept.most_per_rank, slices)

    def of(self, item: Item) -> Realised:
        """The replica that an item of :meth:`achieved` stands for."""
        kept = self.realised[item.shape]
        return self.leaving.get(item.shape, kept) if item.leaves else kept
