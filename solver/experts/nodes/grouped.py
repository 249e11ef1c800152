r"""Placement over nodes (or racks) when the router limits a token to few groups of experts.

Groups of experts get a home node, so a token's experts lie on few nodes and few copies cross the
network; the spare slots of every node hold hot experts of *other* nodes (at most one replica of an
expert per node), which evens the nodes out and serves tokens of that node locally. ``abroad``
spare slots per node are used so, the others at home: 0 is the hierarchical placement. With one
replica per node the engines' even and local-first splits both give a replica ``share / replicas``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from costmodel.experts.fanout import group_choices
from solver.experts.bounds.closed_form import load_bounds
from solver.experts.local.repartition import descend, table_loads
from solver.experts.nodes.abroad import spend_abroad
from solver.experts.nodes.copies import CopyTraffic, Routing
from solver.experts.packing import pack_largest_first
from solver.experts.place import Effort, LayerPlacements, finish
from solver.experts.slots import Floats, Ints, Slots, check_loads
from topology.errors import InstanceError, Problem

#: Sweeps of the descent inside nodes, and most home assignments compared one by one.
SWEEPS = {"fast": 15, "good": 200, "best": 200}
TRIED = 3000


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Chips and slots by node: every node has ``chips`` chips with ``width`` slots each."""

    nodes: int
    chips: int
    width: int
    groups: int

    @property
    def room(self) -> int:
        """Slots of one node."""
        return self.chips * self.width


def check_nodes(
    experts: int, chips: int, slots: int, chips_per_node: int, groups: int
) -> NodeLayout:
    """The layout, or ``InstanceError``: even nodes, even slots, whole groups on every node."""
    problems = []
    if chips_per_node < 1 or chips % chips_per_node:
        problems.append(Problem("nodes", f"{chips_per_node} chips do not divide {chips}"))
    elif slots % chips:
        problems.append(Problem("slots", f"{slots} slots do not divide over {chips} chips"))
    elif groups < 1 or experts % groups or groups % (chips // chips_per_node):
        nodes = chips // chips_per_node
        problems.append(
            Problem(
                "groups", f"{groups} groups of {experts} experts do not divide over {nodes} nodes"
            )
        )
    elif slots < experts or slots // chips > experts:
        problems.append(Problem("slots", f"{slots} slots on {chips} chips for {experts} experts"))
    if problems:
        raise InstanceError(problems)
    return NodeLayout(chips // chips_per_node, chips_per_node, slots // chips, groups)


def place_on_nodes(
    loads: ArrayLike,
    chips: int,
    slots: int,
    *,
    chips_per_node: int,
    groups: int,
    abroad: int | None = None,
    routing: CopyTraffic | None = None,
    home: Ints | None = None,
    effort: Effort = "good",
    seed: int = 0,
    workers: int = 1,
    deadline: float | None = None,
) -> LayerPlacements:
    """Place ``loads [layers, experts]`` with groups at home and ``abroad`` spare slots per node.

    ``abroad`` is all spare slots by default, and at least what chips with more slots than their
    node has experts need; ``routing`` says how tokens pick groups, or which experts they use together, and what a copy
    to another node is worth against a mean node's load; ``home [layers, experts]`` gives home nodes
    that do not follow from groups, equally many experts on each; ``workers`` parts of the layers are worked on
    at once. After ``deadline`` (of ``time.monotonic``) what is left of the spare slots is spent at home, and nothing is
    improved any more. Raises ``InstanceError`` where groups, nodes and
    slots do not divide.
    """
    shares = check_loads(loads)
    layers, experts = shares.shape
    layout = check_nodes(experts, chips, slots, chips_per_node, groups)
    spare = layout.room - experts // layout.nodes
    own = experts // layout.nodes
    away = spare if abroad is None else min(max(abroad, 0), spare)
    needed = layout.width - own  # to fill the chips: these are spent whatever the time
    away = min(max(away, needed), experts - own)
    if home is None:
        home = home_nodes(shares, layout, routing)
    held = spend_abroad(
        shares, home, layout.nodes, layout.chips, groups, away, routing,
        workers=workers, deadline=None if needed > 0 else deadline,
    )  # fmt: skip
    counts = spend_at_home(shares, home, held, layout)
    pieces = shares / counts.sum(axis=2)
    inside = Slots((layout.width,) * layout.chips)
    table = np.empty((layers, layout.nodes, layout.chips, layout.width), dtype=np.int64)
    rng = np.random.default_rng(seed)
    for node in range(layout.nodes):
        table[:, node] = pack_node(
            pieces, counts[:, :, node], inside, rng, SWEEPS[effort], deadline
        )
    whole = Slots((layout.width,) * chips)
    bound = load_bounds(shares, chips, slots)
    return finish(shares, table.reshape(layers, chips, layout.width), whole, bound)


def home_nodes(shares: Floats, layout: NodeLayout, routing: CopyTraffic | None = None) -> Ints:
    """Home node of each expert ``[layers, experts]``: whole groups, the busiest node least loaded.

    With ``routing``, its price times the expected copies is added to the busiest node's load (in
    mean nodes): groups that share tokens then share a node.
    """
    layers, experts = shares.shape
    group = shares.reshape(layers, layout.groups, -1).sum(axis=2)
    each = layout.groups // layout.nodes
    plans = np.array(_partitions(layout.groups, each, TRIED))
    member = (plans[:, :, None] == np.arange(layout.nodes)).astype(float)
    cost = np.einsum("lg,pgn->lpn", group, member).max(axis=2) * layout.nodes
    if isinstance(routing, Routing) and routing.price > 0 and layout.groups > 1:
        for layer, share in enumerate(shares):
            odds, chance = group_choices(share, routing.top_k, layout.groups, routing.top_groups)
            spared = np.log1p(-np.minimum(chance, 1 - 1e-9)).reshape(len(odds), layout.groups, -1)
            # a product of matrices: einsum would take ten times as long
            missed = np.exp(np.tensordot(spared.sum(axis=2), member, axes=(1, 1)))
            touched = np.tensordot(odds, 1 - missed, axes=1).sum(axis=1)
            cost[layer] += routing.price * touched * (layout.nodes - 1) / layout.nodes
    home: Ints = np.repeat(plans[cost.argmin(axis=1)], experts // layout.groups, axis=1)
    return home


def _partitions(groups: int, each: int, most: int) -> list[tuple[int, ...]]:
    """Up to ``most`` ways to give ``each`` groups to every node, nodes interchangeable."""
    found: list[tuple[int, ...]] = []
    plan = [-1] * groups

    def fill(node: int) -> None:
        free = [group for group in range(groups) if plan[group] < 0]
        if not free:
            found.append(tuple(plan))
            return
        for others in combinations(free[1:], each - 1):
            if len(found) >= most:
                return
            for group in (free[0], *others):
                plan[group] = node
            fill(node + 1)
            for group in (free[0], *others):
                plan[group] = -1

    fill(0)
    return found


def spend_at_home(shares: Floats, home: Ints, held: Ints, layout: NodeLayout) -> Ints:
    """``held`` with the slots left on each node given to the largest pieces there (more per node).

    Layers may have unlike numbers left: those whose time was over.
    """
    counts = held.copy()
    for node in range(layout.nodes):
        left = layout.room - counts[:, :, node].sum(axis=1)
        for spent in range(int(left.max())):
            rows = np.flatnonzero(left > spent)
            piece = shares[rows] / counts[rows].sum(axis=2)
            can = (counts[rows, :, node] > 0) & (counts[rows, :, node] < layout.chips)
            hottest = np.where(can, piece, -1.0).argmax(axis=1)
            counts[rows, hottest, node] += 1
    return counts


def pack_node(
    pieces: Floats,
    counts: Ints,
    inside: Slots,
    rng: np.random.Generator,
    sweeps: int,
    deadline: float | None = None,
) -> Ints:
    """Slot tables ``[layers, chips, width]`` of one node: ``counts [layers, experts]`` replicas there."""
    present = np.argsort(counts == 0, axis=1, kind="stable")
    most = int((counts > 0).sum(axis=1).max())
    local = present[:, :most]
    here = np.take_along_axis(counts, local, axis=1)
    table = np.empty((len(pieces), inside.num_chips, inside.width), dtype=np.int64)
    for number in np.unique((here > 0).sum(axis=1)):
        rows = np.flatnonzero((here > 0).sum(axis=1) == number)
        expert, copies = local[rows, :number], here[rows, :number]
        size = np.take_along_axis(pieces[rows], expert, axis=1)
        packed = pack_largest_first(size * copies, copies, inside)
        padded = np.concatenate([size, np.zeros((len(rows), 1))], axis=1)
        level = table_loads(padded, packed)[1].mean(axis=1)
        packed, _ = descend(
            packed,
            padded,
            np.maximum(level, size.max(axis=1)),
            least=inside.least,
            sweeps=sweeps,
            tolerance=1e-3,
            rng=rng,
            deadline=deadline,
        )
        table[rows] = np.take_along_axis(expert, packed.reshape(len(rows), -1), axis=1).reshape(
            packed.shape
        )
    return table
