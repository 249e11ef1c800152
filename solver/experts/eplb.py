"""EPLB (DeepSeek's expert-parallel load balancer) in numpy, written from its published description.

Three greedy steps: give each further slot to the expert whose replicas carry most; sort the
pieces and put each on the least loaded pack with room; in the hierarchical form groups of experts
go to nodes first. The placement to compare with, never one that is returned. Source:
github.com/deepseek-ai/EPLB, README and ``eplb.py`` (MIT).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def balanced_packing(weight: Floats, num_packs: int) -> tuple[Ints, Ints]:
    """Pack ``[L, n]`` items into ``num_packs`` of equal count: (pack of item, rank in pack)."""
    layers, items = weight.shape
    room = items // num_packs
    order = np.argsort(-weight, axis=1, kind="stable")
    pack_of = np.zeros((layers, items), dtype=np.int64)
    rank_of = np.zeros((layers, items), dtype=np.int64)
    load = np.zeros((layers, num_packs))
    count = np.zeros((layers, num_packs), dtype=np.int64)
    rows = np.arange(layers)
    for step in range(items):
        item = order[:, step]
        pack = np.where(count < room, load, np.inf).argmin(axis=1)
        pack_of[rows, item] = pack
        rank_of[rows, item] = count[rows, pack]
        load[rows, pack] += weight[rows, item]
        count[rows, pack] += 1
    return pack_of, rank_of


def replicate(weight: Floats, num_slots: int) -> tuple[Ints, Ints]:
    """Logical expert of each of ``num_slots`` slots and the replica counts, both per row."""
    rows, experts = weight.shape
    logical = np.tile(np.arange(experts), (rows, 1))
    count = np.ones((rows, experts), dtype=np.int64)
    extra = np.zeros((rows, num_slots - experts), dtype=np.int64)
    every = np.arange(rows)
    for step in range(num_slots - experts):
        hottest = (weight / count).argmax(axis=1)
        extra[:, step] = hottest
        count[every, hottest] += 1
    return np.concatenate([logical, extra], axis=1), count


def eplb(
    weight: Floats, num_slots: int, num_chips: int, num_groups: int = 1, num_nodes: int = 1
) -> Ints:
    """``physical_to_logical [L, num_slots]``; hierarchical when the groups divide over the nodes."""
    if num_groups % num_nodes:
        num_groups = num_nodes = 1
    layers, experts = weight.shape
    per_group = experts // num_groups
    per_node = num_groups // num_nodes
    group_load = weight.reshape(layers, num_groups, per_group).sum(axis=2)
    node, rank = balanced_packing(group_load, num_nodes)
    place = ((node * per_node + rank) * per_group)[:, :, None] + np.arange(per_group)
    to_middle = place.reshape(layers, experts)
    middle = np.argsort(to_middle, axis=1)  # expert at each position, node by node
    in_node = np.take_along_axis(weight, middle, axis=1).reshape(layers * num_nodes, -1)
    logical, count = replicate(in_node, num_slots // num_nodes)
    pieces = np.take_along_axis(in_node / count, logical, axis=1)
    chips = num_chips // num_nodes
    pack, rank = balanced_packing(pieces, chips)
    slot = pack * (num_slots // num_chips) + rank
    by_slot = np.take_along_axis(logical, np.argsort(slot, axis=1), axis=1)
    by_slot = by_slot.reshape(layers, num_nodes, -1)
    offset = np.arange(num_nodes)[None, :, None] * (experts // num_nodes)
    return np.take_along_axis(middle, (by_slot + offset).reshape(layers, -1), axis=1)
