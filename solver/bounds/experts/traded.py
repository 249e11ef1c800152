r"""Experts that the fullest chip reads at least where no chip has more than some load: the two bounds are not met together.

*Spare slots.* With no load above ``c`` an expert has ``r_e >= ceil(p_e / c)`` replicas, as one of them alone loads its chip with
``p_e / r_e``. With ``f_e(r)`` the slots of an expert that are touched (concave, :mod:`solver.bounds.experts.expert_bounds`) these sum to
``sum_e f_e(r_e)`` at least. Of ``R`` spare slots the rest lies anywhere: the ``k``-th busiest expert has ``m_k = floor(R / k)`` spare
replicas at most (``n - 1`` without that order), each of which adds no less than the chord to ``1 + m_k``; the flattest are filled first.

*None spare.* ``q`` chips hold ``s = ceil(E / n)`` experts, the others one less. These carry ``(n - q) c`` at most, so that ``q s`` experts
with a load of ``1 - (n - q) c`` lie on the full chips. For every ``u >= 0`` they touch no less than the ``q s`` smallest ``g_e - u p_e``
and ``u`` times that load.
"""

from __future__ import annotations

import numpy as np

from costmodel.experts.moe_load import touch_probability
from solver.bounds.experts.expert_bounds import Array, ExpertBounds, fullest

#: prices of a chip's load in touched experts, over the mean of both
_PRICES = np.concatenate([[0.0], np.geomspace(0.03, 3.0, 14)])
#: loads are bounds up to rounding
_ROUNDING = 1e-9


def touched_under(
    bounds: ExpertBounds, chips: int, slots: int, tokens: float, caps: Array
) -> Array:
    """``[caps, layers]``: experts touched on some chip at least, no load above ``caps [caps, layers]``; ``inf``: no placement."""
    if slots > bounds.num_experts:
        return _with_copies(bounds, chips, slots, tokens, caps)
    full, many = fullest(bounds.num_experts, chips)
    alone = touch_probability(bounds.loads, bounds.top_k, tokens, 1.0)
    mean = np.broadcast_to(alone.sum(axis=1) / chips, caps.shape)
    if many == chips:
        return mean
    price = _PRICES * float(alone.mean() / bounds.loads.mean())
    worth = alone - price[:, None, None] * bounds.loads
    least = np.partition(worth, full * many - 1, axis=-1)[..., : full * many].sum(axis=-1)
    beside = 1.0 - (chips - many) * caps * (1 + _ROUNDING)
    each = least[:, None, :] + price[:, None, None] * beside
    return np.asarray(np.maximum(mean, each.max(axis=0) / many))


def _with_copies(bounds: ExpertBounds, chips: int, slots: int, tokens: float, caps: Array) -> Array:
    loads, spare = bounds.falling, slots - bounds.num_experts
    copies = np.clip(np.ceil(loads / caps[..., None] * (1 - _ROUNDING)), 1.0, None)
    left = spare - (copies - 1.0).sum(axis=-1)
    impossible = (left < 0) | (copies > chips).any(axis=-1)
    copies = np.minimum(copies, chips)
    touched = copies * touch_probability(loads, bounds.top_k, tokens, copies)
    place = np.arange(1, bounds.num_experts + 1)
    most = np.full(len(place), chips - 1.0)
    if bounds.hot_copies:
        most = np.minimum(most, np.floor(spare / place))
    room = np.maximum(1.0 + most - copies, 0.0)
    end = np.maximum(1.0 + most, copies)
    beyond = end * touch_probability(loads, bounds.top_k, tokens, end) - touched
    chord = np.divide(beyond, room, out=np.full(room.shape, np.inf), where=room > 0)
    order = np.argsort(chord, axis=-1)
    room, chord = (np.take_along_axis(each, order, axis=-1) for each in (room, chord))
    before = np.cumsum(room, axis=-1) - room
    filled = np.clip(np.maximum(left, 0.0)[..., None] - before, 0.0, room)
    added = (filled * np.where(room > 0, chord, 0.0)).sum(axis=-1)
    return np.asarray(np.where(impossible, np.inf, (touched.sum(axis=-1) + added) / chips))
