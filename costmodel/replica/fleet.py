"""All replicas together: who serves how many requests, what crosses the network, what it costs.

Prefill and decode pools meet at the smaller of their rates, or at what the links between them carry
(:mod:`costmodel.replica.hand_over`); mixed replicas add their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from costmodel.layout.layout import Layout, Replica
from costmodel.question.instance import Instance
from costmodel.replica.hand_over import Carried, Rates, carried, gate, room_beside, send_s
from costmodel.replica.replica import ReplicaPrice
from costmodel.tolerance import RELATIVE, exceeds
from topology import Cluster

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Crossings:
    """Bytes/s over the cuts of the scale-out: out of and into each domain and each unit."""

    out: Array
    into: Array
    unit_out: Array
    unit_into: Array


@dataclass(frozen=True)
class PricedLayout:
    """Prices of every replica and what they add up to.

    ``requests_per_s`` is what the fleet serves, ``pooled_per_s`` of it the prefill and decode replicas
    together; ``transfer_s`` each prefill replica's KV hand-over to the farthest decode replica that it
    sends to, part of TTFT (``None``: it can send to none). ``passes``: bytes/s that the replicas' own passes
    move between domains; ``crossings``: with the hand-over.
    """

    replicas: tuple[ReplicaPrice, ...]
    requests_per_s: float
    pooled_per_s: float
    prefill_per_s: float
    decode_per_s: float
    mixed_per_s: float
    transfer_s: tuple[float | None, ...]
    passes: Crossings
    crossings: Crossings

    def ttft_s(self, index: int) -> float:
        """Worst-case time to first token through one replica (0 for a decode replica)."""
        return float(self.replicas[index].service.ttft_s) + (self.transfer_s[index] or 0.0)

    def ttft_mean_s(self, index: int) -> float:
        """Mean time to first token through one replica (0 for a decode replica)."""
        return float(self.replicas[index].service.ttft_mean_s) + (self.transfer_s[index] or 0.0)

    @property
    def held_back_by_links(self) -> bool:
        """Whether prefill and decode replicas could serve more if links carried more KV."""
        return exceeds(min(self.prefill_per_s, self.decode_per_s), self.pooled_per_s)

    def egress_bytes_per_s(self, domain: int) -> float:
        """Bytes per second that leave a domain."""
        return float(self.crossings.out[domain])


_NO_BYTES = Crossings(*(np.zeros(0) for _ in range(4)))
NOTHING = PricedLayout((), 0.0, 0.0, 0.0, 0.0, 0.0, (), _NO_BYTES, _NO_BYTES)


def price_fleet(
    instance: Instance, layout: Layout, prices: tuple[ReplicaPrice, ...]
) -> PricedLayout:
    """Add up priced replicas."""
    rates = {"prefill": 0.0, "decode": 0.0, "mixed": 0.0}
    for replica, price in zip(layout.replicas, prices, strict=True):
        rates[replica.role] += float(price.service.requests_per_s)
    passes = _passes(instance.cluster, prices)
    transfers = _Transfers(instance, layout)
    moved = request_kv_bytes(instance)
    pooled, crossings = min(rates["prefill"], rates["decode"]), passes
    shipped = np.zeros(len(instance.cluster.domains))
    if pooled:
        room = room_beside(instance.cluster.uplinks, passes.out, passes.unit_out, moved)
        found = carried(_rates(instance, layout, prices, transfers), room)
        # sums in another order differ by rounding
        pooled = min(pooled, found.requests_per_s * (1 + RELATIVE))
        shipped = found.out
        crossings = _with_hand_over(passes, found, moved)
    leaving = shipped > RELATIVE * max(pooled, 1e-300)
    return PricedLayout(
        replicas=prices,
        requests_per_s=pooled + rates["mixed"],
        pooled_per_s=pooled,
        prefill_per_s=rates["prefill"],
        decode_per_s=rates["decode"],
        mixed_per_s=rates["mixed"],
        transfer_s=tuple(
            transfers.seconds(replica, price, leaving)
            for replica, price in zip(layout.replicas, prices, strict=True)
        ),
        passes=passes,
        crossings=crossings,
    )


def request_kv_bytes(instance: Instance) -> float:
    """Bytes of KV that one prefilled prompt hands over."""
    return instance.request_kv_bytes


def transfer_bytes_per_chip(instance: Instance, tp: float, pp: float) -> float:
    """Bytes of one request's KV that each sending chip moves: shards travel side by side."""
    return request_kv_bytes(instance) / (tp * pp)


def domain_shares(cluster: Cluster, chips: Sequence[str]) -> dict[int, float]:
    """Share of some chips in each domain, in order of first use."""
    counts: dict[int, int] = {}
    for chip in chips:
        home = cluster.chip(chip).domain
        counts[home] = counts.get(home, 0) + 1
    return {home: count / len(chips) for home, count in counts.items()}


class _Transfers:
    """KV hand-over times of prefill replicas: inside their domain, and to the farthest decode replica."""

    def __init__(self, instance: Instance, layout: Layout):
        self.instance, cluster = instance, instance.cluster
        self.homes = cache(lambda chips: domain_shares(cluster, chips))
        #: a chip of a decode replica in each domain, and the one that traffic from outside goes to
        self.inside: dict[int, str] = {}
        self.gates: dict[int, str] = {}
        for replica in layout.replicas:
            if replica.role == "decode":
                homes = self.homes(replica.kv_chips)
                if len(homes) == 1:
                    self.inside.setdefault(next(iter(homes)), replica.chips[0])
                for home in homes:
                    if home in self.gates:
                        continue
                    found = gate(
                        cluster, [c for c in replica.kv_chips if cluster.chip(c).domain == home]
                    )
                    if found is not None:
                        self.gates[home] = found[0]
        self._known: dict[tuple[object, ...], tuple[float | None, float | None]] = {}
        #: by replica of the layout
        self._times: dict[int, tuple[float | None, float | None]] = {}
        #: gates that are reached in one time from wherever is in their unit, and from wherever is not
        self._alike: dict[tuple[object, ...], dict[int, list[tuple[int, str]]]] = {}
        for home, chip in self.gates.items():
            key, unit = self._reached(home, chip)
            self._alike.setdefault(key, {}).setdefault(unit, []).append((home, chip))

    def _reached(self, home: int, chip: str) -> tuple[tuple[object, ...], int]:
        """What decides how soon a chip is reached from another domain, and its unit."""
        network, place = self.instance.cluster.network, self.instance.cluster.chip(chip).position
        if network is None:
            return (home,), 0
        unit, rails = network.unit(home), network.spec.rails
        ups = tuple(network.leaf_bytes_per_s(unit, rail) for rail in range(rails))
        return (self.instance.cluster.first_alike(home), place, ups), unit

    def _targets(self, home: int) -> list[str]:
        """A gate of each kind in other domains: one in the unit of ``home``, and one elsewhere."""
        network = self.instance.cluster.network
        here = 0 if network is None else network.unit(home)
        found = []
        for units in self._alike.values():
            found += [chip for domain, chip in units.get(here, ())[:2] if domain != home][:1]
            found += [gates[0][1] for unit, gates in islice(units.items(), 2) if unit != here][:1]
        return found

    def near_and_far(self, replica: Replica) -> tuple[float | None, float | None]:
        """Seconds inside the replica's domain and to the farthest other one (``None``: there is none).

        A replica over several domains sends from each of them, to others or inside where there is no other.
        """
        if id(replica) not in self._times:
            self._times[id(replica)] = self._near_and_far(replica)
        return self._times[id(replica)]

    def _near_and_far(self, replica: Replica) -> tuple[float | None, float | None]:
        times = [self._from(home, replica) for home in self.homes(replica.kv_chips)]
        if len(times) == 1:
            return times[0]
        sent = [near if far is None else far for near, far in times]
        known = [one for one in sent if one is not None]
        return None, max(known) if len(known) == len(sent) else None

    def _from(self, home: int, replica: Replica) -> tuple[float | None, float | None]:
        """The same from the replica's chips in one domain: those of its first stage there."""
        cluster, shape = self.instance.cluster, replica.shape
        own = (
            tuple(chip for chip in stage.chips if cluster.chip(chip).domain == home)
            for stage in replica.stages
        )
        here = next(chips for chips in own if chips)
        source = gate(cluster, here)
        key = (
            home,
            source,
            shape.tp,
            shape.pp,
            cluster.domains[home].interchangeable_chips or here,
        )
        if key not in self._known:
            moved = transfer_bytes_per_chip(self.instance, shape.tp, shape.pp)
            inside = self.inside.get(home)
            targets = self._targets(home)
            near = None if inside is None else send_s(cluster, (here[0], 1.0), [inside], moved)
            self._known[key] = near, send_s(cluster, source, targets, moved)
        return self._known[key]

    def may_leave(self, replica: Replica, price: ReplicaPrice) -> bool:
        """Whether KV goes to another domain: where that is in time, or where the target is missed anyway.

        A layout that misses its TTFT target is a violation, and it is priced nevertheless.
        """
        near, far = self.near_and_far(replica)
        target, own_s = self.instance.slo.ttft, float(price.service.ttft_s)
        if far is None or target is None or near is None or exceeds(own_s + near, target):
            return far is not None
        return not exceeds(own_s + far, target)

    def seconds(
        self, replica: Replica, price: ReplicaPrice, leaving: NDArray[np.bool_]
    ) -> float | None:
        """Hand-over time of a replica, where the domains that are ``leaving`` send KV to others."""
        if replica.role != "prefill" or not (self.gates or self.inside):
            return 0.0
        near, far = self.near_and_far(replica)
        homes = self.homes(replica.kv_chips)
        if len(homes) > 1 or near is None:
            return far
        if leaving[next(iter(homes))] and self.may_leave(replica, price) and far is not None:
            return max(near, far)
        return near


def _rates(
    instance: Instance, layout: Layout, prices: Sequence[ReplicaPrice], transfers: _Transfers
) -> Rates:
    """What each domain's replicas could hand over and take."""
    rates = Rates(*(np.zeros(len(instance.cluster.domains)) for _ in range(5)))
    for replica, price in zip(layout.replicas, prices, strict=True):
        if replica.role == "mixed":
            continue
        rate = float(price.service.requests_per_s)
        homes = transfers.homes(replica.kv_chips)
        supplies = replica.role == "prefill"
        leaves = supplies and transfers.may_leave(replica, price)
        for home, share in homes.items():
            if len(homes) > 1:
                if not supplies or leaves:
                    (rates.wide_supply if supplies else rates.wide_demand)[home] += share * rate
                continue
            (rates.supply if supplies else rates.demand)[home] += rate
            if leaves:
                rates.leaving[home] += rate
    return rates


def _passes(cluster: Cluster, prices: Sequence[ReplicaPrice]) -> Crossings:
    """What the replicas' own passes move, as much out of a domain as into it."""
    links = cluster.uplinks
    domains, units = np.zeros(len(links.domain)), np.zeros(len(links.unit))
    for price in prices:
        for domain, load in price.egress_bytes_per_s.items():
            domains[domain] += load
        for domain, load in price.far_bytes_per_s.items():
            units[links.unit_of[domain]] += load
    return Crossings(domains, domains, units, units)


def _with_hand_over(passes: Crossings, found: Carried, request_bytes: float) -> Crossings:
    return Crossings(
        passes.out + found.out * request_bytes,
        passes.into + found.into * request_bytes,
        passes.unit_out + found.unit_out * request_bytes,
        passes.unit_into + found.unit_into * request_bytes,
    )


def uplink_bytes_per_s(cluster: Cluster, domain: int) -> float:
    """What a domain can send to others, through its NICs and the leaves that are its own."""
    return cluster.uplinks.narrowest(domain)
