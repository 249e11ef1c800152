r"""Which experts tokens use together, and the copies to remote nodes that follow from it.

Two kinds of record: the experts of single tokens, from which copies are counted, and pair counts,
from which they are estimated and enclosed. For a token's number ``X`` of experts on a node, pairs
give ``S1 = E[X]`` and ``S2 = E[X (X - 1) / 2]``. Whatever the distribution over ``0..k``,

    2 S1 / (m + 1) - 2 S2 / (m (m + 1))  <=  P(X >= 1)  <=  S1 - 2 S2 / k,   m = 1 + floor(2 S2 / S1)

(Dawson and Sankoff 1967; Kwerel 1975). The estimate between them is the Polya urn with these two
moments: hypergeometric where picks repel as in a draw without replacement, binomial where they
are independent, clustered where they attract. Never imports the solver.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.fanout import node_shares

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Tokens looked at together when copies are counted: their arrays fit a processor's cache.
CHUNK = 4096


@dataclass(frozen=True, slots=True)
class CoActivation:
    """Experts that tokens use together, in the layers and for the experts of the recorded loads.

    ``pairs [layers, experts, experts]``: share of tokens that use both experts, on the diagonal
    those that use the one. ``picks [tokens, layers, top_k]``: experts of single tokens, where
    recorded; ``pairs`` is then computed from these, and ``held_out`` holds as many later tokens
    that no search may read. ``dropped`` tokens had no expert in some layer.
    """

    pairs: Floats
    top_k: int
    source: str
    picks: Ints | None = None
    held_out: Ints | None = None
    dropped: int = 0

    @property
    def chance(self) -> Floats:
        """Probability ``[layers, experts]`` that a token uses each expert."""
        chance: Floats = np.einsum("lee->le", self.pairs)
        return chance


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of a token to remote nodes per layer: counted, or estimated between two bounds."""

    value: Floats
    least: Floats
    most: Floats


def pair_shares(picks: Ints, num_experts: int) -> Floats:
    """Share ``[layers, experts, experts]`` of tokens that use both experts, of ``picks [tokens, layers, k]``."""
    tokens, layers = picks.shape[:2]
    pairs = np.zeros((layers, num_experts, num_experts))
    for layer in range(layers):
        chosen = picks[:, layer]
        both = chosen[:, :, None] * num_experts + chosen[:, None, :]
        counts = np.bincount(both.ravel(), minlength=num_experts**2)
        pairs[layer] = counts.reshape(num_experts, num_experts) / tokens
    return pairs


def touch_bounds(mean: Floats, pairs: Floats, top_k: int) -> tuple[Floats, Floats]:
    """Least and most probability that a node holds one of a token's experts, any shape.

    ``mean``: expected number of them there, ``pairs``: expected number of pairs of them.
    """
    safe = np.maximum(mean, 1e-300)
    step = np.clip(1 + np.floor(2 * pairs / safe), 1, max(top_k - 1, 1))
    least = 2 * mean / (step + 1) - 2 * pairs / (step * (step + 1))
    most = np.minimum(mean - 2 * pairs / top_k, 1.0)
    most = np.clip(most, 0.0, 1.0)
    return np.clip(least, 0.0, most), most


def touch_estimate(mean: Floats, pairs: Floats, top_k: int) -> Floats:
    """The same probability under a Polya urn with this mean and these pairs, within the bounds."""
    share = np.clip(mean / top_k, 0.0, 1 - 1e-12)
    again = pairs / (comb(top_k, 2) * np.maximum(share, 1e-300))
    cling = np.clip((again - share) / (1 - share), -1 / (top_k - 1), 1 - 1e-9)
    missed = np.ones_like(share)
    for pick in range(top_k):
        left = (1 - share) * (1 - cling) + pick * cling
        missed *= np.maximum(left, 0.0) / (1 - cling + pick * cling)
    least, most = touch_bounds(mean, pairs, top_k)
    touched: Floats = np.clip(1 - missed, least, most)
    return touched


def together_copies(
    physical_to_logical: Ints,
    together: CoActivation,
    node_of_slot: Ints,
    *,
    local_first: bool = False,
    held_out: bool = False,
) -> Copies:
    """Expected copies of a token to remote nodes, tokens starting evenly on all nodes.

    Counted on ``together.picks`` (or the tokens held out) where there are any, else estimated from pairs. With
    ``local_first`` (SGLang static) an expert with a replica on the token's node is served there;
    otherwise a replica is drawn evenly, for every expert on its own.
    """
    held = node_shares(physical_to_logical, together.pairs.shape[1], node_of_slot)
    layers, _, nodes = held.shape
    found = np.zeros((3, layers))
    picks = together.held_out if held_out else together.picks
    for layer, fraction in enumerate(held):
        away = remote_fractions(fraction, local_first)
        if picks is None:
            touched = from_pairs(together.pairs[layer], away, together.top_k)
        else:
            touched = np.stack([counted(picks[:, layer], away)] * 3)
        found[:, layer] = touched.sum(axis=(1, 2)) / nodes
    return Copies(*found)


def remote_fractions(fraction: Floats, local_first: bool) -> Floats:
    """Fraction ``[from, experts, to]`` served on each remote node, of ``fraction [experts, nodes]`` of replicas."""
    nodes = fraction.shape[1]
    away = np.repeat(fraction[None], nodes, axis=0)
    if local_first:
        away *= (fraction.T == 0)[:, :, None]
    away[np.arange(nodes), :, np.arange(nodes)] = 0.0
    return away


def from_pairs(pairs: Floats, away: Floats, top_k: int) -> Floats:
    """Estimate, least and most probability ``[3, from, to]`` of a copy, one layer's ``pairs``."""
    mean = np.einsum("e,sen->sn", np.diagonal(pairs), away)
    apart = pairs - np.diag(np.diagonal(pairs))
    both = 0.5 * np.einsum("sen,sen->sn", away, apart @ away)
    return np.stack([touch_estimate(mean, both, top_k), *touch_bounds(mean, both, top_k)])


def counted(picks: Ints, away: Floats) -> Floats:
    """Share ``[from, to]`` of tokens ``picks [tokens, top_k]`` that are copied from node to node."""
    total = np.zeros((away.shape[0], away.shape[2]))
    stays = 1 - away.transpose(1, 0, 2).reshape(away.shape[1], -1)
    for start in range(0, len(picks), CHUNK):
        part = picks[start : start + CHUNK]
        missed = stays[part[:, 0]]
        for pick in range(1, part.shape[1]):
            missed *= stays[part[:, pick]]
        total += (1 - missed).sum(axis=0).reshape(total.shape)
    return total / len(picks)
