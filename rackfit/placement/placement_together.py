"""What knowing the experts that tokens use together saves in copies to other nodes.

The placement found is compared with EPLB's and with random ones of the same replicas, each judged
on the tokens held out from the search where single tokens were recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.coactivation import CoActivation, together_copies
from costmodel.experts.dispatch import imbalance
from costmodel.experts.expert_load import ExpertLoads
from rackfit.placement.placement_search import loads_of
from topology.errors import InstanceError, Problem

if TYPE_CHECKING:
    from rackfit.placement.placement import PlaceOptions

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Random placements whose mean is compared with.
DRAWS = 8


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


def check_together(loads: ExpertLoads, options: PlaceOptions, moved: bool) -> None:
    """Raise ``InstanceError`` with everything that keeps co-activation from being used."""
    problems = []
    place = "--coactivation"
    per_node = options.gpus_per_node or options.gpus
    if per_node >= options.gpus:
        problems.append(
            Problem(place, "needs --gpus-per-node below --gpus: one node sends no copies")
        )
    elif per_node >= 1 and options.gpus % per_node == 0:
        nodes = options.gpus // per_node
        if loads.num_experts % nodes:
            text = f"{loads.num_experts} experts do not divide over {nodes} nodes"
            problems.append(Problem(place, text))
    if options.gpus >= 1 and options.slots % options.gpus:
        text = f"{options.slots} slots do not divide over {options.gpus} GPUs"
        problems.append(Problem(place, text))
    if options.groups > 1:
        text = "says more than --groups does; give one of them"
        problems.append(Problem(place, text))
    if options.objective != "sum" and len(loads.windows) > 1:
        text = f"needs one workload, not {len(loads.windows)} windows, or --objective sum"
        problems.append(Problem(place, text))
    if moved or options.most_moves() is not None:
        problems.append(Problem(place, "not with --current: few moves are chosen by load alone"))
    if problems:
        raise InstanceError(problems)


def compare(table: Ints, total: Floats, options: PlaceOptions, together: CoActivation) -> Compared:
    """The placement ``table [layers, slots]`` beside EPLB's and random ones."""
    from solver.experts.eplb import eplb

    theirs = eplb(total, options.slots, options.gpus)
    rng = np.random.default_rng(options.seed)
    draws = [judge(rng.permuted(theirs, axis=1), total, options, together) for _ in range(DRAWS)]
    return Compared(
        together.source,
        together.top_k,
        0 if together.picks is None else len(together.picks),
        0 if together.held_out is None else len(together.held_out),
        together.dropped,
        judge(table, total, options, together),
        judge(theirs, total, options, together),
        mean(draws),
    )


def judge(table: Ints, total: Floats, options: PlaceOptions, together: CoActivation) -> Judged:
    """Balance and copies of one placement."""
    per_node = options.gpus_per_node or options.gpus
    node = np.arange(options.slots) // (options.slots // options.gpus * per_node)
    balance = float(imbalance(loads_of(table, total, options)).mean())
    local_first = options.dispatch == "sglang-static"
    copies = together_copies(table, together, node, local_first=local_first)
    if together.held_out is None:
        least, most = float(copies.least.mean()), float(copies.most.mean())
        return Judged(balance, float(copies.value.mean()), None, least, most)
    later = together_copies(table, together, node, local_first=local_first, held_out=True)
    return Judged(balance, float(later.value.mean()), float(copies.value.mean()), None, None)


def mean(draws: list[Judged]) -> Judged:
    """The mean of several judged placements; one without a bound or a figure has none."""

    def over(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    return Judged(
        sum(draw.imbalance for draw in draws) / len(draws),
        sum(draw.copies for draw in draws) / len(draws),
        over([draw.searched for draw in draws]),
        over([draw.least for draw in draws]),
        over([draw.most for draw in draws]),
    )
