"""All replicas together: who serves how many requests, what crosses the network, what it costs.

Prefill and decode pools meet at the smaller of their rates; mixed replicas add their own. The KV of
a request moves from its prefill replica to a decode replica, inside a domain where that is possible.
"""

from __future__ import annotations

from dataclasses import dataclass

from costmodel import memory
from costmodel.instance import Instance
from costmodel.layout import Layout, Replica
from costmodel.replica import ReplicaPrice


@dataclass(frozen=True)
class PricedLayout:
    """Prices of every replica and what they add up to.

    ``requests_per_s`` is what the fleet serves; ``transfer_s`` the KV hand-over from prefill to
    decode, worst pair of replicas, part of TTFT; ``egress_bytes_per_s`` by domain index.
    """

    replicas: tuple[ReplicaPrice, ...]
    requests_per_s: float
    prefill_per_s: float
    decode_per_s: float
    mixed_per_s: float
    transfer_s: float
    egress_bytes_per_s: dict[int, float]

    def ttft_s(self, index: int, role: str) -> float:
        """Worst-case time to first token through one replica (0 for a decode replica)."""
        own = float(self.replicas[index].service.ttft_s)
        return own + self.transfer_s if role == "prefill" else own


NOTHING = PricedLayout((), 0.0, 0.0, 0.0, 0.0, 0.0, {})


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
    if pooled:
        for domain, load in _transfer_egress(instance, layout, prices, rates, pooled).items():
            egress[domain] = egress.get(domain, 0.0) + load
    return PricedLayout(
        replicas=prices,
        requests_per_s=pooled + rates["mixed"],
        prefill_per_s=rates["prefill"],
        decode_per_s=rates["decode"],
        mixed_per_s=rates["mixed"],
        transfer_s=_transfer_s(instance, layout) if pooled else 0.0,
        egress_bytes_per_s=egress,
    )


def request_kv_bytes(instance: Instance) -> float:
    """Bytes of KV that one prefilled prompt hands over."""
    layers = [(kind, float(len(kind.layers))) for kind in instance.operations.kinds]
    return float(
        memory.kv_bytes_per_sequence(
            instance.operations, layers, 1.0, instance.workload.input_tokens
        )
    )


def transfer_rate_bytes(instance: Instance, source: Replica, target: Replica) -> float:
    """Bytes of one request's KV that each sending chip moves: shards travel side by side."""
    lanes = min(
        source.shape.tp * source.shape.pp,
        target.shape.tp * target.shape.pp,
    )
    return request_kv_bytes(instance) / lanes


def _transfer_s(instance: Instance, layout: Layout) -> float:
    """Hand-over time of the worst prefill-decode pair (one pair for each kind and place)."""
    cluster = instance.cluster
    sides: dict[str, dict[tuple[int, int, int], Replica]] = {"prefill": {}, "decode": {}}
    for replica in layout.replicas:
        if replica.role in sides:
            home = cluster.chip(replica.stages[0].chips[0]).domain
            sides[replica.role].setdefault((home, replica.shape.tp, replica.shape.pp), replica)
    worst = 0.0
    for source in sides["prefill"].values():
        for target in sides["decode"].values():
            pair = (source.stages[0].chips[0], target.stages[0].chips[0])
            moved = transfer_rate_bytes(instance, source, target)
            worst = max(worst, cluster.rate("send", pair).time(moved))
    return worst


def _transfer_egress(
    instance: Instance,
    layout: Layout,
    prices: tuple[ReplicaPrice, ...],
    rates: dict[str, float],
    pooled: float,
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
    moved = request_kv_bytes(instance)
    return {home: extra * moved for home, extra in surplus.items() if extra > 0}
