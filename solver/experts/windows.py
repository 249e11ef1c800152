r"""One placement for several workloads: recorded windows or scenarios of the same layers.

Minimises the weighted mean over windows (or the worst window) of the busiest chip's share, by the
same pairwise dealing as for one workload, on a potential that adds up over chips:

    sum over windows w and chips c of  p_w exp(beta (load_wc - peak_w)),   beta rising

A placement tuned to one workload is worth little on the next; this one is tuned to their spread.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from solver.experts.bounds import load_bounds
from solver.experts.packing import pack_largest_first
from solver.experts.pair_windows import pair_windows
from solver.experts.place import finish
from solver.experts.repartition import MOST_TAKEN, match, splits
from solver.experts.slots import Floats, Ints, check_loads, check_slots
from solver.experts.windows_bound import replica_bound
from topology.errors import InstanceError, Problem, VerificationError

Objective = Literal["mean", "worst"]
#: Sweeps by effort, and the potential's sharpness (per mean chip load) at the first and last.
SWEEPS = {"fast": 12, "good": 200, "best": 600}
SHARPNESS = (20.0, 200.0)
#: Windows x layers x experts up to which a second start is worth its time at any width.
SMALL = 8_000
#: Gap from which a layer's replica counts are bounded over all windows, and the effort for it.
WORTH_A_BOUND = 0.01
BOUND_EFFORT = {"good": 0.02, "best": 0.5}


@dataclass(frozen=True, slots=True)
class WindowPlacements:
    """One placement of every layer, judged under every window.

    ``max_load [windows, layers]``: busiest chip's share in each window. ``expected [layers]`` is
    the objective (weighted mean or worst of them) and ``bound [layers]`` proven for it.
    """

    physical_to_logical: Ints
    max_load: Floats
    expected: Floats
    bound: Floats
    slots_per_chip: tuple[int, ...]


def place_windows(
    windows: ArrayLike,
    slots_per_chip: Sequence[int],
    *,
    weights: Sequence[float] | None = None,
    objective: Objective = "mean",
    effort: str = "good",
    time_limit_s: float | None = None,
    seed: int = 0,
) -> WindowPlacements:
    """Place ``windows [windows, layers, experts]`` at once, on chips with ``slots_per_chip`` slots.

    Windows count in proportion to ``weights`` (equal by default), each scaled to the same total.
    The bound is the mean (or the largest) of the single windows' bounds, or that of the replica
    counts over all windows where it is higher. Raises ``InstanceError``.
    """
    array = np.asarray(windows, dtype=np.float64)
    if array.ndim != 3 or 0 in array.shape:
        raise InstanceError(
            Problem("loads", f"expected [windows, layers, experts], got shape {array.shape}")
        )
    if objective not in ("mean", "worst") or effort not in SWEEPS:
        raise InstanceError(Problem("objective", f"unknown {objective!r} or effort {effort!r}"))
    shares = np.stack([check_loads(window) for window in array])
    weight = np.ones(len(shares)) if weights is None else np.asarray(weights, dtype=np.float64)
    if weight.shape != (len(shares),) or not (weight >= 0).all() or not weight.sum() > 0:
        raise InstanceError(Problem("weights", f"expected {len(shares)} weights, 0 or more"))
    weight = weight / weight.sum()
    slots = check_slots(slots_per_chip, shares.shape[2])
    deadline = None if time_limit_s is None else time.monotonic() + time_limit_s
    best = np.empty(0, dtype=np.int64)
    value = np.full(shares.shape[1], np.inf)
    pairs = slots.width == 2 and slots.even and effort != "fast"
    for peak in summaries(shares[weight > 0], slots.width)[: 1 if effort == "fast" else None]:
        replicas = spread_replicas(peak, slots.total, slots.num_chips)
        search = Search(shares, weight, objective, replicas, slots.num_chips)
        table = pack_largest_first(np.tensordot(weight, shares, 1), replicas, slots)
        if pairs:
            pair_windows(table, shares, weight, objective == "worst", replicas, deadline)
        best = best if best.size else table.copy()
        rng = np.random.default_rng(seed)
        sweeps = SWEEPS[effort] // 5 if pairs else SWEEPS[effort]
        for step in range(sweeps + 1):
            now = search.value(table)
            better = now < value
            best[better], value[better] = table[better], now[better]
            late = deadline is not None and time.monotonic() > deadline
            if slots.num_chips < 2 or step == sweeps or late:
                break
            first = SHARPNESS[1] if pairs else SHARPNESS[0]
            sharpness = first * (SHARPNESS[1] / first) ** (step / sweeps)
            search.sweep(table, sharpness, step, slots.least, rng)
    bounds = np.stack([load_bounds(share, slots.num_chips, slots.total) for share in shares])
    judged = [
        finish(share, best, slots, bound) for share, bound in zip(shares, bounds, strict=True)
    ]
    max_load = np.stack([one.max_load for one in judged])
    worst = objective == "worst"
    expected, bound = (
        part[weight > 0].max(axis=0) if worst else weight @ part for part in (max_load, bounds)
    )
    for layer in np.flatnonzero(expected > bound * (1 + WORTH_A_BOUND)):
        if effort == "fast" or (deadline is not None and time.monotonic() > deadline):
            break
        joint = replica_bound(
            shares[:, layer], weight, worst, slots.num_chips, slots.total, BOUND_EFFORT[effort]
        )
        bound[layer] = max(bound[layer], joint)
    if (bound > expected * (1 + 1e-9)).any():
        raise VerificationError("a placement is better than its proven bound")
    return WindowPlacements(
        judged[0].physical_to_logical, max_load, expected, np.minimum(bound, expected), slots.counts
    )


def summaries(shares: Floats, width: int) -> list[Floats]:
    """Ways to sum up ``[windows, layers, experts]`` as one load per expert when replicas are chosen.

    With one or two slots per chip the largest pieces decide, so several are tried. With more there
    are replicas to spare for experts that vary, whose further change no window shows.
    """
    most, spread = shares.max(axis=0), shares.std(axis=0)
    if width > 2:
        return [most + spread, most][: 2 if shares.size <= SMALL else 1]
    return [most, shares.mean(axis=0) + spread]


def spread_replicas(peak: Floats, num_slots: int, most: int) -> Ints:
    """Replica counts ``[layers, experts]``: each further slot to the largest piece of ``peak``."""
    replicas = np.ones(peak.shape, dtype=np.int64)
    pieces = peak.copy() if most > 1 else np.full_like(peak, -1.0)
    rows = np.arange(len(peak))
    for _ in range(num_slots - peak.shape[1]):
        hottest = pieces.argmax(axis=1)
        count = replicas[rows, hottest] + 1
        replicas[rows, hottest] = count
        pieces[rows, hottest] = np.where(count < most, peak[rows, hottest] / count, -1.0)
    return replicas


class Search:
    """Loads of all windows for fixed replica counts, in units of a mean chip."""

    def __init__(
        self, shares: Floats, weight: Floats, objective: Objective, replicas: Ints, num_chips: int
    ):
        windows, layers, _ = shares.shape
        self.num_experts = shares.shape[2]
        self.weight, self.worst = weight, objective == "worst"
        self.pieces = np.concatenate(
            [shares * num_chips / replicas, np.zeros((windows, layers, 1))], axis=2
        )

    def sizes(self, items: Ints) -> Floats:
        """Load of each of ``items [layers, ...]`` in each window ``[windows, layers, ...]``."""
        layers = np.arange(items.shape[0]).reshape(-1, *(1,) * (items.ndim - 1))
        found: Floats = self.pieces[:, layers, items]
        return found

    def peaks(self, table: Ints) -> Floats:
        """Busiest chip ``[windows, layers]``."""
        peak: Floats = self.sizes(table).sum(axis=3).max(axis=2)
        return peak

    def value(self, table: Ints) -> Floats:
        """Objective per layer."""
        peak = self.peaks(table)
        value: Floats = peak[self.weight > 0].max(axis=0) if self.worst else self.weight @ peak
        return value

    def sweep(
        self, table: Ints, sharpness: float, step: int, least: int, rng: np.random.Generator
    ) -> None:
        """Deal disjoint pairs of chips anew in ``table [layers, chips, width]``, in place."""
        taken = min(least, MOST_TAKEN)
        load = self.sizes(table).sum(axis=3)
        base = load.max(axis=2)
        if self.worst:
            base = np.broadcast_to(base[self.weight > 0].max(axis=0), base.shape)
        weigh = self.weight[:, None, None]
        heat = (weigh * np.exp(sharpness * (load - base[..., None]))).sum(axis=0)
        hot, cold = match(heat, step, rng)
        rows = np.arange(len(table))[:, None]
        ours, theirs = table[rows, hot], table[rows, cold]
        if taken < table.shape[2]:
            ours, theirs = (
                np.take_along_axis(
                    part,
                    np.argsort(rng.random(part.shape) + (part == self.num_experts), axis=2),
                    axis=2,
                )
                for part in (ours, theirs)
            )
        chosen, order = splits(taken)
        items = np.concatenate([ours[..., :taken], theirs[..., :taken]], axis=2)
        first = self.sizes(items) @ chosen + self.sizes(ours[..., taken:]).sum(axis=3)[..., None]
        both = load[:, rows, hot] + load[:, rows, cold]
        first = (first - base[:, :, None, None]).astype(np.float32)
        second = (both - 2 * base[..., None]).astype(np.float32)[..., None] - first
        sharp = np.float32(sharpness)
        cost = np.exp(np.minimum(sharp * first, 80)) + np.exp(np.minimum(sharp * second, 80))
        score = np.tensordot(self.weight.astype(np.float32), cost, 1)
        same = ours[..., :, None] == theirs[..., None, :]
        same &= (ours != self.num_experts)[..., :, None]
        stays = same.any(axis=3)[..., :taken].astype(np.float32)
        away = same.any(axis=2)[..., :taken].astype(np.float32)
        moved = np.concatenate([-stays, away], axis=2) @ chosen.astype(np.float32)
        score = np.where(moved + stays.sum(axis=2)[..., None] > 0.5, np.inf, score)
        dealt = np.take_along_axis(items, order[score.argmin(axis=2)], axis=2)
        table[rows, hot] = np.concatenate([dealt[..., :taken], ours[..., taken:]], axis=2)
        table[rows, cold] = np.concatenate([dealt[..., taken:], theirs[..., taken:]], axis=2)
