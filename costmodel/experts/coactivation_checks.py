"""What is wrong with recorded co-activation: every problem, with its place and what is accepted."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.expert_load import ExpertLoads
from topology.errors import Problem, option

Array = NDArray[np.generic]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Relative differences that rounding of shares to six digits explains.
ROUNDING = 1e-5
#: Largest pair count: sums and products of such stay numbers.
MOST_COUNT = 1e100
#: Fewest tokens of which one half can be held out.
FEWEST_TOKENS = 2


def dense_rows(array: Array, axis: int, loads: ExpertLoads) -> Array:
    """``array`` with the layers of the loads on ``axis``; rows of dense layers are left out."""
    if array.shape[axis] == loads.windows.shape[1]:
        return array
    return np.take(array, np.asarray(loads.layer_ids), axis=axis)


def check_pairs(array: Array, loads: ExpertLoads, place: str, top_k: int | None) -> list[Problem]:
    """Problems of pair counts ``[layers, experts, experts]``."""
    if array.dtype.kind not in "iuf":
        return [Problem(place, f"expected numbers, got dtype {array.dtype}")]
    counts = array.astype(np.float64)
    problems = [Problem(place, said) for said in _uncounted(counts, loads)]
    if problems:
        return problems
    own = np.einsum("lee->le", counts)
    beside = counts.sum(axis=2) - own
    return [
        *check_diagonal(counts, own, beside, loads, place, top_k),
        *unused(beside, loads, place),
    ]


def _uncounted(counts: Floats, loads: ExpertLoads) -> Iterator[str]:
    """What in a table is no count of pairs."""
    usable = np.isfinite(counts) & (np.abs(counts) <= MOST_COUNT)
    for what, wrong in (("not usable numbers", ~usable), ("negative", usable & (counts < 0))):
        if wrong.any():
            layer, one, other = first(wrong)
            yield (
                f"{int(wrong.sum())} counts are {what}, first {counts[layer, one, other]:g} in "
                f"{where(loads, layer)}, experts {one} and {other}; expected 0 to {MOST_COUNT:g}"
            )
    counts = np.where(usable, counts, 0.0)
    size = np.maximum(np.abs(counts), np.abs(counts.transpose(0, 2, 1)))
    uneven = np.abs(counts - counts.transpose(0, 2, 1)) > ROUNDING * size
    if uneven.any():
        layer, one, other = first(uneven)
        yield (
            f"not symmetric: {where(loads, layer)} has {counts[layer, one, other]:g} for experts "
            f"{one} and {other}, {counts[layer, other, one]:g} for {other} and {one}; expected "
            "the same"
        )
    beside = counts.sum(axis=2) - np.einsum("lee->le", counts)
    empty = np.flatnonzero(~(beside > 0).any(axis=1))
    if empty.size:
        yield (
            f"{empty.size} layers are all zero beside the diagonal, first "
            f"{where(loads, int(empty[0]))}; expected pairs of experts in every layer"
        )


def check_diagonal(
    counts: Floats, own: Floats, beside: Floats, loads: ExpertLoads, place: str, top_k: int | None
) -> list[Problem]:
    """Problems of the diagonal against the pairs: every use of an expert has ``top_k - 1`` others."""
    if not own.any():
        each = 8 if top_k is None else top_k
        if each < 2:
            return [
                Problem(option("top-k"), f"{each}: experts used together need 2 or more per token")
            ]
        said = _too_many_pairs(counts, beside / (each - 1), loads)
        why = (
            f"use both if each has {each} experts; give the tokens of each expert on the diagonal, "
        )
        return [Problem(place, f"{said} {why}or another {option('top-k')}")] if said else []
    each = round(1 + float(beside.sum() / own.sum()))
    if each < 2:
        return [Problem(place, "1 expert per token, none used together; need 2 or more")]
    wrong = np.abs(beside - (each - 1) * own) > 1e-3 * np.maximum(beside, (each - 1) * own)
    if wrong.any():
        layer, expert = first(wrong)
        text = (
            f"{where(loads, layer)}: expert {expert} has {own[layer, expert]:g} tokens on the "
            f"diagonal and {beside[layer, expert]:g} pairs; expected {each - 1} pairs per token "
            f"({each} experts each, as the sums say), or zeros on the whole diagonal"
        )
        return [Problem(place, text)]
    said = _too_many_pairs(counts, own, loads)
    return [Problem(place, f"{said} use one of them")] if said else other_top_k(each, top_k, place)


def _too_many_pairs(counts: Floats, own: Floats, loads: ExpertLoads) -> str:
    """The first pair that more tokens use than there are for either expert; empty if there is none."""
    most = np.minimum(own[:, :, None], own[:, None, :])
    above = np.triu(counts > most * (1 + ROUNDING), 1)
    if not above.any():
        return ""
    layer, one, other = first(above)
    return (
        f"{where(loads, layer)}: {counts[layer, one, other]:g} tokens use experts {one} and "
        f"{other}, but only {most[layer, one, other]:g}"
    )


def check_picks(
    arrays: dict[str, Array], loads: ExpertLoads, top_k: int | None
) -> tuple[list[Ints], int, list[Problem]]:
    """Arrays of tokens' experts ``[tokens, layers, top_k]`` without incomplete tokens, how many these were, problems."""
    problems: list[Problem] = []
    parts: list[Ints] = []
    dropped = 0
    for place, array in arrays.items():
        if array.dtype.kind not in "iu":
            problems.append(
                Problem(place, f"expected whole numbers (expert ids), got dtype {array.dtype}")
            )
            continue
        picks = array.astype(np.int64)
        picks = picks[:, :, (picks >= 0).any(axis=(0, 1))]
        for what, wrong in (("below -1", picks < -1), ("too large", picks >= loads.num_experts)):
            if wrong.any():
                token, layer, pick = first(wrong)
                problems.append(
                    Problem(
                        place,
                        f"{int(wrong.sum())} experts are {what}, first {picks[token, layer, pick]} of "
                        f"token {token} in {where(loads, layer)}; expected 0 to "
                        f"{loads.num_experts - 1}, or -1 where nothing was recorded",
                    )
                )
        whole = (picks >= 0).all(axis=(1, 2))
        if whole.sum() < FEWEST_TOKENS:
            text = f"{whole.sum()} tokens with experts in every layer ({(~whole).sum()} without)"
            problems.append(Problem(place, f"{text}; need {FEWEST_TOKENS} or more"))
        dropped += int((~whole).sum())
        picks = picks[whole]
        rising = np.sort(picks, axis=2)
        twice = (rising[..., 1:] == rising[..., :-1]).any(axis=2)
        if twice.any():
            token, layer = first(twice)
            number = int(np.flatnonzero(whole)[token])
            problems.append(
                Problem(
                    place,
                    f"{int(twice.sum())} times a token has an expert twice, first token {number} in "
                    f"{where(loads, layer)}: {picks[token, layer].tolist()}; expected different ones",
                )
            )
        parts.append(picks)
    if problems:
        return parts, dropped, problems
    place = next(iter(arrays)).split(": ")[0]
    widths = sorted({part.shape[2] for part in parts})
    if len(widths) > 1:
        text = f"tokens with {widths} experts each; expected equally many"
        return parts, dropped, [Problem(place, text)]
    if widths[0] < 2:
        text = f"{widths[0]} experts per token, none used together; need 2 or more"
        return parts, dropped, [Problem(place, text)]
    picks = np.concatenate(parts)
    layers = range(picks.shape[1])
    used = [np.bincount(picks[:, layer].ravel(), minlength=loads.num_experts) for layer in layers]
    problems = [
        *other_top_k(widths[0], top_k, place),
        *unused(np.stack(used).astype(np.float64), loads, place),
    ]
    return parts, dropped, problems


def other_top_k(found: int, top_k: int | None, place: str) -> list[Problem]:
    """A problem where ``--top-k`` says something else than the file."""
    if top_k is None or top_k == found:
        return []
    return [
        Problem(
            option("top-k"), f"{top_k}, but {place} has {found} experts per token; leave it out"
        )
    ]


def unused(used: Floats, loads: ExpertLoads, place: str) -> list[Problem]:
    """A problem where a loaded expert is never used: the two files are then not of one model."""
    shares = loads.total / loads.total.sum(axis=1, keepdims=True)
    wrong = (used == 0) & (shares > 1 / loads.num_experts)
    if not wrong.any():
        return []
    layer, expert = first(wrong)
    return [
        Problem(
            place,
            f"{int(wrong.sum())} experts with more than a mean load are never used here, first expert "
            f"{expert} of {where(loads, layer)} with {shares[layer, expert]:.1%} of the load in "
            f"{loads.source}; give counts and co-activation of the same model",
        )
    ]


def first(wrong: NDArray[np.bool_]) -> tuple[int, ...]:
    """Indices of the first element that holds."""
    return tuple(int(axis[0]) for axis in np.nonzero(wrong))


def where(loads: ExpertLoads, layer: int) -> str:
    """A layer in words, by the model's own number."""
    return f"layer {loads.layer_ids[layer]}"
