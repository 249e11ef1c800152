"""Experts that tokens visit one after another, kept in one domain (node or rack) where there are no groups.

``pairs[l][i, j]`` counts tokens that go from expert ``i`` of layer ``l`` to expert ``j`` of the next
recorded layer. A transition inside one domain needs no copy across the network.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from solver.experts.slots import Floats, Ints, check_loads
from topology.errors import InstanceError, Problem

#: Random starts tried, passes over the layers, exchanges in a layer per pass.
STARTS, PASSES, EXCHANGES = 6, 12, 200


def crossings(pairs: Sequence[Floats], domain: Ints) -> float:
    """Share of transitions that leave their domain, ``domain [layers, experts]``."""
    crossed = total = 0.0
    for layer, count in enumerate(pairs):
        leaves = domain[layer][:, None] != domain[layer + 1][None, :]
        crossed += float(count[leaves].sum())
        total += float(count.sum())
    return crossed / total if total else 0.0


def group_by_affinity(
    pairs: Sequence[ArrayLike],
    loads: ArrayLike,
    num_domains: int,
    *,
    slack: float = 0.05,
    seed: int = 0,
) -> Ints:
    """Domain of each expert ``[layers, experts]`` with few crossings, equally many in each domain.

    A domain's load may exceed the mean by ``slack`` (or stay where a balanced start puts it).
    Best of several starts of an exchange descent. Raises ``InstanceError`` for wrong shapes.
    """
    shares = check_loads(loads)
    layers, experts = shares.shape
    counts = [np.asarray(count, dtype=np.float64) for count in pairs]
    if len(counts) != layers - 1 or any(count.shape != (experts, experts) for count in counts):
        raise InstanceError(
            Problem("pairs", f"expected {layers - 1} arrays of {experts} x {experts} counts")
        )
    if num_domains < 1 or experts % num_domains:
        raise InstanceError(Problem("domains", f"{num_domains} do not divide {experts} experts"))
    rng = np.random.default_rng(seed)
    best: tuple[float, Ints] | None = None
    for _ in range(STARTS):
        domain = np.stack([balanced_start(share, num_domains, rng) for share in shares])
        for _ in range(PASSES):
            if not any(
                exchange(counts, shares, domain, at, num_domains, slack) for at in range(layers)
            ):
                break
        value = crossings(counts, domain)
        if best is None or value < best[0]:
            best = value, domain.copy()
    assert best is not None
    return best[1]


def balanced_start(share: Floats, num_domains: int, rng: np.random.Generator) -> Ints:
    """Equal-sized domains of about equal load, at random among near-equal choices."""
    domain = np.empty(len(share), dtype=np.int64)
    load, room = np.zeros(num_domains), np.full(num_domains, len(share) // num_domains)
    for expert in np.argsort(-share * rng.uniform(0.9, 1.1, len(share))):
        chosen = int(np.where(room > 0, load, np.inf).argmin())
        domain[expert] = chosen
        load[chosen] += share[expert]
        room[chosen] -= 1
    return domain


def exchange(
    counts: list[Floats], shares: Floats, domain: Ints, layer: int, num_domains: int, slack: float
) -> bool:
    """Exchange experts of one layer between domains while that removes crossings; whether it did."""
    experts = shares.shape[1]
    every = np.arange(experts)
    pull = np.zeros((experts, num_domains))
    if layer < len(counts):
        np.add.at(pull.T, domain[layer + 1], counts[layer].T)
    if layer > 0:
        np.add.at(pull.T, domain[layer - 1], counts[layer - 1])
    changed = False
    for _ in range(EXCHANGES):
        mine = domain[layer]
        here = pull[every, mine]
        toward = pull[:, mine]
        gain = toward + toward.T - here[:, None] - here[None, :]
        load = np.bincount(mine, weights=shares[layer], minlength=num_domains)
        limit = max((1 + slack) / num_domains, float(load.max()))
        moved = shares[layer][None, :] - shares[layer][:, None]
        fits = (load[mine][:, None] + moved <= limit) & (load[mine][None, :] - moved <= limit)
        gain = np.where(fits & (mine[:, None] != mine[None, :]), gain, 0.0)
        if gain.max() <= 1e-9:
            break
        first, second = np.unravel_index(int(gain.argmax()), gain.shape)
        mine[first], mine[second] = mine[second], mine[first]
        changed = True
    return changed
