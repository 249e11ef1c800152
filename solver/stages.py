r"""Layers onto stages (CP-SAT): consecutive layers, the longest stage as short as HBM allows.

With ``cut_0 = 0 < cut_1 < ... < cut_P = L``, prefix times ``t`` and prefix bytes ``w``::

    minimise  M
    M >= t[cut_{s+1}] - t[cut_s] + edge_time_s          every stage s
    w[cut_{s+1}] - w[cut_s] + edge_bytes_s <= room        every stage s

Layers differ (dense and MoE, windowed and global attention); the first stage also holds the
embedding, the last the head.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from solver.clock import Clock
from solver.scaling import MEMORY_UNIT_BYTES, TIME_UNIT_S, down, up

Array = NDArray[np.float64]


def cut_stages(
    layer_s: Array,
    layer_bytes: Array,
    edge_s: Sequence[float],
    edge_bytes: Sequence[float],
    room_bytes: float,
    stages: int,
    *,
    clock: Clock,
    limit_s: float,
    seed: int,
) -> list[tuple[int, int]] | None:
    """First and last layer of every stage, or ``None`` if no cut fits.

    ``layer_s layer_bytes [layers]``, ``edge_s edge_bytes [stages]``: what a stage has beside its
    layers. ``room_bytes``: HBM of a chip that layers and edges may use.
    """
    num_layers = len(layer_s)
    if stages > num_layers:
        return None
    if stages == 1:
        fits = layer_bytes.sum() + edge_bytes[0] <= room_bytes
        return [(0, num_layers - 1)] if fits else None
    model = cp_model.CpModel()
    times = [0, *np.cumsum([up(s, TIME_UNIT_S) for s in layer_s]).tolist()]
    sizes = [0, *np.cumsum([up(b, MEMORY_UNIT_BYTES) for b in layer_bytes]).tolist()]
    cuts = [model.new_int_var(s, num_layers - (stages - s), f"cut[{s}]") for s in range(stages + 1)]
    model.add(cuts[0] == 0)
    model.add(cuts[stages] == num_layers)
    time_at = [model.new_int_var(0, times[-1], f"time[{s}]") for s in range(stages + 1)]
    size_at = [model.new_int_var(0, sizes[-1], f"bytes[{s}]") for s in range(stages + 1)]
    longest = model.new_int_var(0, times[-1] + max(up(s, TIME_UNIT_S) for s in edge_s), "longest")
    for s in range(stages + 1):
        model.add_element(cuts[s], times, time_at[s])
        model.add_element(cuts[s], sizes, size_at[s])
    for s in range(stages):
        model.add(cuts[s + 1] >= cuts[s] + 1)
        model.add(longest >= time_at[s + 1] - time_at[s] + up(edge_s[s], TIME_UNIT_S))
        model.add(
            size_at[s + 1] - size_at[s] + up(edge_bytes[s], MEMORY_UNIT_BYTES)
            <= down(room_bytes, MEMORY_UNIT_BYTES)
        )
    model.minimize(longest)
    solver, status = clock.run(model, seed=seed, limit_s=limit_s)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    ends = [int(solver.value(cut)) for cut in cuts]
    return [(ends[s], ends[s + 1] - 1) for s in range(stages)]
