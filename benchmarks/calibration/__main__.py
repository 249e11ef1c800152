"""What a few runs of one's own are worth: ``python -m benchmarks.calibration left-out|recovery|probe|coverage``.

``left-out``: each model and each system of the shipped measurements is left out of the fit in turn; some of its
runs then calibrate, and the rest is predicted before and after. ``recovery``: hidden parameters are drawn from what
the shipped fit leaves open, runs are made with them and 5 % noise, and other layouts are predicted before and after.
``probe``: how often proposed and random runs put two layouts in the right order.
``coverage``: how often the 90 % cost over the parameter sets of a fit covers the measured cost of runs whose model or
system it never saw; minutes. Prints figures with their numbers.
"""

from __future__ import annotations

import argparse

from benchmarks.calibration.coverage import print_coverage
from benchmarks.calibration.left_out import DRAWS, left_out, print_left_out
from benchmarks.calibration.ordering import SEED, ordered, print_ordered
from benchmarks.calibration.recovery import TRIALS, print_recovery, recovery
from costmodel.measured.fitting.calibration import shipped_rows
from costmodel.measured.scores import scorable


def main() -> None:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    parser.add_argument("what", choices=("left-out", "recovery", "probe", "coverage"))
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--seed", type=int, default=SEED, help="of the trials of probe")
    asked = parser.parse_args()
    if asked.what == "probe":
        print_ordered(ordered(asked.trials, asked.seed))
        return
    runs, _ = scorable(*shipped_rows())
    if asked.what == "left-out":
        print_left_out(left_out(runs, asked.draws))
    elif asked.what == "coverage":
        print_coverage(runs)
    else:
        print_recovery(recovery(runs, asked.trials))


if __name__ == "__main__":
    main()
