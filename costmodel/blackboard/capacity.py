"""Bytes per chip and longest context of a model given by totals: expert, pipeline and head sharding.

The same counts for a concrete model and layout are in :mod:`costmodel.replica.memory`.
"""

from __future__ import annotations

from math import ceil


def weight_bytes_per_chip(weight_bytes: float, expert_ways: float, stages: float) -> float:
    """Weights fall with both extents: ``N / (E P)``."""
    return weight_bytes / (expert_ways * stages)


def kv_bytes_per_chip(
    microbatch: float, context: float, kv_bytes_per_token: float, expert_ways: float, stages: float
) -> float:
    """KV of ``stages`` microbatches in flight on ``E P`` chips: ``P b len bytes / (E P)``, no gain from P."""
    in_flight = stages * microbatch
    return in_flight * context * kv_bytes_per_token / (expert_ways * stages)


def longest_context(
    kv_hbm_bytes: float,
    batch: float,
    layers: int,
    kv_heads: int,
    head_dim: int,
    element_bytes: float,
    *,
    chips: int,
    shard: str,
) -> float:
    """Tokens of context per sequence that fit in ``kv_hbm_bytes`` on each of ``chips``.

    ``shard``: ``"heads"`` pads the heads to a multiple of the chips and needs at least one per chip;
    ``"batch"`` gives each chip ``batch / chips`` whole sequences. *Source:* Pope et al. (2022), table 1.
    """
    per_head = 2.0 * layers * head_dim * element_bytes
    if shard == "batch":
        return kv_hbm_bytes / (batch / chips * kv_heads * per_head)
    heads = max(1, ceil(kv_heads / chips))
    return kv_hbm_bytes / (batch * heads * per_head)
