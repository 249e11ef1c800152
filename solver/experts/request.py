"""What a placement of experts is asked for."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.dispatch import Dispatch
from costmodel.experts.expert_load import ExpertLoads
from solver.experts.place import Effort

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Seconds of a search whose time is over: it constructs a placement, whatever they are.
_LEAST_S = 1e-3


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """What ``rackfit place`` is asked: chips, slots, nodes, router groups, dispatch and effort.

    ``objective`` says what several recorded windows are for: ``sum`` adds them up, ``mean`` and
    ``worst`` place for all of them at once. ``copy_cost`` is what one more remote copy per token
    costs, as a fraction of a layer's time with perfectly balanced experts. ``max_moves`` or ``max_bytes`` (with
    ``expert_bytes``, the weights of one expert of one layer) limit what a running placement may change.
    ``layer_slots``: ``slots`` in every layer, or on average, shared among the layers in whole ``rows`` (equally many
    on every GPU of a layer) or in ``any`` numbers.
    """

    gpus: int
    slots: int
    gpus_per_node: int | None = None
    groups: int = 1
    top_groups: int = 1
    top_k: int | None = None
    dispatch: Dispatch = "even"
    objective: Literal["sum", "mean", "worst"] = "mean"
    copy_cost: float = 0.2
    max_moves: int | None = None
    max_bytes: float | None = None
    expert_bytes: float | None = None
    effort: Effort = "good"
    time_limit_s: float | None = None
    workers: int = 1
    seed: int = 0
    layer_slots: Literal["same", "rows", "any"] = "same"

    def experts_per_token(self, num_experts: int) -> int:
        """``top_k``, by default 8 or all experts if there are fewer."""
        return min(8, num_experts) if self.top_k is None else self.top_k

    def most_moves(self) -> int | None:
        """Experts that may be written into slots, by number or by bytes; ``None`` without a limit."""
        if self.max_bytes is None or self.expert_bytes is None:
            return self.max_moves
        return math.floor(self.max_bytes / self.expert_bytes * (1 + 1e-12))

    def part_of_time(self, begun: float, parts: int) -> PlaceOptions:
        """The same request for the next of ``parts`` searches that share the time since ``begun`` (``time.monotonic``)."""
        if self.time_limit_s is None:
            return self
        left = begun + self.time_limit_s - time.monotonic()
        return replace(self, time_limit_s=max(left / parts, _LEAST_S))

    def slots_per_chip(self) -> tuple[int, ...]:
        """Slots of each chip: even, or the first chips one more."""
        least, more = divmod(self.slots, self.gpus)
        return (least + 1,) * more + (least,) * (self.gpus - more)


@dataclass(frozen=True, slots=True)
class Found:
    """A placement, its bound per layer, moves used, and points (imbalance, copies) of the trade-off.

    ``trade_off``: each placement tried, in all layers; ``by_layer``: the one chosen in each layer at
    growing worths of a copy.
    """

    physical_to_logical: Ints
    bound: Floats
    moves: int | None = None
    trade_off: list[tuple[float, float]] = field(default_factory=list)
    by_layer: list[tuple[float, float]] = field(default_factory=list)


def chooses_nodes(
    loads: ExpertLoads, options: PlaceOptions, moved: bool, together: bool = False
) -> bool:
    """Whether balance is weighed against copies to other nodes: one workload and several nodes, with
    router groups or with experts known to be used ``together``.

    ``moved``: from a running placement by few moves, where it is not.
    """
    several = options.objective != "sum" and len(loads.windows) > 1
    per_node = options.gpus_per_node or options.gpus
    known = together or options.groups > 1
    return not moved and not several and known and options.gpus > per_node
