"""Experts on more nodes: what the search says of a change is what the evaluator says of its result."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

Ints = NDArray[np.int64]
EXPERTS, NODES = 16, 4


def four_to_a_node() -> Ints:
    """``[experts, nodes]``: each expert on one node."""
    held = np.zeros((EXPERTS, NODES), dtype=np.int64)
    held[np.arange(EXPERTS), np.arange(EXPERTS) // NODES] = 1
    return held


def check_changes(fan: Any, held: Ints, copies: Callable[[Ints, Ints], float]) -> None:
    """Put two experts on other nodes, one after the other, in three ways each.

    ``copies(row, node)``: what the evaluator says of slots in this order, each on its node.
    """

    def judged(held: Ints) -> float:
        row = np.concatenate([np.flatnonzero(held[:, n]) for n in range(NODES)])
        node = np.concatenate([np.full(held[:, n].sum(), n) for n in range(NODES)])
        return copies(row[None], node)

    layer = np.array([0])
    for expert, ways in ((0, [[3], [1, 2], [1, 2, 3]]), (9, [[0], [0, 3], [0, 1, 3]])):
        before = judged(held)
        after = np.repeat(held[None, [expert]], 3, axis=1)
        for way, nodes in enumerate(ways):
            after[0, way, nodes] = 1
        predicted = fan.change(layer, np.array([[expert]]), after.astype(bool)[None])[0, 0]
        for way in range(3):
            changed = held.copy()
            changed[expert] = after[0, way]
            assert judged(changed) - before == pytest.approx(predicted[way], abs=1e-9)
        fan.set(layer, np.array([expert]), after[:, 1].astype(bool))
        held[expert] = after[0, 1]
