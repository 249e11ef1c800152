r"""Idle KV: hold it, reload it from a slower tier, or compute it again.

Per token of context: recomputing costs ``2 N_active / FLOPs`` chip seconds, holding in HBM for ``t``
seconds costs the chip's rent times ``bytes / HBM bytes``, so that the break-even hold is
``(2 N_active / FLOPs) (HBM bytes / KV bytes)``, whatever the rent. A tier suits holds near its drain time, capacity
over bandwidth: a shorter hold wastes bandwidth, a longer one capacity. *Source:* Pope, blackboard
lecture (2026), 1:50-2:03.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log


def recompute_s(active_params: float, flops_per_s: float) -> float:
    """Chip seconds to compute one token's KV again by prefill at ``flops_per_s``."""
    return 2.0 * active_params / flops_per_s


def break_even_hold_s(
    active_params: float, flops_per_s: float, hbm_bytes: float, kv_bytes_per_token: float
) -> float:
    """Seconds in HBM after which holding has cost as much as recomputing."""
    return recompute_s(active_params, flops_per_s) * hbm_bytes / kv_bytes_per_token


def suited_tier(drain_s: Mapping[str, float], hold_s: float) -> str:
    """The tier whose drain time (capacity / bandwidth) is nearest to the hold, in logarithms."""
    return min(drain_s, key=lambda tier: abs(log(drain_s[tier] / hold_s)))


def write_premiums(multipliers: Mapping[str, float]) -> dict[str, float]:
    """What a cache write costs above a plain input token, as a share of the input price."""
    return {name: multiplier - 1.0 for name, multiplier in multipliers.items()}


def may_share_a_tier(
    short_premium: float, long_premium: float, short_s: float, long_s: float
) -> bool:
    """Whether two hold prices fit one tier: rent there grows with time, so its ratio is that of the holds."""
    return long_premium / short_premium >= long_s / short_s
