r"""Token vectors from one group of chips to another, and back: attention to experts that lie apart.

Every source chip has token vectors, and each goes to ``top_k`` experts on the target chips. The way back is the reverse:
links carry as much either way. Two ways to stand:

*Both groups in one switched domain*, whose chips are all wired alike: a source sends ``min(top_k, targets)`` copies of a
vector through its own links, a target receives its copies through its own. Sending and receiving go on side by side.

*In different domains*: one copy of a vector goes to each domain of targets that holds some of its experts, through
the NICs and leaves of both sides, and is handed on inside that domain, as :mod:`topology.collectives.demand` says
of ``dispatch``. With ``d`` domains of targets a vector reaches one of them with ``1 - (1 - 1/d)^k``.

Seconds are those of the busiest link; what goes over different links goes on at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from topology.cluster import Cluster
from topology.collectives.demand import touched
from topology.errors import NoRoute, Problem
from topology.scaleout.base import Flow

#: positions of a group's chips, by domain
Members = dict[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Between:
    """What moving token vectors costs: ``latency_s + max(out b, through t, into r)`` seconds.

    ``b``: bytes of the vectors of the busiest source chip, before copying; ``t``: of those of all source chips together;
    ``r``: bytes of the copies that the busiest target chip gets. ``out_s_per_byte``, ``through_s_per_byte`` and
    ``into_s_per_byte`` belong to them. ``crossing``: bytes that leave the domains of the sources over all of ``t``, by
    domain; ``arriving``: that enter those of the targets; 0 in one domain. ``far_*``: what of it leaves or enters units.
    """

    latency_s: float
    out_s_per_byte: float
    through_s_per_byte: float
    into_s_per_byte: float
    crossing: dict[int, float]
    arriving: dict[int, float]
    far_crossing: dict[int, float]
    far_arriving: dict[int, float]


def between(
    cluster: Cluster, sources: Sequence[str], targets: Sequence[str], top_k: float
) -> Between:
    """The cost of moving token vectors between two groups of chips, at the links' full speed.

    Raises ``NoRoute`` where no working links join them, and where the groups share a domain that they do not have
    alone or whose chips are not wired alike.
    """
    own, other = _members(cluster, sources), _members(cluster, targets)
    copies = float(min(round(top_k), len(targets)))
    if set(own) == set(other) and len(own) == 1:
        return _inside(cluster, own, other, copies)
    if set(own) & set(other):
        message = "attention and experts share a domain and stand in others, too"
        raise NoRoute(Problem("apart", message))
    if cluster.network is None:
        raise NoRoute(Problem("scale_out", "the cluster has no network between its domains"))
    return _across(cluster, own, other, round(top_k))


def wired_alike(cluster: Cluster, domain: int) -> bool:
    """Whether :func:`between` prices two groups inside a domain: switches to which all chips have the same links."""
    fabric = cluster.domains[domain].fabric
    return fabric.kind == "nvswitch" and fabric.interchangeable_chips


def _members(cluster: Cluster, chips: Sequence[str]) -> Members:
    found: dict[int, list[int]] = {}
    for chip in chips:
        placed = cluster.chip(chip)
        found.setdefault(placed.domain, []).append(placed.position)
    return {domain: tuple(positions) for domain, positions in found.items()}


def _inside(cluster: Cluster, own: Members, other: Members, copies: float) -> Between:
    (domain,) = own
    if not wired_alike(cluster, domain):
        message = "attention and experts in one domain need switches to which all its chips have the same links"
        raise NoRoute(Problem(cluster.domains[domain].name, message))
    fabric = cluster.domains[domain].fabric
    slowest = [min(fabric.width(p) for p in group[domain]) for group in (own, other)]
    latency = fabric.send(own[domain][0], other[domain][0]).latency_s
    nothing = dict.fromkeys(own, 0.0)
    return Between(
        latency, copies / slowest[0], 0.0, 1.0 / slowest[1], nothing, nothing, nothing, nothing
    )


def _across(cluster: Cluster, own: Members, other: Members, top_k: int) -> Between:
    network = cluster.network
    assert network is not None
    total = sum(map(len, own.values()))
    held = {domain: len(positions) for domain, positions in other.items()}
    reach = {d: touched(count / sum(held.values()), top_k) for d, count in held.items()}
    unit = network.unit
    crossing, far = {}, {}
    for domain, positions in own.items():
        share = len(positions) / total
        crossing[domain] = share * sum(reach.values())
        far[domain] = share * sum(r for d, r in reach.items() if unit(d) != unit(domain))
    away = {d: sum(len(p) for o, p in own.items() if unit(o) != unit(d)) / total for d in other}
    far_in = {d: reach[d] * away[d] for d in other}
    # of one byte of a source chip, and of one byte of all of them together
    sent = [
        Flow(d, p, crossing[d] * total / len(p), far[d] * total / len(p)) for d, p in own.items()
    ]
    taken = [Flow(d, p, reach[d] / len(p), far_in[d] / len(p)) for d, p in other.items()]
    legs = [cluster.domains[d].fabric.exchange(p) for d, p in other.items()]
    return Between(
        latency_s=network.spec.floor_s + max(leg.latency_s for leg in legs),
        out_s_per_byte=network.carry(sent)[0],
        through_s_per_byte=network.carry(taken)[0],
        into_s_per_byte=max(leg.s_per_byte for leg in legs),
        crossing=crossing,
        arriving=reach,
        far_crossing=far,
        far_arriving=far_in,
    )
