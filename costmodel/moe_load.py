r"""How routed tokens fall on chips under an expert placement (even split over replicas).

With ``p_e`` the share of a layer's routed tokens that want expert ``e`` (shares sum to 1), ``r_e``
its replicas and ``k`` experts per token, one token reaches one replica with probability
``a = min(1, k p_e) / r_e``. Of ``B`` tokens, a slot receives ``B k p_e / r_e`` and is touched with
probability ``1 - (1 - a)^B``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costmodel.pass_time import ExpertShares

Array = NDArray[np.float64]


def touch_probability(shares: Array, top_k: float, tokens: ArrayLike, replicas: ArrayLike) -> Array:
    """Probability that at least one of ``tokens`` reaches one replica of an expert."""
    hit = np.minimum(1.0, shares * top_k) / np.asarray(replicas, dtype=float)
    with np.errstate(divide="ignore"):
        return np.asarray(-np.expm1(np.asarray(tokens, dtype=float) * np.log1p(-hit)))


def expert_shares(
    loads: Array,
    expert_rows: NDArray[np.int64],
    slots_per_chip: Sequence[int],
    top_k: float,
    tokens: float,
) -> ExpertShares:
    """Load share and touched experts of each chip.

    ``loads [layers, experts]`` with rows that sum to 1, ``expert_rows [layers, slots]`` expert of
    each slot chip by chip, ``tokens`` in the pass over all ranks.
    """
    num_layers, num_experts = loads.shape
    # flat places [layers, slots] of each slot's expert in an array [layers, experts]
    at = np.arange(num_layers)[:, None] * num_experts + expert_rows
    counts = np.bincount(at.ravel(), minlength=loads.size).reshape(loads.shape)
    replicas = np.maximum(counts, 1).astype(float)
    slot_load = np.take(loads / replicas, at)
    slot_touch = np.take(touch_probability(loads, top_k, tokens, replicas), at)
    chips = len(slots_per_chip)
    load = np.zeros((num_layers, chips))
    touched = np.zeros((num_layers, chips))
    filled = np.array([place for place, count in enumerate(slots_per_chip) if count], dtype=int)
    starts = np.concatenate([[0], np.cumsum(slots_per_chip)])[:-1][filled]
    if len(filled):
        load[:, filled] = np.add.reduceat(slot_load, starts, axis=1)
        touched[:, filled] = np.add.reduceat(slot_touch, starts, axis=1)
    return ExpertShares(load=load, touched=touched)
