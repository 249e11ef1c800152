"""How tensor parallelism shrinks a cache, and how many entries prompt tokens attend to."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodel.models.spec import Attention

Array = NDArray[np.float64]


def kv_ways(attention: Attention, tp: Array) -> Array:
    """By how much TP shrinks a chip's KV: by KV heads, at least one head per chip (MLA: not at all)."""
    return np.asarray(attention.kv_heads / np.ceil(attention.kv_heads / tp))


def head_ways(heads: int, tp: Array) -> Array:
    """By how much TP shrinks a chip's share of state heads; none is split."""
    return np.asarray(heads / np.ceil(heads / tp))


def mean_attended(attention: Attention, start: float, end: float) -> float:
    """Average number of cached entries that prompt tokens at positions ``start..end`` attend to.

    The mean of ``min(position / compress, window, top_k) + min(position, local_window)``.
    """
    if end <= start:
        return 0.0
    caps = [float(c) for c in (attention.window, attention.read_top_k) if c is not None]
    far = _mean_capped(
        start / attention.compress, end / attention.compress, min(caps, default=float("inf"))
    )
    return far + _mean_capped(start, end, float(attention.local_window))


def _mean_capped(low: float, high: float, cap: float) -> float:
    """Mean of ``min(x, cap)`` for ``x`` between ``low`` and ``high``."""
    if cap >= high:
        return (low + high) / 2
    rising = max(0.0, (cap**2 - low**2) / 2) if low < cap else 0.0
    return (rising + cap * (high - max(low, cap))) / (high - low)
