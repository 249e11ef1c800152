"""Speed of a system with the layouts that engines are run with: one wide decode group, prefill apart.

Nothing is searched but the batch: what a measured deployment did, not what would be cheapest.
"""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance

#: redundant experts of a decode group wider than a node, as DeepSeek deploys them
_SPARE = 32
_NODE = 8
#: most sequences per attention rank that are tried
_MOST = 64


def plain_tokens_per_s_per_gpu(instance: Instance, decode: Sequence[tuple[int, int]]) -> float:
    """Prompt and answer tokens per second and chip of the best decode group that holds the target.

    ``decode``: ``(tp, attention_dp)`` of each group that is tried, at the largest batch that meets the
    TPOT of the instance and fits HBM. Prompts are computed apart by groups of 8 ranks, as many as keep
    up. 0 where no group holds the target.
    """
    best = max((_best_decode(instance, tp, dp) for tp, dp in decode), default=0.0)
    if not best:
        return 0.0
    prefill = plain_layout(instance, "prefill", tp=1, attention_dp=_NODE, batch=_MOST)
    rate = _requests_per_s(instance, prefill) / _NODE
    tokens = instance.workload.input_tokens + instance.workload.output_tokens
    return float(tokens) / (1 / best + 1 / rate)


def _best_decode(instance: Instance, tp: int, dp: int) -> float:
    """Requests per second and chip at the largest batch that holds the target; 0 if none does."""
    found, low, high = 0.0, 0, _MOST
    while high - low > 1:
        middle = (low + high) // 2
        layout = plain_layout(
            instance, "decode", tp=tp, attention_dp=dp, batch=middle * dp,
            redundant_experts=_SPARE if tp * dp > _NODE else 0,
        )  # fmt: skip
        rate = _requests_per_s(instance, layout)
        low, high = (middle, high) if rate else (low, middle)
        found = rate / (tp * dp) if rate else found
    return found


def _requests_per_s(instance: Instance, layout: Layout) -> float:
    """Requests per second of a layout's only replica; 0 beyond the TPOT or HBM."""
    found = evaluate(instance, layout)
    late = instance.slo.tpot is not None and (found.tpot_s or 0.0) > instance.slo.tpot
    if late or any(one.rule == "hbm_capacity" for one in found.violations):
        return 0.0
    return float(found.priced.replicas[0].service.requests_per_s)
