"""HBM of a chip by kind: weights, experts, KV, activations, runtime.

All functions broadcast over arrays of shapes and of layer counts. KV is counted at a sequence's final length, so that a
layout that fits never has to evict a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costmodel.passes.context import kv_ways
from costmodel.passes.operations import LayerKind, Operations
from costmodel.passes.routed import dispatch_element_bytes, drafts_whole
from costmodel.passes.tokens import held_evenly

Array = NDArray[np.float64]

#: hidden-width vectors alive per token at the peak of a pass: residual, norm, attention in and out,
#: branch in and out, and one of each in flight
HIDDEN_VECTORS = 8.0


def dense_weight_bytes(layers: Sequence[tuple[LayerKind, ArrayLike]], tp: ArrayLike) -> Array:
    """Bytes per chip of everything but routed experts, embedding and head in these layers."""
    tp = np.asarray(tp, dtype=float)
    total = np.zeros_like(tp)
    for kind, layer_count in layers:
        count = np.asarray(layer_count, dtype=float)
        for matmul in kind.matmuls:
            total = total + count * matmul.stored_bytes / matmul.ways(tp)
    return total


def edge_weight_bytes(operations: Operations, tp: ArrayLike, *, first: bool, last: bool) -> Array:
    """Bytes per chip of the embedding (first stage) and head (last stage), sharded by vocabulary.

    Encoders of images and sound are counted with the last stage, sharded like a table.

    A tied table is stored once where one stage is both first and last, else on both.
    """
    tp = np.asarray(tp, dtype=float)
    table = operations.embedding_bytes
    if operations.spec.tied_embeddings and not last:
        table = operations.head_bytes
    encoders = sum(encoder.weight_bytes for encoder in operations.encoders)
    total = (table if first else 0.0) + (operations.head_bytes + encoders if last else 0.0)
    return np.asarray(total / tp)


def draft_weight_bytes(
    operations: Operations, tp: ArrayLike, chips: ArrayLike, whole: ArrayLike = 1.0
) -> Array:
    """Bytes per chip of what drafts, on a last stage of ``chips``: experts one copy each, evenly, whole or cut over all.

    ``whole``: 1 where the model's experts lie whole on chips (:func:`~costmodel.passes.routed.drafts_whole`).

    Embedding and head are the main model's but for those that a model of its own has.
    """
    tp = np.asarray(tp, dtype=float)
    draft = operations.draft
    if draft is None:
        return np.zeros_like(tp)
    total, whole = dense_weight_bytes(draft.layers, tp), drafts_whole(operations, whole)
    for kind, count in draft.layers:
        if kind.moe is not None:
            total = total + count * held_evenly(kind.moe, chips, whole) * kind.moe.expert_bytes
    once = sum(matmul.stored_bytes / matmul.ways(tp) for matmul in draft.once)
    return np.asarray(draft.modules * total + once + draft.table_bytes / tp)


def draft_kv_bytes(operations: Operations, tp: ArrayLike, context: float) -> Array:
    """Bytes on one chip of a last stage of one sequence's cache in what drafts."""
    draft = operations.draft
    if draft is None:
        return np.zeros_like(np.asarray(tp, dtype=float))
    return draft.modules * kv_bytes_per_sequence(operations, draft.layers, tp, context)


def kv_bytes_per_sequence(
    operations: Operations,
    layers: Sequence[tuple[LayerKind, ArrayLike]],
    tp: ArrayLike,
    context: float,
) -> Array:
    """Bytes in HBM on one chip of one sequence of ``context`` tokens over these layers.

    KV shards by KV head (at least one head per chip), MLA's latent and index keys are replicated
    within the rank, states shard by head.
    """
    tp = np.asarray(tp, dtype=float)
    if not operations.kv_in_hbm:
        return np.zeros_like(tp)
    total = np.zeros_like(tp)
    for kind, layer_count in layers:
        count = np.asarray(layer_count, dtype=float)
        for attention in kind.attentions:
            stored = attention.stored_tokens(context) * attention.kv_elements
            if stored:
                total = total + count * stored * operations.kv_element_bytes / kv_ways(
                    attention, tp
                )
            total = total + (
                count * context * attention.index_elements * operations.kv_element_bytes
            )
        for state in kind.states:
            total = total + count * state.state_bytes * np.ceil(state.heads / tp) / state.heads
    return total


def activation_bytes(
    operations: Operations,
    tp: ArrayLike,
    rows: ArrayLike,
    sampled: ArrayLike,
) -> Array:
    """Bytes per chip alive at the peak of a pass of ``rows`` tokens per rank.

    Hidden vectors of every token, the widest branch's intermediate (sharded), dispatched copies in
    and out, and fp32 logits of the sampled tokens.
    """
    tp = np.asarray(tp, dtype=float)
    rows = np.asarray(rows, dtype=float)
    element = operations.activation_bytes
    per_token = np.zeros_like(tp) + HIDDEN_VECTORS * operations.hidden_size * element
    moe = operations.moe
    if moe is not None:
        per_token = per_token + moe.top_k / tp * moe.expert_input_dim * (
            dispatch_element_bytes(moe, operations) + element
        )
    wide = max(
        (
            matmul.flops_per_token / 2.0 / operations.hidden_size
            for kind in operations.kinds
            for matmul in kind.matmuls
            if matmul.part in ("dense_ffn", "attention_projections")
        ),
        default=0.0,
    )
    per_token = per_token + wide / tp * element
    logits = np.asarray(sampled, dtype=float) * operations.spec.vocab_size / tp * 4.0
    return np.asarray(rows * per_token + logits)


def expert_slot_bytes(layers: Sequence[tuple[LayerKind, ArrayLike]]) -> Array:
    """Bytes per chip of one expert slot in each MoE layer of these layers."""
    total = np.zeros(())
    for kind, count in layers:
        if kind.moe is not None:
            total = total + kind.moe.expert_bytes * np.asarray(count, dtype=float)
    return np.asarray(total)
