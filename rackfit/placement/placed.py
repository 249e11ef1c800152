"""A placement and what the evaluator says of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackfit.exporters.placements.table import AnyTable
from solver.experts.request import PlaceOptions


@dataclass(frozen=True, slots=True)
class Judged:
    """Means over layers: busiest over mean chip, and copies of a token to other nodes.

    ``searched``: on the tokens that the search read, ``None`` for pair counts, which only enclose the copies between
    ``least`` and ``most``.
    """

    imbalance: float
    copies: float
    searched: float | None
    least: float | None
    most: float | None

    def document(self) -> dict[str, float | None]:
        """The figures for JSON."""
        return {
            "imbalance": self.imbalance,
            "cross_node_copies_per_token": self.copies,
            "on_searched_tokens": self.searched,
            "at_least": self.least,
            "at_most": self.most,
        }


@dataclass(frozen=True, slots=True)
class Compared:
    """A placement beside EPLB's and random ones, judged with the same co-activation."""

    source: str
    top_k: int
    searched_tokens: int
    held_out_tokens: int
    dropped_tokens: int
    placed: Judged
    eplb: Judged
    random: Judged

    def saving(self, other: Judged) -> float:
        """Share of the copies of ``other`` that are saved; negative where there are more."""
        return 1 - self.placed.copies / other.copies if other.copies else 0.0

    def document(self) -> dict[str, Any]:
        """The part of the JSON document about co-activation."""
        return {
            "source": self.source,
            "kind": "tokens" if self.held_out_tokens else "pairs",
            "judged_on": "held-out tokens" if self.held_out_tokens else "the pairs searched",
            "experts_per_token": self.top_k,
            "searched_tokens": self.searched_tokens,
            "held_out_tokens": self.held_out_tokens,
            "incomplete_tokens": self.dropped_tokens,
            "placed": self.placed.document(),
            "eplb": self.eplb.document(),
            "random": self.random.document(),
            "saving": {"eplb": self.saving(self.eplb), "random": self.saving(self.random)},
        }

    def text(self) -> str:
        """The saving in words, and what it rests on."""
        mine = self.placed
        if self.held_out_tokens:
            rests = (
                f"on {self.held_out_tokens:,} tokens held out ({mine.searched:.3f} on the "
                f"{self.searched_tokens:,} searched)"
            )
        else:
            rests = (
                "estimated from the same pair counts that were searched (whatever else is true of "
                f"the tokens, {mine.least:.3f} to {mine.most:.3f})"
            )
        others = "; ".join(
            f"{name} {other.copies:.3f}, {abs(saved):.1%} {'saved' if saved >= 0 else 'more'}"
            for name, other in (("EPLB", self.eplb), ("random", self.random))
            for saved in (self.saving(other),)
        )
        return f"copies of a token to other nodes: {mine.copies:.3f} {rests}; {others}"


@dataclass(frozen=True, slots=True)
class Shared:
    """What sharing slots among the layers gains.

    ``budget`` slots were given for all layers and ``slots`` are used; ``fullest_gpu`` slots, over all layers, lie on
    the GPU with most. ``bound``: no share of the budget has a mean busiest GPU over the mean below it. ``uniform``: the
    placement with equally many slots in every layer.
    """

    layer_slots: tuple[int, ...]
    budget: int
    slots: int
    fullest_gpu: int
    bound: float
    uniform: Placed

    def document(self) -> dict[str, Any]:
        """The part of the JSON document."""
        alike = self.uniform.options
        return {
            "layer_slots": list(self.layer_slots),
            "budget": self.budget,
            "slots": self.slots,
            "slots_on_fullest_gpu": self.fullest_gpu,
            "bound": self.bound,
            "uniform": {
                "imbalance": float(self.uniform.imbalance.mean()),
                "slots": alike.slots * len(self.layer_slots),
                "slots_on_fullest_gpu": max(alike.slots_per_chip()) * len(self.layer_slots),
            },
        }


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Busiest over mean chip on one recording that was left out, mean over its layers.

    ``eplb``: EPLB's placement for the mean of the recordings that were kept, ``None`` where GPUs have unlike numbers of
    slots, which EPLB does not place. ``made_for_it``: a placement searched on this recording itself;
    ``bound``: no placement is below it, whatever it was made for.
    """

    name: str
    imbalance: float
    eplb: float | None
    made_for_it: float
    bound: float

    def document(self) -> dict[str, float | None]:
        """The figures for JSON."""
        return {
            "imbalance": self.imbalance,
            "eplb": self.eplb,
            "made_for_it": self.made_for_it,
            "bound": self.bound,
        }

    def text(self) -> str:
        """The figures in words."""
        theirs = (
            "" if self.eplb is None else f"{self.eplb:.3f} under EPLB's of the same recordings, "
        )
        return (
            f"left out {self.name}: busiest chip over the mean, mean of layers: {self.imbalance:.3f}; {theirs}"
            f"{self.made_for_it:.3f} if placed for it, at least {self.bound:.3f} under any placement"
        )


Floats = NDArray[np.float64]
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Placed:
    """A placement and what the evaluator says of it."""

    table: AnyTable
    replicas: NDArray[np.int64]
    imbalance: Floats
    bound: Floats
    copies: Floats
    wall_s: float
    options: PlaceOptions
    moves: int | None
    trade_off: list[tuple[float, float]]
    by_window: Floats
    windows: tuple[str, ...]
    #: points chosen layer by layer at growing worths of a copy
    by_layer: list[tuple[float, float]] = field(default_factory=list)
    #: EPLB and random placements where experts used together are known
    compared: Compared | None = None
    #: what unlike numbers of slots gain, where they were asked for
    shared: Shared | None = None
    #: recordings that the search did not see
    left_out: tuple[LeftOut, ...] = ()

    @property
    def gap(self) -> Floats:
        """``imbalance / bound - 1`` per layer."""
        return np.maximum(self.imbalance / self.bound - 1, 0.0)

    @property
    def moved_bytes(self) -> float | None:
        """Weights that the moves copy; ``None`` without moves or the size of an expert."""
        if self.moves is None or self.options.expert_bytes is None:
            return None
        return self.moves * self.options.expert_bytes

    def document(self) -> dict[str, Any]:
        """The JSON document of ``rackfit place --format json``.

        ``slots_per_gpu``: one list for all layers, or one for each where slots are shared among them.
        """
        shared = {} if self.shared is None else {"shared": self.shared.document()}
        left_out = {one.name: one.document() for one in self.left_out}
        return {
            "schema_version": SCHEMA_VERSION,
            "gpus": self.options.gpus,
            "slots": self.options.slots,
            "slots_per_gpu": self.table.slots_per_gpu(),
            "dispatch": self.options.dispatch,
            "layer_ids": list(self.table.layer_ids),
            "physical_to_logical": self.table.rows(),
            "replicas": self.replicas.tolist(),
            "imbalance": {
                "per_layer": self.imbalance.tolist(),
                "mean": float(self.imbalance.mean()),
            },
            "bound": self.bound.tolist(),
            "gap": self.gap.tolist(),
            "cross_node_copies_per_token": float(self.copies.mean()),
            "windows": dict(zip(self.windows, self.by_window.tolist(), strict=False)),
            "moves": self.moves,
            "moved_bytes": self.moved_bytes,
            "trade_off": [
                {"imbalance": balance, "cross_node_copies_per_token": copies}
                for balance, copies in self.trade_off
            ],
            "trade_off_by_layer": [
                {"imbalance": balance, "cross_node_copies_per_token": copies}
                for balance, copies in self.by_layer
            ],
            "co_activation": None if self.compared is None else self.compared.document(),
            **shared,
            **({"left_out": left_out} if left_out else {}),
            "wall_s": self.wall_s,
            "seed": self.options.seed,
        }
