"""The fit of TTFT: five constants by engine and by how requests come to prefill.

On the scale of logarithms each is a value for all, plus what the engine and what the regime add; additions are
held near zero (ridge). A row's residuals are those of TTFT and of the whole request, from which capacity follows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.fit import (
    Fitted,
    Problem,
    measured_ttft_s,
    predicted_tpot_s,
    prefill_loads,
)
from costmodel.measured.fitting.parameters import rounded
from costmodel.measured.predict import regime_of
from costmodel.question.profile_parts import FirstToken

Array = NDArray[np.float64]
REGIMES = ("equal", "drawn", "disaggregated")
#: log error of TTFT beyond which a row pulls less the farther off it is
_ROBUST_AT = 0.3
#: weight of an addition by a factor of e, in units of a row's log error: of 1 to 40 what predicts left-out models best
_RIDGE = 5.0
#: weight of the error of a whole request beside that of its first token
_WHOLE = 1.0
_START = np.log([0.05, 0.2, 0.1, 0.5, 0.001])
_LOW, _HIGH = np.log(1e-6), np.log(20.0)


def fit_first_token(
    problem: Problem, fitted: Fitted, chosen: NDArray[np.bool_] | None = None
) -> dict[str, FirstToken]:
    """TTFT constants by engine and regime, and by regime for other engines, from the chosen rows."""
    from scipy.optimize import least_squares

    load = prefill_loads(problem, fitted)
    measured = measured_ttft_s(problem)
    known = np.isfinite(measured)
    if chosen is not None:
        known &= chosen
    if not known.any():
        return {}
    rows = [run.row for run, good in zip(problem.runs, known, strict=True) if good]
    engines = sorted({row.engine for row in rows})
    levels = np.array(
        [
            [1.0, *(row.engine == e for e in engines), *(regime_of(row) == r for r in REGIMES)]
            for row in rows
        ]
    )
    steps = np.array([float(run.instance.workload.decode_steps) for run in problem.runs])
    decode_s = (steps * predicted_tpot_s(problem, fitted))[known]
    here = load.of(known)
    seen = measured[known]
    start = np.zeros((levels.shape[1], len(_START)))
    start[0] = _START

    def constants(at: Array) -> Array:
        return np.exp(np.clip(at, _LOW, _HIGH))

    def residuals(x: Array) -> Array:
        unknowns = x.reshape(-1, len(_START))
        base, more, share, several, beside = constants(levels @ unknowns).T
        found = here.mean_s(base, 1.0 + more, share, several, beside)
        whole = np.log((found + decode_s) / (seen + decode_s))
        return np.concatenate([np.log(found / seen), _WHOLE * whole, _RIDGE * unknowns[1:].ravel()])

    solution = least_squares(residuals, start.ravel(), loss="soft_l1", f_scale=_ROBUST_AT)
    unknowns = solution.x.reshape(-1, len(_START))
    result = {}
    for place, engine in enumerate(["", *engines]):
        for other, regime in enumerate(REGIMES):
            at = unknowns[0] + unknowns[1 + len(engines) + other]
            if engine:
                at = at + unknowns[place]
            base, more, share, several, beside = (rounded(float(v)) for v in constants(at))
            result[f"{engine} {regime}".strip()] = FirstToken(
                base_s=base,
                prefill_factor=rounded(1.0 + more),
                queue_share=share,
                decode_passes=several,
                prefill_layer_s=beside,
            )
    return result
