r"""From pass times to what a user sees: TTFT, TPOT, requests per second.

A replica of ``P`` stages keeps ``P`` microbatches in flight. With stage times ``T_1..T_P`` and hand-off
times ``h``, a token needs ``sum T + sum h``; a stage serves its ``P`` microbatches in turn, so a
microbatch comes round every ``max(sum T + sum h, P max T)``. Pipelining buys memory, not latency.
A request that just missed a pass waits one (the worst case; on average half).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costmodel.workload import Workload

Array = NDArray[np.float64]


def token_period_s(
    sum_s: ArrayLike, max_s: ArrayLike, hop_s: ArrayLike, stages: ArrayLike
) -> Array:
    """Seconds between two tokens of one sequence (TPOT)."""
    stages = np.asarray(stages, dtype=float)
    return np.asarray(np.maximum(np.asarray(sum_s) + np.asarray(hop_s), stages * np.asarray(max_s)))


@dataclass(frozen=True)
class Service:
    """What one replica offers. Roles that do not decode have ``tpot_s`` 0, and the other way round.

    ``requests_per_s`` is a ceiling in the steady state; ``ttft_s`` is the worst case,
    ``ttft_mean_s`` the mean; both without the KV hand-over between pools.
    """

    requests_per_s: Array
    tpot_s: Array
    ttft_s: Array
    ttft_mean_s: Array

    def delayed(self, seconds: ArrayLike) -> Service:
        """The same service with a later first token."""
        more = np.asarray(seconds, dtype=float)
        return Service(
            self.requests_per_s, self.tpot_s, self.ttft_s + more, self.ttft_mean_s + more
        )


def decode_service(batch: ArrayLike, period_s: Array, workload: Workload) -> Service:
    """A decode replica of ``batch`` sequences whose tokens come every ``period_s``."""
    zero = np.zeros_like(period_s)
    rate = np.asarray(batch, dtype=float) / (period_s * workload.decode_steps)
    return Service(rate, period_s, zero, zero)


def prefill_service(
    prompts: ArrayLike, passes: ArrayLike, sum_s: Array, max_s: Array, hop_s: ArrayLike
) -> Service:
    """A prefill replica: ``prompts`` at once, in ``passes`` passes, each stage busy ``max_s`` a pass."""
    passes = np.asarray(passes, dtype=float)
    busy = passes * max_s
    span = busy - max_s + sum_s + np.asarray(hop_s)
    rate = np.asarray(prompts, dtype=float) / busy
    return Service(rate, np.zeros_like(span), span + busy, span + busy / 2)


def mixed_service(
    batch: ArrayLike, prefill_per_pass: ArrayLike, period_s: Array, workload: Workload
) -> Service:
    """A replica that computes ``prefill_per_pass`` prompt tokens a rank beside every decode step.

    In the steady state each finished request makes room for one prompt, so a prompt takes
    ``new_tokens / prefill_per_pass`` steps, and one that just missed its turn waits as long again.
    """
    rate = np.asarray(batch, dtype=float) / (period_s * workload.decode_steps)
    steps = np.maximum(1.0, workload.new_tokens / np.asarray(prefill_per_pass, dtype=float))
    return Service(rate, period_s, 2.0 * steps * period_s, 1.5 * steps * period_s)
