"""What intervals rest on: quantiles of the errors of predictions that no fit had seen.

Two layouts of one model on the same chips share most of what a prediction gets wrong, so that the noise
of their *ratio* is smaller than that of either. It is read from pairs of rows of one checkpoint, chip,
engine, mode and lengths whose workers are built differently and bear a like load: log measured ratio less
log predicted ratio, both predicted by the same fit, which saw neither.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from statistics import median

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.crossvalidation import LeftOut
from costmodel.measured.fitting.fit import Problem, measured_ttft_s
from costmodel.measured.fitting.parameters import rounded
from costmodel.measured.published import unseen_runs
from costmodel.measured.rows import Group
from costmodel.measured.runs import Run
from costmodel.measured.systems import served
from costmodel.question.profile import Profile
from costmodel.question.profile_parts import HeldOut
from topology.chip import chip_names, load_chip

Array = NDArray[np.float64]

#: probabilities of the quantiles that a profile keeps
LEVELS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99)
#: users per worker up to which the queue of a burst is no part of a measured TTFT
_LIGHT = 4.0
#: users per chip of two layouts that are compared, the larger over the smaller at most
_LIKE_LOAD = 2.0
#: standard deviation of a normal variable over its median distance from the median
_MAD = 1.4826
#: fewest rows or pairs whose quantiles are kept
_FEWEST = 40


def with_held_out(profile: Profile, problem: Problem, left_out: Sequence[LeftOut]) -> Profile:
    """A profile with the quantiles of its own held-out errors, unchanged where nothing was left out."""
    found = held_out_of(problem, left_out)
    if found is not None:
        found = found.model_copy(update={"unlike": unlike_chips(profile)})
    paces = paces_of(profile, problem, left_out)
    return profile.model_copy(update={"held_out": found, "paces": paces})


def unlike_chips(profile: Profile) -> dict[str, float]:
    """By chip that the profile's fit never saw: the median of measured over predicted times."""
    slower: dict[str, list[float]] = defaultdict(list)
    for one in unseen_runs(profile):
        if profile.for_chip(one.chip).provenance == "assumed":
            slower[one.chip].append(one.slower)
    return {chip: rounded(median(ratios)) for chip, ratios in sorted(slower.items())}


def paces_of(profile: Profile, problem: Problem, left_out: Sequence[LeftOut]) -> dict[str, float]:
    """By chip that no fit saw and of which runs were published: its times over those at the common constants.

    The runs of such a chip are of few models and one engine, which are off by themselves: a chip's median error ``m`` counts
    ``b^2 / (b^2 + s^2)`` of its logarithm, ``b^2`` the mean square over these chips, ``s`` the spread of medians over models
    and engines on fitted chips, each model left out (1.48 times the median distance from their median).
    """
    medians = unlike_chips(profile)
    predicted = next((one.tpot_s for one in left_out if one.key == "model"), None)
    if not medians or predicted is None:
        return {}
    groups: dict[object, list[float]] = defaultdict(list)
    for run, error in zip(problem.runs, np.log(problem.measured_s / predicted), strict=True):
        groups[run.chip, run.row.engine, served(run.row).model].append(float(error))
    found = np.array([median(errors) for errors in groups.values()])
    within = (_MAD * np.median(np.abs(found - np.median(found)))) ** 2
    between = float(np.mean(np.log(list(medians.values())) ** 2))
    share = between / (between + within)
    paces = {chip: rounded(float(ratio**share)) for chip, ratio in medians.items()}
    like = {name: load_chip(name).efficiency.like for name in chip_names()}
    return paces | {name: paces[other] for name, other in like.items() if other in paces}


def held_out_of(problem: Problem, left_out: Sequence[LeftOut]) -> HeldOut | None:
    """Quantiles over all folds; ``None`` where too little was left out to know any."""
    if not left_out:
        return None
    tpot = np.concatenate([problem.measured_s / one.tpot_s for one in left_out])
    if len(tpot) < _FEWEST:
        return None
    measured = measured_ttft_s(problem)
    light = np.isfinite(measured) & lightly_loaded(problem.runs)
    ttft = np.concatenate([(measured / one.steady_ttft_s)[light] for one in left_out])
    pairs = layout_pairs(problem.runs)
    ratios = np.concatenate(
        [ratio_errors(problem.measured_s, one.tpot_s, pairs) for one in left_out]
    )
    return HeldOut(
        levels=LEVELS,
        tpot=_quantiles(tpot),
        ttft=_quantiles(ttft),
        # either layout may come first
        layout_ratio=_quantiles(np.concatenate([ratios, 1.0 / ratios])),
        predictions=len(tpot),
        ttft_predictions=len(ttft),
        layout_pairs=len(ratios),
    )


def held_out_words(found: HeldOut | None) -> list[str]:
    """What the accuracy report says of them, line by line."""
    if found is None:
        return []
    first = found.factors("ttft", 0.9)
    half, most = (found.ratio_noise(confidence) for confidence in (0.5, 0.9))
    return [
        f"The TTFT that `evaluate` prints is without the queue of a burst: on lightly loaded workers it carries "
        f"{first[0]:.2f} to {first[1]:.2f}",
        f"times its value ({found.ttft_predictions} predictions). Two layouts of one model, chip, engine and load "
        "share most of the error: the ratio",
        f"of their times is predicted to {half:.0%} for half and to {most:.0%} for 90 % of "
        f"{found.layout_pairs:,} held-out pairs.",
    ]


def lightly_loaded(runs: Sequence[Run]) -> NDArray[np.bool_]:
    """Rows with at most four users for each worker that prefills."""
    workers = np.array([float((r.row.prefill or r.row.decode).workers) for r in runs])
    return np.asarray(np.array([r.row.concurrency for r in runs]) <= _LIGHT * workers)


def layout_pairs(runs: Sequence[Run]) -> NDArray[np.intp]:
    """Places ``[pairs, 2]`` of rows that differ in layout alone, and by at most 2 in users per chip."""
    alike: dict[object, list[int]] = defaultdict(list)
    for place, run in enumerate(runs):
        row = run.row
        lengths = (row.input_tokens, row.output_tokens)
        alike[served(row), run.chip, row.engine, row.mode, lengths].append(place)
    found = []
    for places in alike.values():
        for first, second in combinations(places, 2):
            one, other = runs[first], runs[second]
            loads = sorted(run.row.concurrency / _chips(run) for run in (one, other))
            if _built(one) != _built(other) and loads[1] <= _LIKE_LOAD * loads[0]:
                found.append((first, second))
    return np.array(found, dtype=np.intp).reshape(-1, 2)


def ratio_errors(measured_s: Array, predicted_s: Array, pairs: NDArray[np.intp]) -> Array:
    """Measured over predicted ratio of the first to the second row of each pair."""
    off = measured_s / predicted_s
    return np.asarray(off[pairs[:, 0]] / off[pairs[:, 1]])


def _groups(run: Run) -> tuple[Group, ...]:
    row = run.row
    return (row.decode,) if row.prefill is None else (row.decode, row.prefill)


def _built(run: Run) -> object:
    """How the workers are built, whatever their number in an aggregated run."""
    groups = _groups(run)
    shapes = tuple((g.tp, g.attention_dp, g.pp, g.expert_ways) for g in groups)
    return shapes if len(groups) == 1 else (shapes, groups[0].workers, groups[1].workers)


def _chips(run: Run) -> int:
    return sum(group.chips * group.workers for group in _groups(run))


def _quantiles(values: Array) -> tuple[float, ...]:
    if len(values) < _FEWEST:
        return ()
    return tuple(rounded(float(value)) for value in np.quantile(values, LEVELS))
