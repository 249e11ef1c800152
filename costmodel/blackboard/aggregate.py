r"""The whole model as two numbers: the roofline of lectures and textbooks, for reasoning and tests.

A model is its active parameters, its bytes and its KV bytes per token; a machine its rates. One pass
over ``batch`` sequences costs

- compute ``2 N_active batch tokens / FLOPs``
- weights ``bytes / bandwidth`` (the total, also of experts that a small batch never touches)
- KV ``batch context bytes_per_token / bandwidth``

and :meth:`costmodel.passes.pass_time.PassTime.total_s` combines the three. *Source:* Pope, blackboard
lecture (2026), sections 0:00-0:35; "How to Scale Your Model", inference chapter. Layers, links and
launch costs are in :mod:`costmodel.passes.pass_time`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np

from costmodel.passes.pass_sums import PassTime

ReadPattern = Literal["dense", "sqrt", "fixed"]


@dataclass(frozen=True)
class Machine:
    """Everything that computes and loads side by side: FLOP/s and HBM bytes/s of the whole group.

    ``flops_per_s`` counts a multiply and an add as two. Pipeline stages do not add: a token passes
    them one after the other.
    """

    flops_per_s: float
    hbm_bytes_per_s: float

    def times(self, chips: float) -> Machine:
        """So many of these side by side."""
        return Machine(self.flops_per_s * chips, self.hbm_bytes_per_s * chips)


@dataclass(frozen=True)
class AggregateModel:
    """``active_params`` per token, ``weight_bytes`` of all, ``kv_bytes_per_token`` of context."""

    active_params: float
    weight_bytes: float
    kv_bytes_per_token: float = 0.0


def aggregate_pass(
    model: AggregateModel,
    machine: Machine,
    batch: float,
    context: float = 0.0,
    *,
    tokens_per_sequence: float = 1.0,
) -> PassTime:
    """Compute, weight and KV seconds of one pass (``tokens_per_sequence`` 1 decodes, more prefill)."""
    flops = 2.0 * model.active_params * batch * tokens_per_sequence
    return PassTime(
        compute_s=np.asarray(flops / machine.flops_per_s),
        weights_s=np.asarray(model.weight_bytes / machine.hbm_bytes_per_s),
        kv_s=np.asarray(batch * context * model.kv_bytes_per_token / machine.hbm_bytes_per_s),
    )


def drain_s(hbm_bytes: float, hbm_bytes_per_s: float) -> float:
    """Seconds to read all of HBM once: the longest useful decode pass, whatever the model."""
    return hbm_bytes / hbm_bytes_per_s


def model_flops_utilisation(
    params: float, tokens: float, seconds: float, flops_per_s: float
) -> float:
    """Share of the peak spent on weight FLOPs: ``2 N tokens / (seconds FLOPs)`` (attention not counted)."""
    return 2.0 * params * tokens / (seconds * flops_per_s)


def kv_bytes_per_token(
    layers_with_own_kv: int, kv_heads: int, head_dim: int, element_bytes: float
) -> float:
    """KV bytes one token adds: ``layers 2 heads dim element`` (keys and values)."""
    return layers_with_own_kv * 2.0 * kv_heads * head_dim * element_bytes


def tokens_read(context: float, pattern: ReadPattern, *, top_k: float = 2048.0) -> float:
    """Cached tokens one decode step reads: all, ``2 sqrt(context)`` (blocks of the root), or a fixed top-k.

    The root is the minimum of ``context / b + b`` over block sizes ``b``: block summaries plus one block.
    """
    if pattern == "dense":
        return context
    return 2.0 * sqrt(context) if pattern == "sqrt" else min(context, top_k)


def usd_per_m_tokens(chips: float, usd_per_chip_hour: float, tokens_per_s: float) -> float:
    """Dollars per million tokens of ``chips`` that together make ``tokens_per_s``."""
    return chips * usd_per_chip_hour / 3600.0 / tokens_per_s * 1e6
