"""The constants of the first token as unknowns: logarithms of what every request pays, of its own prefill's
excess, of the others' share, of decode passes and of what the host adds to each layer of others' passes, for each engine and way in which requests come to prefill.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.parameters import rounded
from costmodel.measured.predict import PrefillLoad
from costmodel.question.profile_parts import FirstToken

Array = NDArray[np.float64]
_LEAST = 1e-6
_STEP = 1e-4
#: beyond e^+-8 the constants are out of all proportion
_FAR = 8.0


def logarithms(one: FirstToken) -> Array:
    """The five unknowns of constants."""
    plain = (
        one.base_s,
        one.prefill_factor - 1.0,
        one.queue_share,
        one.decode_passes,
        one.prefill_layer_s,
    )
    return np.log(np.maximum(plain, _LEAST))


def constants(unknowns: Array) -> FirstToken:
    """The constants of five unknowns."""
    found = np.exp(np.clip(unknowns, -15.0, _FAR))
    base, more, share, passes, beside = (rounded(float(v)) for v in found)
    return FirstToken(
        base_s=base,
        prefill_factor=rounded(1.0 + more),
        queue_share=share,
        decode_passes=passes,
        prefill_layer_s=beside,
    )


def log_errors(load: PrefillLoad, measured_s: Array, unknowns: Array) -> Array:
    """Log of predicted over measured TTFT ``[rows]`` at ``unknowns [5, rows]``."""
    base, more, share, passes, beside = np.exp(np.clip(unknowns, -15.0, _FAR))
    found = load.mean_s(base, 1.0 + more, share, passes, beside)
    return np.asarray(np.log(found) - np.log(measured_s))


def log_slopes(load: PrefillLoad, measured_s: Array, unknowns: Array) -> Array:
    """Derivatives ``[5, rows]`` of :func:`log_errors` (numerical)."""
    here = log_errors(load, measured_s, unknowns)
    moved = [unknowns + _STEP * np.eye(5)[:, [i]] for i in range(5)]
    return np.stack([(log_errors(load, measured_s, one) - here) / _STEP for one in moved])
