"""First placements: pieces onto chips, largest first, for all layers at once; and the best pairs of a layer."""

from __future__ import annotations

import numpy as np

from solver.experts.slots import Floats, Ints, Slots


def pack_largest_first(shares: Floats, replicas: Ints, slots: Slots) -> Ints:
    """Slot tables ``[layers, chips, width]``: each piece goes to the least loaded chip with room.

    Pieces are taken in falling size; a chip that already holds the expert is passed over. A place
    beyond a chip's slots holds the number of experts. Layers where this leaves a replica
    without a chip are dealt again by :func:`deal`.
    """
    layers, experts = shares.shape
    pieces = shares / replicas
    order = np.argsort(-pieces, axis=1, kind="stable")
    copies = np.take_along_axis(replicas, order, axis=1)
    expert = np.repeat(order.ravel(), copies.ravel()).reshape(layers, slots.total)
    size = np.take_along_axis(pieces, expert, axis=1)
    starts = np.ones(expert.shape, dtype=bool)
    starts[:, 1:] = expert[:, 1:] != expert[:, :-1]
    table = np.full((layers, slots.num_chips, slots.width), experts, dtype=np.int64)
    load = np.zeros((layers, slots.num_chips))
    filled = np.zeros((layers, slots.num_chips), dtype=np.int64)
    holds = np.zeros((layers, slots.num_chips), dtype=bool)
    room = np.array(slots.counts)
    rows = np.arange(layers)
    stuck = np.zeros(layers, dtype=bool)
    for step in range(slots.total):
        holds[starts[:, step]] = False
        key = np.where(holds, np.inf, load)
        chip = key.argmin(axis=1)
        stuck |= np.isinf(key[rows, chip])
        place = np.minimum(filled[rows, chip], slots.width - 1)
        table[rows, chip, place] = expert[:, step]
        filled[rows, chip] += 1
        holds[rows, chip] = True
        full = filled[rows, chip] >= room[chip]
        load[rows, chip] = np.where(full, np.inf, load[rows, chip] + size[:, step])
    for layer in np.flatnonzero(stuck):
        table[layer] = deal(replicas[layer], slots)
    return table


def deal(replicas: Ints, slots: Slots) -> Ints:
    """One slot table ``[chips, width]`` without repeats, whatever the loads.

    Experts with most replicas first, each on the chips with most room left; this finds a valid
    table whenever one exists (as a bipartite graph of given degrees is realised).
    """
    table = np.full((slots.num_chips, slots.width), replicas.shape[0], dtype=np.int64)
    room = np.array(slots.counts)
    for expert in np.argsort(-replicas, kind="stable"):
        chips = np.argsort(-room, kind="stable")[: replicas[expert]]
        table[chips, np.array(slots.counts)[chips] - room[chips]] = expert
        room[chips] -= 1
    return table


def paired_table(share: Floats, replicas: Ints) -> Ints:
    """Slot table ``[chips, 2]`` of the best pairing, an expert never paired with itself."""
    order = np.argsort(share / replicas, kind="stable")
    expert = np.repeat(order, replicas[order])
    chips = len(expert) // 2
    table = np.stack([expert[::-1][:chips], expert[:chips]], axis=1)
    piece = share / replicas
    for chip in np.flatnonzero(table[:, 0] == table[:, 1]):
        same = table[chip, 0]
        fits = np.flatnonzero((table != same).all(axis=1))
        peaks = np.maximum(piece[table[fits, 0]] + piece[same], piece[table[fits, 1]] + piece[same])
        other = fits[peaks.argmin()]
        table[chip, 1], table[other, 1] = table[other, 1], same
    return table
