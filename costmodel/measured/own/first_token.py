"""The constants of the first token as unknowns: logarithms of what every request pays, of its own prefill's
excess, of the others' share and of decode passes, for each engine and way in which requests come to prefill.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.parameters import rounded
from costmodel.measured.predict import PrefillLoad
from costmodel.question.profile import FirstToken

Array = NDArray[np.float64]
_LEAST = 1e-6
_STEP = 1e-4
#: beyond e^+-8 the constants are out of all proportion
_FAR = 8.0


def logarithms(one: FirstToken) -> Array:
    """The four unknowns of constants."""
    plain = (one.base_s, one.prefill_factor - 1.0, one.queue_share, one.decode_passes)
    return np.log(np.maximum(plain, _LEAST))


def constants(unknowns: Array) -> FirstToken:
    """The constants of four unknowns."""
    base, more, share, passes = (rounded(float(v)) for v in np.exp(np.clip(unknowns, -15.0, _FAR)))
    return FirstToken(
        base_s=base, prefill_factor=rounded(1.0 + more), queue_share=share, decode_passes=passes
    )


def log_errors(load: PrefillLoad, measured_s: Array, unknowns: Array) -> Array:
    """Log of predicted over measured TTFT ``[rows]`` at ``unknowns [4, rows]``."""
    base, more, share, passes = np.exp(np.clip(unknowns, -15.0, _FAR))
    return np.asarray(np.log(load.mean_s(base, 1.0 + more, share, passes)) - np.log(measured_s))


def log_slopes(load: PrefillLoad, measured_s: Array, unknowns: Array) -> Array:
    """Derivatives ``[4, rows]`` of :func:`log_errors` (numerical)."""
    here = log_errors(load, measured_s, unknowns)
    moved = [unknowns + _STEP * np.eye(4)[:, [i]] for i in range(4)]
    return np.stack([(log_errors(load, measured_s, one) - here) / _STEP for one in moved])
