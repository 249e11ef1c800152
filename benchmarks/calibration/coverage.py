"""How often the 90 % cost over parameter sets covers a measured one of a model or a system that nothing had seen."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.measured.fitting.resampling import coverage
from costmodel.measured.runs import Run

CONFIDENCE = 0.9


def print_coverage(runs: Sequence[Run]) -> None:
    """One line per fold as it is done, then each kind of fold and all."""
    total = covered = 0
    for key in ("model", "system"):
        here = within = 0
        for one in coverage(runs, key, CONFIDENCE):
            print(
                f"{key} {one.fold:<34} {one.covered:5d} of {one.n:5d} ({one.covered / one.n:6.1%}); predicted at "
                f"{CONFIDENCE:.0%} over measured, median {one.excess:.2f}",
                flush=True,
            )
            here, within = here + one.n, within + one.covered
        print(f"every {key} left out: {within} of {here} ({within / here:.1%})", flush=True)
        total, covered = total + here, covered + within
    print(f"all: {covered} of {total} ({covered / total:.1%})")
