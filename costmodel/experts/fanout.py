"""How many remote domains a token's activations are copied to, from loads and router groups.

A token picks ``top_k`` different experts; the engine sends one copy per remote domain (node or
rack) and forwards inside it. Experts of a token are taken as independent given its groups, with
inclusion probabilities that reproduce the recorded loads exactly.
"""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from topology.errors import InstanceError, Problem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: Sets of groups that are counted one by one; published routers have at most 70 (4 of 8 groups).
MOST_SETS = 2_000


def inclusion(shares: Floats, top_k: int) -> Floats:
    """Probability that a token picks each expert ``[..., experts]``: ``top_k * share``, at most 1."""
    if not 1 <= top_k <= shares.shape[-1]:
        raise InstanceError(
            Problem("top-k", f"{top_k} experts per token of {shares.shape[-1]} experts")
        )
    chance: Floats = np.minimum(top_k * shares / shares.sum(axis=-1, keepdims=True), 1.0)
    return chance


def group_choices(
    shares: Floats, top_k: int, num_groups: int, top_groups: int
) -> tuple[Floats, Floats]:
    """Group sets of one layer: probability ``[sets]`` and expert inclusion given each ``[sets, experts]``.

    Group-limited routing (``n_group``/``topk_group``): a token takes ``top_groups`` of
    ``num_groups`` groups of consecutive experts, then experts within them. Sets are drawn in
    proportion to the product of their groups' loads; within a set experts follow loads scaled per
    group so that the marginals are the recorded ones.
    """
    experts = shares.shape[0]
    if num_groups < 1 or experts % num_groups or not 1 <= top_groups <= num_groups:
        raise InstanceError(
            Problem("groups", f"{top_groups} of {num_groups} groups for {experts} experts")
        )
    if reason := too_many_sets(num_groups, top_groups):
        raise InstanceError(Problem("groups", reason))
    sets = np.array(list(combinations(range(num_groups), top_groups)))
    member = np.zeros((len(sets), num_groups))
    member[np.arange(len(sets))[:, None], sets] = 1.0
    by_group = shares.reshape(num_groups, -1).sum(axis=1) / shares.sum()
    safe = np.maximum(by_group, 1e-9)
    odds = np.exp(member @ np.log(safe))
    odds /= odds.sum()
    pull = safe.copy()
    for _ in range(200):
        reach = member * pull
        reach /= reach.sum(axis=1, keepdims=True)
        got = odds @ reach
        if np.abs(got - safe).max() < 1e-6:
            break
        pull *= safe / got
    part = member * pull
    part /= part.sum(axis=1, keepdims=True)
    inside = shares.reshape(num_groups, -1) / np.maximum(
        shares.reshape(num_groups, -1).sum(axis=1, keepdims=True), 1e-300
    )
    chance = top_k * part[:, :, None] * inside[None]
    return odds, np.minimum(chance.reshape(len(sets), experts), 1.0)


def too_many_sets(num_groups: int, top_groups: int) -> str:
    """Why the sets of groups that a token may use are too many; empty where they are not."""
    if comb(num_groups, top_groups) <= MOST_SETS:
        return ""
    return (
        f"{top_groups} of {num_groups} groups per token are more than {MOST_SETS:,} different sets, which are "
        "looked at one by one"
    )


def node_shares(physical_to_logical: Ints, num_experts: int, node_of_slot: Ints) -> Floats:
    """Fraction of each expert's replicas on each node ``[layers, experts, nodes]``."""
    layers = physical_to_logical.shape[0]
    held = np.zeros((layers, num_experts, int(node_of_slot.max()) + 1))
    rows = np.arange(layers)[:, None]
    np.add.at(held, (rows, physical_to_logical, node_of_slot[None, :]), 1.0)
    fraction: Floats = held / held.sum(axis=2, keepdims=True)
    return fraction


def remote_copies(
    physical_to_logical: Ints,
    loads: Floats,
    node_of_slot: Ints,
    *,
    top_k: int,
    num_groups: int = 1,
    top_groups: int = 1,
    local_first: bool = False,
) -> Floats:
    """Expected copies of a token to remote nodes ``[layers]``, tokens starting evenly on all nodes.

    With ``local_first`` (SGLang static) an expert with a replica on the token's node is served
    there; otherwise a replica is drawn evenly. ``sum over sources s and nodes n != s of
    (1 - prod_e (1 - q_e f_en)) / nodes``.
    """
    layers, experts = loads.shape
    held = node_shares(physical_to_logical, experts, node_of_slot)
    nodes = held.shape[2]
    copies = np.zeros(layers)
    for layer in range(layers):
        if num_groups > 1:
            odds, chance = group_choices(loads[layer], top_k, num_groups, top_groups)
        else:
            odds, chance = np.ones(1), inclusion(loads[layer], top_k)[None]
        if local_first:
            for source in range(nodes):
                away = held[layer] * (held[layer][:, source] == 0)[:, None]
                copies[layer] += odds @ touched(chance, away).sum(axis=1) / nodes
        else:
            copies[layer] = odds @ touched(chance, held[layer]).sum(axis=1) * (nodes - 1) / nodes
    return copies


def touched(chance: Floats, fraction: Floats) -> Floats:
    """Probability ``[sets, nodes]`` that at least one picked expert is served on each node."""
    missed = np.empty((chance.shape[0], fraction.shape[1]))
    for node in range(fraction.shape[1]):
        here = np.flatnonzero(fraction[:, node] > 0)
        missed[:, node] = np.prod(1.0 - chance[:, here] * fraction[here, node], axis=1)
    return 1.0 - missed
