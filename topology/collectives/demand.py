"""What each collective moves: inside a domain, through each NIC, out of each unit.

Byte conventions of the argument (per chip, as NCCL-tests counts):

==================  ===============================================================
all-gather          the whole gathered tensor (each chip contributes 1/n of it)
reduce-scatter      the whole tensor each chip puts in (each keeps 1/n of it)
all-reduce          the tensor each chip holds before and after
all-to-all          what each chip sources in total, 1/n of it for each chip, itself included
dispatch            token vectors sourced per chip *before* copying to ``top_k`` destinations
broadcast           the message
send                the message
==================  ===============================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import Literal, NamedTuple, get_args

from topology.errors import InstanceError, Problem

Kind = Literal[
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "dispatch", "broadcast", "send"
]
KINDS: tuple[str, ...] = get_args(Kind)

#: Pattern on the scale-up fabric that each collective uses there.
Pattern = Literal["exchange", "gather", "reduce_all", "broadcast", "send"]
PATTERN: Mapping[str, Pattern] = {
    "all-reduce": "reduce_all",
    "all-gather": "gather",
    "reduce-scatter": "gather",
    "all-to-all": "exchange",
    "dispatch": "exchange",
    "broadcast": "broadcast",
    "send": "send",
}

#: Collectives whose partial results double with every crossing of the scale-out: reduced up a tree, spread down it, or both.
_UP_OR_DOWN: Mapping[str, int] = {
    "all-reduce": 2,
    "all-gather": 1,
    "reduce-scatter": 1,
    "broadcast": 1,
}


def crossings(kind: str, domains: int) -> int:
    """How often a collective crosses the scale-out one after the other (latency).

    Sums and copies go over trees of *ceil(log2 domains)* steps, as NCCL's do; in ``all-to-all``, ``dispatch`` and ``send`` every chip sends straight to
    every other. *Source:* Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.
    """
    if domains < 2:
        return 0
    return max(1, _UP_OR_DOWN.get(kind, 0) * ceil(log2(domains)))


class Dispatched(NamedTuple):
    """How tokens of ``dispatch`` are copied; other collectives do not read it.

    Each goes to ``top_k`` destinations, with ``one_copy_per_domain`` once to each remote domain that holds some of
    them, and reaches ``max_domains`` domains at most (group-limited routing; ``None``: any number).
    """

    top_k: int | None = None
    one_copy_per_domain: bool = True
    max_domains: int | None = None


#: of collectives that copy no tokens
NOT_DISPATCHED = Dispatched()


@dataclass(frozen=True, slots=True)
class DomainTraffic:
    """Per byte of the argument, for the chips of one domain.

    ``local`` is the byte count handed to the scale-up pattern, ``cross`` what one member's NIC
    carries (the larger of its two directions), ``far`` the part that leaves the unit. No
    algorithm avoids ``cross_bound`` through the NICs and ``chip_bound`` into or out of each chip.
    """

    local: float
    cross: float
    far: float
    cross_bound: float
    chip_bound: float


def touched(share: float, top_k: int) -> float:
    """Probability that a group with this share of all destinations gets one of ``top_k``: *1-(1-s)^k*."""
    return float(1.0 - (1.0 - share) ** top_k)


def touched_limited(share: float, top_k: int, num_domains: int, max_domains: int) -> float:
    """As :func:`touched` when a token may reach ``max_domains`` of the domains only.

    The domains are chosen evenly (*g/M* each), the copies fall on the chosen ones:
    *g/M (1 - (1 - s M/g)^k)*. This is group-limited routing with one group per domain.
    """
    if max_domains >= num_domains:
        return touched(share, top_k)
    chosen = max_domains / num_domains
    return chosen * touched(min(1.0, share / chosen), top_k)


def shares(
    kind: str,
    counts: Sequence[int],
    units: Sequence[int],
    dispatched: Dispatched = NOT_DISPATCHED,
    *,
    relayed: bool,
    repeats: Sequence[int] | None = None,
    units_apart: bool = False,
) -> list[DomainTraffic]:
    """The :class:`DomainTraffic` of each domain of a group.

    ``counts`` are members per domain, ``units`` the unit of each domain, ``repeats`` how many
    such domains there are (one each by default), all in that unit or, with ``units_apart``, each
    in a unit like it; ``relayed`` as in ``NetworkSpec``. *Source:* all-gather and all-to-all on trees, scaling-book (GPU chapter);
    expected remote copies *1-(1-s)^k* per domain, after MoE dispatch with one copy per domain.
    """
    top_k, one_copy_per_domain, max_domains = dispatched
    repeats = [1] * len(counts) if repeats is None else repeats
    total = sum(count * times for count, times in zip(counts, repeats, strict=True))
    unit_total: dict[int, int] = {}
    for count, unit, times in zip(counts, units, repeats, strict=True):
        beside = 1 if units_apart else times
        unit_total[unit] = unit_total.get(unit, 0) + count * beside
    if kind == "dispatch":
        if top_k is None or top_k < 1:
            raise InstanceError(Problem("top_k", "dispatch needs top_k >= 1"))
        if one_copy_per_domain:
            if max_domains is not None and max_domains < 1:
                raise InstanceError(Problem("max_domains", "must be at least 1"))
            limit = max_domains or sum(repeats)
            return _deduplicated(counts, units, repeats, total, top_k, units_apart, limit)
    result = []
    others = (total - 1) / total
    copies = min(top_k or 1, total) if kind == "dispatch" else 1
    for count, unit in zip(counts, units, strict=True):
        away, far = (total - count) / total, (total - unit_total[unit]) / total
        if kind in ("all-to-all", "dispatch"):
            local = float(copies) if relayed and away else copies * count / total
            bound = copies * away
            if kind == "dispatch":
                bound = touched(count / total, copies) * (total - count) / count
            result.append(
                DomainTraffic(
                    local, copies * away, copies * far, min(bound, copies * away), copies * others
                )
            )
        elif kind in ("all-gather", "reduce-scatter", "all-reduce"):
            rounds = 2 if kind == "all-reduce" else 1
            # arriving shards against the own shard sent to every other domain
            cross = rounds * max(away / count, (sum(repeats) - 1) / total)
            bound = (1.0 if away else 0.0) / count if kind == "all-reduce" else cross
            chip = 1.0 if kind == "all-reduce" else others
            result.append(DomainTraffic(1.0, cross, rounds * far / unit_total[unit], bound, chip))
        else:  # broadcast: each NIC carries its share of one copy, then it spreads inside
            cross = 1.0 / count if away else 0.0
            entering = 1.0 / unit_total[unit] if far else 0.0
            result.append(DomainTraffic(1.0, cross, entering, cross, 1.0))
    return result


def _deduplicated(
    counts: Sequence[int],
    units: Sequence[int],
    repeats: Sequence[int],
    total: int,
    top_k: int,
    units_apart: bool,
    max_domains: int,
) -> list[DomainTraffic]:
    domains = sum(repeats)
    reach = [touched_limited(count / total, top_k, domains, max_domains) for count in counts]
    all_reach = sum(value * times for value, times in zip(reach, repeats, strict=True))
    unit_reach: dict[int, float] = {}
    for unit, value, times in zip(units, reach, repeats, strict=True):
        beside = 1 if units_apart else times
        unit_reach[unit] = unit_reach.get(unit, 0.0) + value * beside
    result = []
    copies = float(min(top_k, total))
    for count, unit, value in zip(counts, units, reach, strict=True):
        leaving = all_reach - value
        arriving = (total - count) * value / count
        far = all_reach - unit_reach[unit]
        cross = max(leaving, arriving)
        result.append(DomainTraffic(copies, cross, far, cross, copies * (total - 1) / total))
    return result


def check_kind(kind: str, num_chips: int) -> None:
    """Raise ``InstanceError`` for an unknown collective, or one that these chips cannot run."""
    if kind not in KINDS:
        message = f"unknown collective {kind!r}; known: {', '.join(KINDS)}"
        raise InstanceError(Problem("kind", message))
    if kind == "send" and num_chips != 2:
        raise InstanceError(
            Problem("chips", f"send takes two chips, source and target; got {num_chips}")
        )
