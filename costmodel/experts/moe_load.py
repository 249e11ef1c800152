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

from costmodel.layout.slot_table import SlotTable, slot_table
from costmodel.models.spec import MoE
from costmodel.passes.tokens import ExpertShares

Array = NDArray[np.float64]


def log_missed(shares: Array, top_k: float, replicas: ArrayLike) -> Array:
    """Logarithm of the probability that one token does not reach one replica of an expert."""
    hit = np.minimum(1.0, shares * top_k) / np.asarray(replicas, dtype=float)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log1p(-hit))


def reached(missed: Array, tokens: ArrayLike) -> Array:
    """Probability that at least one of ``tokens`` reaches a replica, from its :func:`log_missed`."""
    return np.asarray(-np.expm1(np.asarray(tokens, dtype=float) * missed))


def touch_probability(shares: Array, top_k: float, tokens: ArrayLike, replicas: ArrayLike) -> Array:
    """Probability that at least one of ``tokens`` reaches one replica of an expert."""
    return reached(log_missed(shares, top_k, replicas), tokens)


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
    alone = touch_probability(loads, top_k, tokens, 1.0)
    table = slot_table(range(len(expert_rows)), expert_rows, loads.shape[1])
    return placed_shares(loads, alone, table, slots_per_chip, top_k, tokens)


def cut_shares(alone: Array, moe: MoE, chips: int) -> ExpertShares:
    """As :func:`expert_shares` where each expert is cut over all chips: these weigh alike.

    ``alone [layers, experts]``: :func:`touch_probability` with one replica. Each chip multiplies its slice of every expert
    with all tokens of that expert, and reads that slice.
    """
    layers, share = len(alone), float(moe.slice_share(chips))
    touched = alone.sum(axis=-1)[:, None] * share
    return ExpertShares(np.full((layers, chips), share), touched.repeat(chips, axis=1))


def placed_shares(
    loads: Array,
    alone: Array,
    table: SlotTable,
    slots_per_chip: Sequence[int],
    top_k: float,
    tokens: ArrayLike,
) -> ExpertShares:
    """As :func:`expert_shares` where more is known, and for several passes at once.

    ``alone [layers, experts]``: :func:`touch_probability` with one replica; ``table``: of the same layers
    and experts; ``tokens``: one number, or one for each layer.
    """
    assert table.copies is not None
    num_layers, num_experts = loads.shape
    each, touch, copied = loads, alone, table.copied
    if len(copied):
        replicas = table.copies.ravel()[copied]
        tokens = np.asarray(tokens, dtype=float)
        of_layer = tokens[copied // num_experts] if tokens.ndim else tokens
        each, touch = loads.flatten(), alone.flatten()
        touch[copied] = touch_probability(each[copied], top_k, of_layer, replicas)
        each[copied] /= replicas
    slot_load, slot_touch = each.take(table.places), touch.take(table.places)
    chips = len(slots_per_chip)
    sizes = np.array(slots_per_chip)
    starts = sizes.cumsum() - sizes
    if all(slots_per_chip):
        return ExpertShares(
            load=np.add.reduceat(slot_load, starts, axis=1),
            touched=np.add.reduceat(slot_touch, starts, axis=1),
        )
    load = np.zeros((num_layers, chips))
    touched = np.zeros((num_layers, chips))
    filled = np.flatnonzero(sizes)
    if len(filled):
        load[:, filled] = np.add.reduceat(slot_load, starts[filled], axis=1)
        touched[:, filled] = np.add.reduceat(slot_touch, starts[filled], axis=1)
    return ExpertShares(load=load, touched=touched)
