"""A placement made for all recordings but one, judged on that one; each is left out once.

Busiest over mean chip, each expert's tokens split evenly over its replicas, mean over layers. ``mean`` and
``worst`` are what the search over the kept recordings lowers; EPLB gets the mean share of each expert over them.
``made for it`` is ours for the recording that was left out; ``bound`` is proven, no placement is below it.
"""

from __future__ import annotations

import numpy as np

from costmodel.experts.expert_load import ExpertLoads
from rackfit.placement.place import place
from solver.experts.request import PlaceOptions

#: chips and spare slots
SIZES = ((32, 32), (64, 64), (72, 32))


def left_out(names, windows, workers):
    """One table a size."""
    layers, experts = windows.shape[1:]
    loads = ExpertLoads(windows, tuple(range(layers)), layers, tuple(names), "benchmark")
    for chips, spare in SIZES:
        slots = experts + spare
        if slots % chips:
            continue
        print(f"\nEach recording left out once: {chips} chips, {slots} slots, {layers} layers")
        print(
            f"{'left out':<28}{'ours, mean':>12}{'ours, worst':>13}{'EPLB':>9}{'made for it':>13}{'bound':>9}"
            f"{'kept: mean':>13}{'its bound':>11}"
        )
        rows = []
        for name in names:
            mean, worst = (
                place(
                    loads,
                    PlaceOptions(chips, slots, objective=objective, workers=workers),
                    leave_out=(name,),
                )
                for objective in ("mean", "worst")
            )
            (judged,), (other,) = mean.left_out, worst.left_out
            row = (judged.imbalance, other.imbalance, judged.eplb, judged.made_for_it, judged.bound)
            rows.append((*row, float(mean.imbalance.mean()), float(mean.bound.mean())))
            line(name, rows[-1])
        line("mean", np.mean(rows, axis=0))
        line("worst", np.max(rows, axis=0))


def line(name, figures):
    """Print one row of the table."""
    widths = (12, 13, 9, 13, 9, 13, 11)
    print(
        f"{name:<28}"
        + "".join(f"{one:>{width}.4f}" for one, width in zip(figures, widths, strict=True)),
        flush=True,
    )
