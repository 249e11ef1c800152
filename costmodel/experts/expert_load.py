"""Expert load: how often each expert of each layer is chosen, recorded or generated.

Never decides where an expert goes. Formats of files are read in ``costmodel.experts.load_files``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from topology.errors import InstanceError, Problem, option

Floats = NDArray[np.float64]

#: A layer's log-sigma: median and spread between layers; the share of its variance between groups
#: of consecutive experts; the skewness term of the logarithms; and where they are cut off. Assumed inputs, matched to the
#: published skew of DeepSeek-V3 (hottest expert 5.6-8.1 times the mean, log-sigma 0.56-0.82,
#: hottest tenth 27-35 % of the tokens, hottest of 8 groups 1.5-2.07 times the mean).
LOG_SIGMA, LOG_SIGMA_SPREAD = 0.73, 0.12
GROUP_VARIANCE = 0.25
LOG_SKEW = 0.01
MOST_SCORE = 3.3
NUM_GROUPS = 8
#: A larger number of a layer is taken for a mistake: exporters write a row for each layer before it.
MOST_LAYER = 9_999


@dataclass(frozen=True, slots=True)
class ExpertLoads:
    """Recorded loads ``windows [window, layer, expert]`` in tokens (any scale), dense layers left out.

    ``layer_ids`` are the model's layer indices of the rows, ``num_layers`` counts all layers of
    the model (dense ones included), ``names`` tells the windows apart. ``empty``: layers taken to have no experts, though
    not only the first ones, as their rows are all zero. ``top_k``: experts per token, where a file says it.
    """

    windows: Floats
    layer_ids: tuple[int, ...]
    num_layers: int
    names: tuple[str, ...]
    source: str
    empty: tuple[int, ...] = ()
    top_k: int | None = None

    @property
    def total(self) -> Floats:
        """Loads ``[layer, expert]`` summed over the windows."""
        total: Floats = self.windows.sum(axis=0)
        return total

    @property
    def num_experts(self) -> int:
        """Number of routed experts."""
        return int(self.windows.shape[2])

    def chosen(self, which: NDArray[np.bool_]) -> ExpertLoads:
        """The windows marked in ``which [window]``."""
        names = tuple(name for name, kept in zip(self.names, which, strict=True) if kept)
        return replace(self, windows=self.windows[which], names=names)


def skewed_load(num_layers: int, num_experts: int, *, seed: int) -> Floats:
    """Generated loads ``[num_layers, num_experts]``, rows sum to 1, matched to published skew.

    Each layer is log-normal with a small positive skew; its log-sigma varies between layers, and
    part of the variance is common to consecutive groups of experts (eight when they divide).
    Provenance: assumed. Raises ``InstanceError`` for sizes below one.
    """
    if num_layers < 1 or num_experts < 1:
        raise InstanceError(
            Problem("expert load", f"{num_layers} layers x {num_experts} experts: need 1 or more")
        )
    rng = np.random.default_rng(seed)
    sigma = LOG_SIGMA * np.exp(LOG_SIGMA_SPREAD * rng.standard_normal((num_layers, 1)))
    groups = NUM_GROUPS if num_experts % NUM_GROUPS == 0 else 1
    shared = rng.standard_normal((num_layers, groups))
    own = rng.standard_normal((num_layers, num_experts))
    share = GROUP_VARIANCE if groups > 1 else 0.0
    score = np.sqrt(share) * np.repeat(shared, num_experts // groups, axis=1)
    score = np.clip(score + np.sqrt(1 - share) * own, -MOST_SCORE, MOST_SCORE)
    load = np.exp(sigma * (score + LOG_SKEW * (score**2 - 1)))
    result: Floats = load / load.sum(axis=1, keepdims=True)
    return result


def read_loads(path: str | Path, *, dense_layers: int | None = None) -> ExpertLoads:
    """Read recorded loads: ``.npz .npy .json .csv``, SGLang recorder dumps, TensorRT-LLM statistics.

    ``dense_layers`` is the number of leading rows that belong to dense layers and hold zeros;
    SGLang's files carry them by rule and need no number; there a row of zeros further on is a layer without experts, too
    (dense and MoE layers may take turns). Raises ``InstanceError`` naming every
    problem: wrong shape, NaN, negative numbers, all-zero rows, pickled objects.
    """
    from costmodel.experts.load_files import read_arrays

    found = read_arrays(Path(path))
    windows = check_windows(found.windows, str(path))
    if found.layer_ids and found.layer_ids[-1] > MOST_LAYER:
        message = f"layer {found.layer_ids[-1]}: layers are numbered up to {MOST_LAYER:,}"
        raise InstanceError(Problem(str(path), message))
    zero = (windows == 0).all(axis=(0, 2))
    leading = int(np.argmin(zero)) if not zero.all() else len(zero)
    if dense_layers is None:
        dense_layers = leading if found.has_dense_rows else 0
    problems = []
    with_experts = np.arange(len(zero)) >= dense_layers
    if not 0 <= dense_layers < windows.shape[1]:
        problems.append(
            Problem(str(path), f"{dense_layers} dense layers, but {windows.shape[1]} rows")
        )
    elif not zero[:dense_layers].all():
        problems.append(Problem(str(path), f"the first {dense_layers} rows are not all zero"))
    else:
        if found.has_dense_rows and leading <= dense_layers:
            with_experts = ~zero
        problems = zero_rows(windows, found.names, with_experts, dense_layers, leading, str(path))
    if problems:
        raise InstanceError(problems)
    rows = found.layer_ids or tuple(range(windows.shape[1]))
    layers = tuple(row for row, kept in zip(rows, with_experts, strict=True) if kept)
    left_out = tuple(row for row, kept in zip(rows, with_experts, strict=True) if not kept)
    return ExpertLoads(
        windows[:, with_experts],
        layers,
        max(rows) + 1,
        found.names,
        str(path),
        empty=left_out if len(left_out) > dense_layers else (),
        top_k=found.top_k,
    )


def joined_loads(recorded: Sequence[ExpertLoads]) -> ExpertLoads:
    """The windows of several files after each other. Raises ``InstanceError`` where their layers or experts differ.

    Names that occur twice are told apart by a number.
    """
    first = recorded[0]
    if len(recorded) == 1:
        return first
    problems = [
        Problem(
            other.source,
            f"{len(other.layer_ids)} MoE layers of {other.num_experts} experts, numbered "
            f"{_numbered(other.layer_ids)}; {first.source} has {len(first.layer_ids)} of {first.num_experts}, "
            f"{_numbered(first.layer_ids)}",
        )
        for other in recorded[1:]
        if (other.layer_ids, other.num_experts) != (first.layer_ids, first.num_experts)
    ]
    told = {one.top_k: one.source for one in reversed(recorded) if one.top_k is not None}
    if len(told) > 1:
        says = ", ".join(f"{source} says {number}" for number, source in told.items())
        problems.append(Problem(first.source, f"experts per token differ: {says}"))
    if problems:
        raise InstanceError(problems)
    names: list[str] = []
    for name in (name for one in recorded for name in one.names):
        again = sum(other == name or other.startswith(f"{name}#") for other in names)
        names.append(f"{name}#{again + 1}" if again else name)
    return replace(
        first,
        windows=np.concatenate([one.windows for one in recorded]),
        names=tuple(names),
        source=", ".join(one.source for one in recorded),
        empty=tuple(sorted({layer for one in recorded for layer in one.empty})),
        top_k=next(iter(told), None),
    )


def _numbered(layers: tuple[int, ...]) -> str:
    """Numbers of layers in words: the first where one follows the other, else the first gap as well."""
    for before, after in pairwise(layers):
        if after != before + 1:
            return f"from {layers[0]}, {after} after {before}"
    return f"from {layers[0]}"


def check_windows(array: NDArray[np.generic], place: str) -> Floats:
    """``array [window, layer, expert]`` as floats, or ``InstanceError`` with every problem."""
    if array.dtype.kind not in "iufb":
        raise InstanceError(Problem(place, f"expected numbers, got dtype {array.dtype}"))
    if array.ndim != 3 or 0 in array.shape:
        raise InstanceError(
            Problem(
                place,
                "expected counts [layers, experts] or [windows, layers, experts], got shape "
                f"{array.shape}",
            )
        )
    windows = array.astype(np.float64)
    problems = []
    for what, wrong in (("not finite", ~np.isfinite(windows)), ("negative", windows < 0)):
        if wrong.any():
            window, layer, expert = (int(axis[0]) for axis in np.nonzero(wrong))
            where = f"first at window {window}, layer {layer}, expert {expert}"
            problems.append(
                Problem(place, f"{int(wrong.sum())} loads are {what}, {where}; expected 0 or more")
            )
    if problems:
        raise InstanceError(problems)
    if float(windows.max()) > 1e300:
        raise InstanceError(Problem(place, "a load above 1e300; give counts or shares"))
    return windows


def zero_rows(
    windows: Floats,
    names: tuple[str, ...],
    with_experts: NDArray[np.bool_],
    dense: int,
    leading: int,
    place: str,
) -> list[Problem]:
    """Problems for rows of layers ``with_experts [layers]`` (after ``dense`` dense ones) in which no expert was ever chosen."""
    empty = np.argwhere((windows == 0).all(axis=2) & with_experts)
    if not len(empty):
        return []
    window, layer = int(empty[0, 0]), int(empty[0, 1])
    message = f"{len(empty)} rows are all zero, first layer {layer} of window {names[window]!r}"
    if dense < leading < windows.shape[1]:
        said = option("dense-layers", str(leading))
        told = f" ({said})" if said else ""
        message += f"; if the first {leading} layers are dense, say so{told}"
    return [Problem(place, message)]
