"""Seconds of an engine's server before a request joins its queue, from measured runs with few users. Needs scipy.

*Formula:* ``TTFT = replayed TTFT + held + request_s + prompt_token_s * prompt tokens`` for each run that has at most four
users a worker; the replay waits for passes and for the prompts of others by itself, ``held`` are the decode passes
(each as long as measured) that the engine's settings hold a prompt back. A factor on one's own prefill beside them
was tried for vLLM and came out as nothing. Robust least squares on the logarithm, one pair an engine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.fit import least_squares_solver
from costmodel.measured.fitting.held_out import lightly_loaded
from costmodel.measured.fitting.parameters import rounded
from costmodel.measured.load.closed import closed_loop
from costmodel.measured.runs import Run
from costmodel.measured.waiting import held_passes
from costmodel.question.profile import Profile
from costmodel.question.profile_parts import HostTime

Array = NDArray[np.float64]
#: log error of TTFT beyond which a run pulls less the farther off it is
_ROBUST_AT = 0.1
#: requests of a run for each of its users, as the usual benchmark sends them
_EACH = 10
_START = (0.02, 5e-6)
_NOTHING = 1e-9


def fit_host(runs: Sequence[Run], profile: Profile) -> dict[str, HostTime]:
    """Seconds by engine; of workers that do both phases and have measured TTFT."""
    light = [
        run
        for run, few in zip(runs, lightly_loaded(runs), strict=True)
        if few and run.row.ttft_s and run.row.prefill is None and run.row.decode.workers == 1
    ]
    found = {}
    for engine in sorted({run.row.engine for run in light}):
        some = [run for run in light if run.row.engine == engine]
        tokens = np.array([run.row.input_tokens for run in some])
        measured = np.array([run.row.ttft_s for run in some])
        held = np.array([held_passes(run) * run.row.tpot_s for run in some])
        inside = held + np.array([replayed_ttft_s(run, profile) for run in some])
        found[engine] = _fit(inside, tokens, measured)
    return found


def _fit(inside_s: Array, tokens: Array, measured_s: Array) -> HostTime:
    scale = np.array(_START)

    def errors(x: Array) -> Array:
        request_s, token_s = x * scale
        return np.asarray(np.log((inside_s + request_s + token_s * tokens) / measured_s))

    found = least_squares_solver()(
        errors, np.ones(2), loss="cauchy", f_scale=_ROBUST_AT, bounds=(0.0, np.inf)
    )
    # the search ends a little inside of its limits
    request_s, token_s = (rounded(float(v)) if v > _NOTHING else 0.0 for v in found.x * scale)
    return HostTime(request_s=request_s, prompt_token_s=token_s)


def replayed_ttft_s(run: Run, profile: Profile) -> float:
    """Mean TTFT of a run's closed loop without what its server takes before the queue."""
    users = max(1, round(run.row.concurrency))
    return float(closed_loop(run, profile, _EACH * users).ttft_s.mean)
