"""All replicas together: who serves how many requests, what crosses the network, what it costs.

Prefill and decode pools meet at the smaller of their rates; mixed replicas add their own. The KV of
a request moves from its prefill replica to a decode replica, inside a domain where that is possible.
"""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.replica.replica import ReplicaPrice
from costmodel.tolerance import RELATIVE, exceeds
from topology import Cluster


@dataclass(frozen=True)
class PricedLayout:
    """Prices of every replica and what they add up to.

    ``requests_per_s`` is what the fleet serves; ``transfer_s`` each prefill replica's KV hand-over
    to the farthest decode replica, part of TTFT; ``egress_bytes_per_s`` by domain index.
    """

    replicas: tuple[ReplicaPrice, ...]
    requests_per_s: float
    prefill_per_s: float
    decode_per_s: float
    mixed_per_s: float
    transfer_s: tuple[float, ...]
    egress_bytes_per_s: dict[int, float]

    def ttft_s(self, index: int) -> float:
        """Worst-case time to first token through one replica (0 for a decode replica)."""
        return float(self.replicas[index].service.ttft_s) + self.transfer_s[index]

    def ttft_mean_s(self, index: int) -> float:
        """Mean time to first token through one replica (0 for a decode replica)."""
        return float(self.replicas[index].service.ttft_mean_s) + self.transfer_s[index]


NOTHING = PricedLayout((), 0.0, 0.0, 0.0, 0.0, (), {})


def price_fleet(
    instance: Instance, layout: Layout, prices: tuple[ReplicaPrice, ...]
) -> PricedLayout:
    """Add up priced replicas."""
    rates = {"prefill": 0.0, "decode": 0.0, "mixed": 0.0}
    for replica, price in zip(layout.replicas, prices, strict=True):
        rates[replica.role] += float(price.service.requests_per_s)
    pooled = min(rates["prefill"], rates["decode"])
    egress: dict[int, float] = {}
    for price in prices:
        for domain, load in price.egress_bytes_per_s.items():
            egress[domain] = egress.get(domain, 0.0) + load
    moved = request_kv_bytes(instance)
    if pooled:
        surplus = _transfer_egress(instance, layout, prices, rates, pooled, moved)
        for domain, load in surplus.items():
            egress[domain] = egress.get(domain, 0.0) + load
    return PricedLayout(
        replicas=prices,
        requests_per_s=pooled + rates["mixed"],
        prefill_per_s=rates["prefill"],
        decode_per_s=rates["decode"],
        mixed_per_s=rates["mixed"],
        transfer_s=_transfer_s(instance, layout, moved),
        egress_bytes_per_s=egress,
    )


def request_kv_bytes(instance: Instance) -> float:
    """Bytes of KV that one prefilled prompt hands over."""
    return instance.request_kv_bytes


def transfer_bytes_per_chip(instance: Instance, tp: float, pp: float) -> float:
    """Bytes of one request's KV that each sending chip moves: shards travel side by side."""
    return request_kv_bytes(instance) / (tp * pp)


def _transfer_s(instance: Instance, layout: Layout, request_bytes: float) -> tuple[float, ...]:
    """Hand-over time of each prefill replica to the farthest decode replica (0 for other roles)."""
    cluster = instance.cluster
    targets: dict[int, str] = {}
    for replica in layout.replicas:
        if replica.role == "decode":
            chip = replica.stages[0].chips[0]
            targets.setdefault(cluster.chip(chip).domain, chip)
    moves: dict[tuple[object, ...], float] = {}
    result = []
    for replica in layout.replicas:
        if replica.role != "prefill":
            result.append(0.0)
            continue
        source = replica.stages[0].chips[0]
        key = (cluster.chip(source).domain, replica.shape.tp, replica.shape.pp)
        if key not in moves:
            moved = request_bytes / (replica.shape.tp * replica.shape.pp)
            moves[key] = max(
                (cluster.rate("send", (source, target)).time(moved) for target in targets.values()),
                default=0.0,
            )
        result.append(moves[key])
    return tuple(result)


def _transfer_egress(
    instance: Instance,
    layout: Layout,
    prices: tuple[ReplicaPrice, ...],
    rates: dict[str, float],
    pooled: float,
    request_bytes: float,
) -> dict[int, float]:
    """KV bytes per second leaving each domain: what its own decode replicas cannot take."""
    surplus: dict[int, float] = {}
    for replica, price in zip(layout.replicas, prices, strict=True):
        if replica.role == "mixed":
            continue
        sign = 1.0 if replica.role == "prefill" else -1.0
        share = pooled / rates[replica.role] * float(price.service.requests_per_s)
        home = instance.cluster.chip(replica.stages[0].chips[0]).domain
        surplus[home] = surplus.get(home, 0.0) + sign * share
    # what is left of equal rates after rounding is no traffic
    return {
        home: extra * request_bytes
        for home, extra in surplus.items()
        if exceeds(extra, RELATIVE * pooled)
    }


def uplink_bytes_per_s(cluster: Cluster, domain: int) -> float:
    """What a domain can send to others: its healthy chips' NICs, over the oversubscription."""
    if cluster.network is None:
        return 0.0
    nics = cluster.network.nic_profile(domain)
    working = sum(
        nics[placed.position] for placed in cluster.domains[domain].chips if placed.healthy
    )
    return working / max(cluster.network.spec.oversubscription, 1.0)
