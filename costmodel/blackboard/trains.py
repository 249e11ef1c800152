r"""Departures, pipelines and pools in closed form: waits, utilisation, how many prefill per decode.

A decode pass leaves every ``period`` like a train. *Source:* Pope, blackboard lecture (2026), 0:22 and
0:57; "How to Scale Your Model", inference chapter (disaggregation); GPipe bubble.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TrainLatency:
    """Seconds from arrival to the end of one's pass."""

    best_s: float
    mean_s: float
    worst_s: float


def train_latency(period_s: float) -> TrainLatency:
    """Latency with room on every train: just in time, uniform arrivals, just missed."""
    return TrainLatency(period_s, 1.5 * period_s, 2.0 * period_s)


def stage_utilisation(microbatches: float, stages: float) -> float:
    """Busy share of a decode pipeline that keeps ``microbatches`` in flight over ``stages``."""
    return min(1.0, microbatches / stages)


def fill_drain_bubble(microbatches: float, stages: float) -> float:
    """Idle share of a pipeline that fills and drains once: ``(P - 1) / (M + P - 1)``."""
    return (stages - 1.0) / (microbatches + stages - 1.0)


def prefill_per_decode(
    prefill_s: float, step_s: float, batch: float, output_tokens: float
) -> float:
    """Prefill servers that feed one decode server: ``t_prefill batch / (t_step output)``."""
    return prefill_s * batch / (step_s * output_tokens)


def evicted_tokens_per_step(batch: float, input_tokens: float, output_tokens: float) -> float:
    """KV tokens that leave per decode step in the steady state: ``batch (P + G) / G``."""
    return batch * (input_tokens + output_tokens) / output_tokens


def servers_for(tokens_per_day: float, tokens_per_s_per_server: float) -> float:
    """Servers, on average over the day, that ``tokens_per_day`` keep busy."""
    return tokens_per_day / 86_400.0 / tokens_per_s_per_server


def routed_experts_touched(num_experts: float, top_k: float, tokens: float) -> float:
    """Distinct experts that ``tokens`` reach under uniform routing: ``E (1 - (1 - k/E)^B)``."""
    return num_experts * (1.0 - float((1.0 - top_k / num_experts) ** tokens))
