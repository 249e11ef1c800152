"""What a pass spends on the context: attention over caches, which tensor parallelism shrinks, and constant states."""

from __future__ import annotations

import numpy as np

from costmodel.models.spec import Attention
from costmodel.passes.group import ChipGroup
from costmodel.passes.operations import LayerKind
from costmodel.passes.pass_sums import PassTime
from costmodel.passes.tokens import Array, Tokens


def add_context(
    result: PassTime,
    group: ChipGroup,
    attention: Attention,
    count: Array,
    tokens: Tokens,
) -> None:
    """Attention over the context. Decode reads the cache once per sequence, prefill once per pass.

    Units of special functions take one exponential per head and score, products wait for them.
    """
    operations, tp, achieved = group.operations, group.tp, group.achieved
    decode = np.asarray(tokens.decode, dtype=float)
    prefill = np.asarray(tokens.prefill, dtype=float)
    spec = operations.spec
    dtype = spec.attention_dtype or achieved.chip.attends_in(spec.kv_dtype, spec.activation_dtype)
    peak, bandwidth = achieved.flops_per_s(dtype), achieved.bandwidth("kv")
    exponentials = achieved.exponentials_per_s
    heads = attention.query_heads / head_ways(attention.query_heads, tp)
    entry_bytes = attention.kv_elements * operations.kv_element_bytes / kv_ways(attention, tp)
    # index scores are taken against every cached entry, of which there is one per `compress` tokens
    index_flops = 2.0 * attention.index_heads * attention.index_dim / attention.compress
    index_bytes = attention.index_elements * operations.kv_element_bytes
    decodes, prefills = bool(decode.any()), bool(prefill.any())
    if decodes or not prefills:
        read = attention.read_tokens(tokens.context)
        decode_flops = (
            read * 2.0 * heads * (attention.decode_qk_dim + attention.decode_v_dim)
            + tokens.context * index_flops
        )
        decode_bytes = read * entry_bytes + tokens.context * index_bytes
        result.roofline(
            "attention_context",
            count * (decode * tokens.verified) * decode_flops / peak,
            count * decode * decode_bytes / bandwidth,
            softmax_s=count * (decode * tokens.verified) * read * heads / exponentials,
            dtype=dtype,
            stream="kv",
        )
    if prefills:
        start, end = tokens.prefill_start, tokens.prefill_end
        scores = mean_attended(attention, start, end) * heads
        prefill_flops = (
            scores * 2.0 * (attention.prefill_qk_dim + attention.prefill_v_dim)
            + (start + end) / 2 * index_flops
        )
        prompts = prefill / max(end - start, 1.0)
        stored = attention.stored_tokens(end)
        prefill_bytes = prompts * (stored * entry_bytes + end * index_bytes)
        result.roofline(
            "attention_context",
            count * prefill * prefill_flops / peak,
            count * prefill_bytes / bandwidth,
            softmax_s=count * prefill * scores / exponentials,
            dtype=dtype,
            stream="kv",
        )


def add_states(
    result: PassTime, group: ChipGroup, kind: LayerKind, count: Array, tokens: Tokens
) -> None:
    """Constant states: read once per sequence, and written after every token that may be the last."""
    tp, achieved = group.tp, group.achieved
    rows, decode = tokens.rows, np.asarray(tokens.decode, dtype=float)
    moved = 1.0 + tokens.verified
    for state in kind.states:
        ways = head_ways(state.heads, tp)
        result.roofline(
            "attention_context",
            count * rows * state.state_flops_per_token / ways / achieved.flops_per_s("bf16"),
            count * decode * moved * state.state_bytes / ways / achieved.bandwidth("kv"),
            stream="kv",
        )


def kv_ways(attention: Attention, tp: Array) -> Array:
    """By how much TP shrinks a chip's KV: by KV heads, at least one head per chip (MLA: not at all)."""
    return np.asarray(attention.kv_heads / np.ceil(attention.kv_heads / tp))


def head_ways(heads: int, tp: Array) -> Array:
    """By how much TP shrinks a chip's share of state heads; none is split."""
    return np.asarray(heads / np.ceil(heads / tp))


def mean_attended(attention: Attention, start: float, end: float) -> float:
    """Average number of cached entries that prompt tokens at positions ``start..end`` attend to.

    The mean of ``min(position / compress, window, top_k) + min(position, local_window)``.
    """
    if end <= start:
        return 0.0
    caps = [float(c) for c in (attention.window, attention.read_top_k) if c is not None]
    far = _mean_capped(
        start / attention.compress, end / attention.compress, min(caps, default=float("inf"))
    )
    return far + _mean_capped(start, end, float(attention.local_window))


def _mean_capped(low: float, high: float, cap: float) -> float:
    """Mean of ``min(x, cap)`` for ``x`` between ``low`` and ``high``."""
    if cap >= high:
        return (low + high) / 2
    rising = max(0.0, (cap**2 - low**2) / 2) if low < cap else 0.0
    return (rising + cap * (high - max(low, cap))) / (high - low)
