"""What a replica's collectives cost: rates of its groups, derived from the cluster's links.

A collective of a fixed set of chips costs ``latency + seconds_per_byte * bytes``. The topology gives
both from the graph; the profile says which fraction of the links' rate the engine achieves. Where the
question names an engine, routed experts exchange tokens as its backend does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costmodel.passes.operations import Operations
from costmodel.question.profile import Efficiency
from topology import Cluster, Rate
from topology.errors import NoRoute

Array = NDArray[np.float64]


@dataclass(frozen=True)
class GroupRates:
    """Rates of one group of chips (floats) or of many groups (arrays of one length).

    ``reduce``: all-reduce over one attention rank (``tp`` chips). ``dispatch``: tokens to experts
    over the whole group, per byte of token vectors sourced by a chip; combine is its reverse.
    ``send``: stage hand-off between neighbouring stages, per byte and chip. ``skewed``: 1 where the busiest
    receiver stretches the exchange, 0 where every chip receives all tokens. ``widening``: bytes of a
    dispatched element over those that the model's dispatch takes. ``most_sequences``: of a rank in a
    decode pass, that the exchange has room for.
    """

    reduce_latency_s: Array
    reduce_s_per_byte: Array
    dispatch_latency_s: Array
    dispatch_s_per_byte: Array
    send_latency_s: Array
    send_s_per_byte: Array
    skewed: Array = field(default_factory=lambda: np.ones(()))
    widening: Array = field(default_factory=lambda: np.ones(()))
    most_sequences: Array = field(default_factory=lambda: np.full((), np.inf))

    @classmethod
    def side_by_side(cls, rates: Sequence[GroupRates]) -> GroupRates:
        """The groups of several arrays as one array."""
        return cls(
            *(
                np.concatenate([getattr(one, name) for one in rates])
                for name in cls.__dataclass_fields__
            )
        )

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_] | slice) -> GroupRates:
        """The groups picked by ``index``."""
        return GroupRates(*(getattr(self, name)[index] for name in self.__dataclass_fields__))


def hand_off_s(operations: Operations, rates: GroupRates, rows: ArrayLike, tp: ArrayLike) -> Array:
    """Seconds for which a stage sends the activations of ``rows`` tokens per rank to the next one."""
    sent = np.asarray(rows) / tp * operations.hidden_size * operations.activation_bytes
    return rates.send_latency_s + rates.send_s_per_byte * sent


_NONE = (0.0, 0.0)
#: seconds of a transfer between chips that no working link joins: finite, so that 0 times it is 0;
#: and seconds that no sum or mean without such a transfer reaches
NEVER_S, AGES_S = 1e18, 1e12
_NEVER = (NEVER_S, 0.0)


def joined(rates: GroupRates) -> NDArray[np.bool_]:
    """Whether working links join the chips of each group and of the next stage."""
    slowest = np.maximum(rates.reduce_latency_s, rates.dispatch_latency_s)
    return np.asarray(np.maximum(slowest, rates.send_latency_s) < AGES_S)


@dataclass(frozen=True)
class Moved:
    """How tokens reach the experts of a replica; by default all-to-all with room for any number.

    ``gathers``: every chip receives all tokens. ``widening`` and ``most_sequences`` as in :class:`GroupRates`.
    """

    gathers: bool = False
    widening: float = 1.0
    most_sequences: float = float("inf")

    @property
    def collective(self) -> str:
        """The topology's collective that moves the tokens."""
        return "all-gather" if self.gathers else "dispatch"

    def rate(
        self, find: Callable[[], Rate], chips: int, efficiency: Efficiency
    ) -> tuple[float, float]:
        """Latency and seconds per byte that a chip sources; a gathered tensor is that of all ``chips``."""
        if not self.gathers:
            return achieved(find, efficiency.all_to_all)
        latency_s, s_per_byte = achieved(find, efficiency.all_reduce)
        return latency_s, s_per_byte * chips

    @property
    def numbers(self) -> tuple[float, float, float]:
        """``skewed``, ``widening`` and ``most_sequences``."""
        return float(not self.gathers), self.widening, self.most_sequences


ALL_TO_ALL = Moved()


def stack_rates(rates: Sequence[GroupRates]) -> GroupRates:
    """Many single groups as one of arrays."""
    return GroupRates(
        *(
            np.array([float(getattr(rate, name)) for rate in rates])
            for name in GroupRates.__dataclass_fields__
        )
    )


def achieved(find: Callable[[], Rate], fraction: float) -> tuple[float, float]:
    """Latency and seconds per byte of a rate at ``fraction`` of the links' bandwidth; never, without a route."""
    try:
        rate = find()
    except NoRoute:
        return _NEVER
    return rate.latency_s, rate.s_per_byte / fraction


def rates_of_chips(
    cluster: Cluster,
    stages: Sequence[Sequence[str]],
    tp: int,
    top_k: float,
    efficiency: Efficiency,
    moved: Moved = ALL_TO_ALL,
) -> list[GroupRates]:
    """Rates of each stage of a replica on named chips; the slowest rank decides for all ranks."""
    found = _of_stages(cluster, stages, tp, top_k, efficiency, moved)
    return [GroupRates(*(np.asarray(value) for value in own)) for own in found]


def stacked_rates_of_chips(
    cluster: Cluster,
    stages: Sequence[Sequence[str]],
    tp: int,
    top_k: float,
    efficiency: Efficiency,
    moved: Moved = ALL_TO_ALL,
) -> GroupRates:
    """As :func:`rates_of_chips`, all stages as one of arrays."""
    found = _of_stages(cluster, stages, tp, top_k, efficiency, moved)
    return GroupRates(*np.array(found).T)


def _of_stages(
    cluster: Cluster,
    stages: Sequence[Sequence[str]],
    tp: int,
    top_k: float,
    efficiency: Efficiency,
    moved: Moved,
) -> list[tuple[float, ...]]:
    """Numbers of :class:`GroupRates` of each stage."""
    result: list[tuple[float, ...]] = []
    for index, chips in enumerate(stages):
        reduce = _NONE
        if tp > 1:
            found = [
                achieved(partial(cluster.rate, "all-reduce", r), efficiency.all_reduce)
                for r in ranks_of(chips, tp)
            ]
            reduce = _slowest(found)
        dispatch = _NONE
        if top_k and len(chips) > 1:
            find = partial(exchange_rate, cluster, chips, top_k, moved)
            dispatch = moved.rate(find, len(chips), efficiency)
        send = _NONE
        if len(stages) > 1:
            following = stages[(index + 1) % len(stages)]
            found = [
                achieved(partial(cluster.rate, "send", pair), efficiency.all_to_all)
                for pair in zip(chips, following, strict=False)
            ]
            send = _slowest(found)
        result.append((*reduce, *dispatch, *send, *moved.numbers))
    return result


def ranks_of(chips: Sequence[str], tp: int) -> list[Sequence[str]]:
    """The chips of each attention rank of a stage; none where a rank is one chip, which reduces nothing."""
    return [chips[start : start + tp] for start in range(0, len(chips) if tp > 1 else 0, tp)]


def crossing(cluster: Cluster, rank: Sequence[str]) -> set[int]:
    """Domains between which a rank's all-reduces go; empty where all of its (known) chips lie in one."""
    homes = {cluster.chip(chip).domain for chip in rank if chip in cluster}
    return homes if len(homes) > 1 else set()


def exchange_rate(cluster: Cluster, chips: Sequence[str], top_k: float, moved: Moved) -> Rate:
    """The topology's rate of the collective that moves tokens between these chips."""
    return cluster.rate(moved.collective, chips, top_k=None if moved.gathers else round(top_k))


def _slowest(found: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Of latencies and seconds per byte the slowest pair, by bytes unless a route is missing."""
    return _NEVER if _NEVER in found else max(found, key=lambda pair: (pair[1], pair[0]))
