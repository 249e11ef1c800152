"""Experts used together over nodes: copies of tokens against EPLB's and random placements.

No record of single tokens is shipped, so tokens are drawn: each from one of
the shipped recordings of a model, its experts one by one in proportion to that recording's loads.
Experts are then used together only as far as recordings differ, which is less than in real tokens.
"""

from __future__ import annotations

import time

import numpy as np

from costmodel.experts.coactivation import CoActivation, pair_shares
from costmodel.experts.expert_load import ExpertLoads, read_loads
from rackfit.placement.place import place
from solver.experts.request import PlaceOptions
from topology.catalogue import data_dir

#: Model, experts per token, nodes, chips, spare slots.
CASES = (
    ("olmoe-1b-7b", 8, 2, 8, 16),
    ("olmoe-1b-7b", 8, 4, 16, 16),
    ("olmoe-1b-7b", 8, 8, 16, 16),
    ("gpt-oss-20b", 4, 2, 8, 8),
    ("gpt-oss-20b", 4, 4, 8, 8),
    ("gpt-oss-20b", 4, 8, 16, 16),
)
TOKENS = 20_000


def drawn(windows, top_k, tokens, rng):
    """Experts of tokens ``[tokens, layers, top_k]``, each token from one of ``windows [window, layer, expert]``."""
    share = windows / windows.sum(axis=2, keepdims=True)
    window = rng.integers(len(share), size=tokens)
    picks = np.empty((tokens, share.shape[1], top_k), dtype=np.int64)
    for layer in range(share.shape[1]):
        score = np.log(share[window, layer] + 1e-9) + rng.gumbel(size=(tokens, share.shape[2]))
        picks[:, layer] = np.argsort(-score, axis=1)[:, :top_k]
    return picks


def together():
    print("\nUsed together: tokens drawn from shipped recordings, static dispatch, held-out tokens")
    print(
        f"{'model':<14}{'nodes':>6}{'size':>7}{'ours':>17}{'EPLB':>17}{'random':>17}{'saved of EPLB, random':>24}{'as even: EPLB':>14}{'s':>6}"
    )
    for model, top_k, nodes, chips, spare in CASES:
        recorded = read_loads(data_dir("loads") / f"{model}.npz")
        rng = np.random.default_rng(0)
        picks = drawn(recorded.windows, top_k, 2 * TOKENS, rng)
        seen, later = picks[:TOKENS], picks[TOKENS:]
        known = CoActivation(pair_shares(seen, recorded.num_experts), top_k, model, seen, later)
        loads = ExpertLoads(
            known.chance[None], recorded.layer_ids, recorded.num_layers, ("drawn",), model
        )
        options = PlaceOptions(
            gpus=chips,
            slots=recorded.num_experts + spare,
            gpus_per_node=chips // nodes,
            dispatch="sglang-static",
        )
        start = time.perf_counter()
        placed = place(loads, options, coactivation=known)
        found = placed.compared
        wall = time.perf_counter() - start
        figures = "".join(
            f"{one.imbalance:>10.3f}{one.copies:>7.3f}"
            for one in (found.placed, found.eplb, found.random)
        )
        even = [
            copies for balance, copies in placed.found.by_layer if balance <= found.eplb.imbalance
        ]
        as_even = f"{1 - min(even) / found.eplb.copies:.1%}" if even else "-"
        saved = f"{found.saving(found.eplb):.1%}, {found.saving(found.random):.1%}"
        print(
            f"{model:<14}{nodes:>6}{f'{chips}+{spare}':>7}{figures}{saved:>24}{as_even:>14}{wall:>6.0f}",
            flush=True,
        )
