r"""What a price list of tokens implies, and what costs imply for one.

A pass over ``n`` tokens of a sequence reads weights and KV once and computes ``n`` times: with a decode
pass (``n = 1``) whose memory time is ``m`` times its compute time, a token costs ``max(1, m / n)`` in units
of its compute, so that output is ``m`` times as dear as input in the limit. *Source:* Pope, blackboard
lecture (2026), 1:41-1:48.

From solved layouts, the price of a kind of token is the rise of the cost of a request with so many more
tokens of it: what a provider with margin zero asks.
"""

from __future__ import annotations


def cost_over_compute(memory_over_compute: float, tokens_per_pass: float) -> float:
    """Cost of a token in units of its compute, in passes of so many tokens of each sequence."""
    return max(1.0, memory_over_compute / tokens_per_pass)


def marginal_usd_per_m(
    usd_per_request: float, usd_per_larger_request: float, more_tokens: float
) -> float:
    """Dollars per million tokens that a request's cost rises by."""
    return (usd_per_larger_request - usd_per_request) / more_tokens * 1e6


def hit_usd_per_m(
    input_usd_per_m: float, usd_all_new: float, usd_some_cached: float, cached_tokens: float
) -> float:
    """Dollars per million cached tokens: an input token's price less what finding it saves."""
    return input_usd_per_m - (usd_all_new - usd_some_cached) / cached_tokens * 1e6
