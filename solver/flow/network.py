"""The flow through a placement, in whole numbers and fast: what the search compares. The judge has its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ortools.graph.python import max_flow

from costmodel.flow.question import FlowQuestion

#: whole numbers that stand for the rates of all nodes together
_STEPS = 10**13
#: first and last layer of each node; ``None`` for a node that holds nothing
Ranges = Sequence[tuple[int, int] | None]


class Network:
    """Capacities of a question as whole numbers."""

    def __init__(self, question: FlowQuestion):
        number = len(question.nodes)
        self.number, self.layers = number, question.model.layers
        held = [range(1, question.most_layers(node) + 1) for node in range(number)]
        #: the most that could flow, and tokens/s of one step
        self.most = sum(max(question.rate(n, k) for k in held[n]) for n in range(number))
        self.unit = self.most / _STEPS
        self.link = np.zeros((number, number), dtype=np.int64)
        for one in range(number):
            for other in range(one + 1, number):
                speed = self._steps(question.link(one, other))
                self.link[one, other] = self.link[other, one] = speed
        self.entry = np.array([self._steps(question.entry(node)) for node in range(number)])
        self.leaving = np.array([self._steps(question.leaving(node)) for node in range(number)])
        self.rates = [
            np.array([0, *(self._steps(question.rate(n, k)) for k in held[n])])
            for n in range(number)
        ]  # fmt: skip

    def speed(self, one: int, other: int) -> float:
        """Tokens/s of the link between two nodes."""
        return float(self.link[one, other]) * self.unit

    def flow(self, ranges: Ranges) -> float:
        """Tokens/s from source to sink."""
        nodes = [node for node, held in enumerate(ranges) if held is not None]
        held = np.array([ranges[node] for node in nodes], dtype=np.int64).reshape(-1, 2)
        first, last = held[:, 0], held[:, 1]
        ids = np.array(nodes, dtype=np.int64)
        if not len(ids):
            return 0.0
        rates = np.array([self.rates[n][b - a + 1] for n, (a, b) in zip(nodes, held, strict=True)])
        tails, heads = np.nonzero(last[:, None] + 1 == first[None, :])
        starting = np.flatnonzero(first == 0)
        ending = np.flatnonzero(last == self.layers - 1)
        count = len(ids)
        source, sink = 2 * count, 2 * count + 1
        solver = max_flow.SimpleMaxFlow()
        solver.add_arcs_with_capacity(
            np.concatenate([np.arange(count), count + tails, np.full(len(starting), source), count + ending]),
            np.concatenate([count + np.arange(count), heads, starting, np.full(len(ending), sink)]),
            np.concatenate([
                rates, self.link[ids[tails], ids[heads]], self.entry[ids[starting]], self.leaving[ids[ending]],
            ]),
        )  # fmt: skip
        if not (len(starting) and len(ending)):
            return 0.0
        solver.solve(source, sink)
        return float(solver.optimal_flow()) * self.unit

    def crossing(
        self, tails: Sequence[tuple[int, float]], heads: Sequence[tuple[int, float]]
    ) -> float:
        """Tokens/s that nodes hand to nodes, each given with the tokens/s that it passes itself."""
        solver = max_flow.SimpleMaxFlow()
        count = len(tails)
        source, sink = count + len(heads), count + len(heads) + 1
        for i, (node, rate) in enumerate(tails):
            solver.add_arc_with_capacity(source, i, self._steps(rate))
            for j, (other, _) in enumerate(heads):
                solver.add_arc_with_capacity(i, count + j, int(self.link[node, other]))
        for j, (_, rate) in enumerate(heads):
            solver.add_arc_with_capacity(count + j, sink, self._steps(rate))
        solver.solve(source, sink)
        return float(solver.optimal_flow()) * self.unit

    def _steps(self, tokens_per_s: float) -> int:
        return int(min(tokens_per_s, self.most) / self.unit)
