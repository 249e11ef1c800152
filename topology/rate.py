"""What a transfer costs as two numbers, latency and seconds per byte, beside a lower bound.

Knows nothing of links; ``topology.cluster`` derives these from them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Leg:
    """One part of a collective on one set of links: the same numbers as a :class:`Rate`.

    ``link`` names the busiest link or kind of link. Costs are per byte of whatever the fabric
    method that returned it counts.
    """

    s_per_byte: float
    latency_s: float
    bound_s_per_byte: float
    bound_latency_s: float
    link: str

    def scaled(self, factor: float) -> Leg:
        """The same transfer with ``factor`` times the bytes."""
        return replace(
            self,
            s_per_byte=self.s_per_byte * factor,
            bound_s_per_byte=self.bound_s_per_byte * factor,
        )


#: Nothing to move.
IDLE = Leg(0.0, 0.0, 0.0, 0.0, "none")


@dataclass(frozen=True, slots=True)
class Rate:
    """Time of a collective as ``latency_s + s_per_byte * num_bytes``.

    A calibrated rate adds ``2 * ramp * sqrt(latency_s * s_per_byte * num_bytes)``, the cost of
    filling the pipeline of chunks; at full link speed ``ramp`` is 0.

    ``bound_*`` are a lower bound that no route or algorithm beats (cuts around chips and domains
    for the bytes, the farthest pair's path for the latency). ``busiest_link`` names the link that
    sets ``s_per_byte``. ``out_bytes_per_byte`` is the traffic that leaves the most loaded domain
    over the scale-out per byte of the argument, ``far_bytes_per_byte`` what of it leaves its unit.
    """

    latency_s: float
    s_per_byte: float
    bound_s_per_byte: float
    bound_latency_s: float
    busiest_link: str
    out_bytes_per_byte: float = 0.0
    far_bytes_per_byte: float = 0.0
    ramp: float = 0.0

    def time(self, num_bytes: float) -> float:
        """Seconds for ``num_bytes``, in the byte convention of the collective."""
        transfer = self.s_per_byte * num_bytes
        if not self.ramp:
            return self.latency_s + transfer
        return float(self.latency_s + transfer + 2 * self.ramp * (self.latency_s * transfer) ** 0.5)

    def bound(self, num_bytes: float) -> float:
        """Seconds below which no algorithm gets. *max*, as latency and bytes may overlap."""
        return max(self.bound_latency_s, self.bound_s_per_byte * num_bytes)
