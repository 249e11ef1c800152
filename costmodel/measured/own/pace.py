"""The unknowns of own runs: the parameters of the fit, and the pace of everything.

The parameters are held between limits and priced one by one; what slows or speeds a deployment as a whole (clocks, kernels of
a precision, a host that shares its cores) is none of them. *Pace* is a factor on all times: rates are divided by it, at
most to the hardware's own, and seconds multiplied. Times still never fall with the batch, as each part keeps its shape.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.fit import LogErrors, Problem
from costmodel.measured.fitting.parameters import ALL, values_at

Array = NDArray[np.float64]
PACE = "pace"
#: names of the unknowns: the parameters on their unbounded scale, the logarithm of the pace last
NAMES = (*(one.name for one in ALL), PACE)
#: fractions of what the hardware does; ``fp8_compute``, ``fp4_compute``, ``unpacking``, ``widened`` and ``grouped`` are ratios to one of these
_RATES = ("hbm", "kv", "experts", "activations", "softmax", "compute", "all_reduce", "all_to_all")
#: beyond a factor of e^2 the runs are not of what they say
_FAR = 2.0


def own_values(scales: Array) -> dict[str, Array]:
    """Parameter values at the pace, from ``scales [unknowns, n]``."""
    pace = np.exp(np.clip(scales[-1], -_FAR, _FAR))
    found = values_at(scales[:-1])
    for name, value in found.items():
        if name in _RATES:
            found[name] = np.minimum(value / pace, 1.0)
        elif name.endswith("_s"):
            found[name] = value * pace
    return found


def own_errors(problem: Problem) -> LogErrors:
    """Log errors of a problem's rows from the unknowns."""
    return LogErrors(problem, own_values)
