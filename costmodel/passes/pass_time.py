r"""How long one forward pass takes on one stage: a roofline per operation, plus collectives.

Each operation takes ``max(FLOPs / (peak * efficiency), bytes / (bandwidth * efficiency))`` on the
busiest chip. Three ways to combine operations are selectable:

- ``per_op``  : the sum of each operation's maximum (kernels run one after the other; the default)
- ``lecture`` : ``max(sum of compute, sum of memory)`` over the stage
- ``book``    : KV time ``+ max(sum of compute, sum of weight reads)``

All functions broadcast: scalars price one layout, arrays price many shapes at once. Never imports
the solver.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from costmodel.models.parts.quantisation.formats import ELEMENT_BYTES
from costmodel.models.spec import Attention, MoE
from costmodel.passes.achieved import Achieved, achieved_by
from costmodel.passes.attended import head_ways, kv_ways, mean_attended
from costmodel.passes.communication import GroupRates
from costmodel.passes.operations import LayerKind, Operations
from costmodel.passes.pass_sums import PARTS, PassTime, Term
from costmodel.passes.tokens import Array, ExpertShares, Tokens, even_shares
from costmodel.question.profile import Efficiency
from costmodel.question.speculation import draft_runs
from topology import Chip

#: message that pays half of what large ones wait: one-shot kernels end about there
RAMP_BYTES = 2.0**20
#: rows per expert at which grouped products are halfway to dense ones: large tiles are 128 rows, and kernel
#: tables flatten between 256 and 4,096 rows
TILE_ROWS = 512.0

__all__ = (
    "PARTS",
    "ExpertShares",
    "PassTime",
    "Term",
    "Tokens",
    "dispatch_element_bytes",
    "pass_time",
)


def pass_time(
    operations: Operations,
    layers: Sequence[tuple[LayerKind, ArrayLike]],
    tp: ArrayLike,
    attention_dp: ArrayLike,
    tokens: Tokens,
    chip: Chip,
    efficiency: Efficiency,
    rates: GroupRates,
    experts: Sequence[ExpertShares | None],
    *,
    with_head: ArrayLike = True,
    record: bool = False,
) -> PassTime:
    """Time of one pass over ``layers`` (kinds and how many of each) on one group of chips.

    ``experts[i]`` belongs to ``layers[i]``; ``with_head`` adds the LM head and the cost per sampled
    sequence (last stage); ``record`` keeps the terms. Shapes: every array argument, counts of layers
    included, broadcasts to one common shape ``[...]``.
    """
    tp = np.asarray(tp, dtype=float)
    ranks = np.asarray(attention_dp, dtype=float)
    result = PassTime(terms=[] if record else None)
    achieved = achieved_by(chip, efficiency)
    for (kind, layer_count), shares in zip(layers, experts, strict=True):
        count = np.asarray(layer_count, dtype=float)
        _layers(result, operations, kind, count, tp, ranks, tokens, achieved, rates, shares)
    last = np.asarray(with_head, dtype=float)
    if last.any():
        _head(result, operations, last, tp, tokens.sampled, achieved)
        sequences = np.asarray(tokens.decode, dtype=float) + np.asarray(tokens.prompts, dtype=float)
        result.add("overhead", last * sequences * efficiency.sequence_overhead_s)
        if operations.draft is not None:
            _draft(result, operations, last, tp, ranks, tokens, achieved, rates)
    return result


def _layers(
    result: PassTime,
    operations: Operations,
    kind: LayerKind,
    count: Array,
    tp: Array,
    ranks: Array,
    tokens: Tokens,
    achieved: Achieved,
    rates: GroupRates,
    shares: ExpertShares | None,
) -> None:
    """Add ``count`` layers of one kind."""
    rows, efficiency = tokens.rows, achieved.efficiency
    _matmuls(result, kind, count, tp, rows, achieved)
    for attention in kind.attentions:
        _context(result, operations, attention, count, tp, tokens, achieved)
    _states(result, kind, count, tp, tokens, achieved)
    # a residual branch reads and writes the hidden vector twice (norm and residual sum)
    norm_bytes = 4.0 * kind.num_sublayers * operations.hidden_size * operations.activation_bytes
    result.roofline("norms", np.zeros(()), count * rows * norm_bytes / achieved.bandwidth())
    reduced = rows * operations.hidden_size * operations.activation_bytes
    sharded = tp > 1
    reductions = count * reductions_of(kind, tp, ranks)
    result.traffic(
        "all_reduce",
        reductions * (rates.reduce_latency_s + efficiency.reduce_ramp_s * ramp_share(tp, reduced)),
        reductions * rates.reduce_s_per_byte * reduced,
    )
    overhead = efficiency.layer_overhead_s + np.where(sharded, efficiency.sync_overhead_s, 0.0)
    overhead = overhead + kind.num_kernels * efficiency.kernel_overhead_s
    overhead = overhead + quantised_of(kind, achieved.chip) * efficiency.quantise_overhead_s
    if kind.moe is not None:
        waited = efficiency.exchange_overhead_s * filled(reduced)
        overhead = overhead + efficiency.moe_overhead_s + np.where(ranks > 1, waited, 0.0)
    result.add("overhead", count * overhead)
    if kind.moe is not None and shares is not None:
        _experts(
            result, operations, kind.moe, count / np.maximum(shares.num_layers, 1), tp, ranks,
            rows, tokens.fill, achieved, rates, shares,
        )  # fmt: skip


def _head(
    result: PassTime,
    operations: Operations,
    count: Array,
    tp: Array,
    sampled: Array,
    achieved: Achieved,
) -> None:
    """Add ``count`` runs of the LM head over ``sampled`` tokens."""
    for matmul in operations.head:
        compute = sampled * matmul.flops_per_token / matmul.ways(tp)
        result.roofline(
            "head",
            count * compute / achieved.flops_per_s(matmul.dtype),
            count * matmul.weight_bytes / matmul.ways(tp) / achieved.bandwidth(),
            dtype=matmul.dtype,
        )


def _draft(
    result: PassTime,
    operations: Operations,
    last: Array,
    tp: Array,
    ranks: Array,
    tokens: Tokens,
    achieved: Achieved,
    rates: GroupRates,
) -> None:
    """Add the runs of the MTP module beside a pass, each with the LM head for its drafts.

    ``last``: 1 for a last stage, which runs them, and 0 for another.
    """
    draft = operations.draft
    assert draft is not None
    for times, run in draft_runs(draft, tokens):
        for kind, count in draft.layers:
            shares = None
            if kind.moe is not None:
                shares = even_shares(kind.moe, tp * ranks, run.fill * run.rows * ranks)
            _layers(
                result, operations, kind, last * times * count, tp, ranks, run, achieved, rates,
                shares,
            )  # fmt: skip
        drafted = np.asarray(run.decode, dtype=float) + np.asarray(run.prompts, dtype=float)
        _head(result, operations, last * times, tp, drafted, achieved)


def ramp_share(tp: Array, reduced: Array) -> Array:
    """Share of :attr:`Efficiency.reduce_ramp_s` that an all-reduce of ``reduced`` bytes over ``tp`` chips pays."""
    return np.asarray(np.log2(tp) / 3.0 * filled(reduced))


def full_tiles(rows: Array, grouped: float | Array) -> Array:
    """Share of dense arithmetic that grouped products reach with so many rows per expert on average.

    ``grouped`` with few, halfway to all of it at ``TILE_ROWS``.
    """
    return np.asarray((rows + grouped * TILE_ROWS) / (rows + TILE_ROWS))


def filled(message: Array) -> Array:
    """Share of what waits for large messages that one of so many bytes pays."""
    return np.asarray(message / (message + RAMP_BYTES))


def reductions_of(kind: LayerKind, tp: Array, ranks: Array) -> Array:
    """All-reduces in a layer of a kind; with one rank the experts' outputs are summed, none is sent."""
    summed = kind.num_reductions + np.where(ranks > 1, 0.0, float(kind.moe is not None))
    return np.where(tp > 1, summed, 0.0)


def quantised_of(kind: LayerKind, chip: Chip) -> int:
    """Activations that a layer of a kind quantises: none for weights that the chip widens instead."""
    return sum(count for dtype, count in kind.quantised if not chip.unpacks(dtype))


def _matmuls(
    result: PassTime,
    kind: LayerKind,
    count: Array,
    tp: Array,
    rows: Array,
    achieved: Achieved,
) -> None:
    layer_rows = count * rows
    for matmul in kind.matmuls:
        ways, dtype = matmul.ways(tp), matmul.dtype
        result.roofline(
            matmul.part,
            layer_rows * matmul.flops_per_token / ways / achieved.flops_per_s(dtype),
            count * matmul.weight_bytes / ways / achieved.weight_bandwidth(dtype),
            dtype=dtype,
        )


def _context(
    result: PassTime,
    operations: Operations,
    attention: Attention,
    count: Array,
    tp: Array,
    tokens: Tokens,
    achieved: Achieved,
) -> None:
    """Attention over the context. Decode reads the cache once per sequence, prefill once per pass."""
    decode = np.asarray(tokens.decode, dtype=float)
    prefill = np.asarray(tokens.prefill, dtype=float)
    dtype = operations.spec.attention_dtype or operations.spec.activation_dtype
    peak, bandwidth = achieved.flops_per_s(dtype), achieved.bandwidth("kv")
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
            dtype=dtype,
            stream="kv",
        )
    if prefills:
        start, end = tokens.prefill_start, tokens.prefill_end
        prefill_flops = (
            mean_attended(attention, start, end)
            * 2.0
            * heads
            * (attention.prefill_qk_dim + attention.prefill_v_dim)
            + (start + end) / 2 * index_flops
        )
        prompts = prefill / max(end - start, 1.0)
        stored = attention.stored_tokens(end)
        prefill_bytes = prompts * (stored * entry_bytes + end * index_bytes)
        result.roofline(
            "attention_context",
            count * prefill * prefill_flops / peak,
            count * prefill_bytes / bandwidth,
            dtype=dtype,
            stream="kv",
        )


def _states(
    result: PassTime,
    kind: LayerKind,
    count: Array,
    tp: Array,
    tokens: Tokens,
    achieved: Achieved,
) -> None:
    """Constant states: read once per sequence, and written after every token that may be the last."""
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


def _experts(
    result: PassTime,
    operations: Operations,
    moe: MoE,
    fraction: Array,
    tp: Array,
    ranks: Array,
    rows: Array,
    fill: Array | float,
    achieved: Achieved,
    rates: GroupRates,
    shares: ExpertShares,
) -> None:
    """Routed experts: each layer lasts as long as its busiest chip; dispatch and combine beside it.

    With one attention rank nothing is dispatched: every chip holds every token, and the outputs are
    summed by an all-reduce.

    ``fraction``: layers priced over layers in ``shares`` (1 unless a balanced stage is assumed).
    """
    met = fill * rows * ranks * moe.top_k
    routed = shares.per_layer(met)
    share = full_tiles(met / moe.num_experts, achieved.efficiency.grouped)
    peak = achieved.flops_per_s(moe.expert_dtype) * shares.per_layer(share)
    # seconds only grow with load and with experts touched: the busiest chip by each is the largest
    flops_s = routed * shares.busiest_load * 2.0 * moe.expert_params / peak
    bandwidth = achieved.weight_bandwidth(moe.expert_dtype, "experts")
    bytes_s = shares.most_touched * moe.expert_bytes / bandwidth
    result.add("routed_experts", fraction * shares.over_layers(np.maximum(flops_s, bytes_s)))
    compute_s = fraction * shares.over_layers(flops_s)
    memory_s = fraction * shares.over_layers(bytes_s)
    result.compute_s = result.compute_s + compute_s
    result.weights_s = result.weights_s + memory_s
    if result.terms is not None:  # one of each layer: its busiest chip by either measure
        result.terms += [
            Term("routed_experts", moe.expert_dtype, "experts", flops, moved, share)
            for flops, moved in zip(
                fraction * shares.layer_by_layer(flops_s),
                fraction * shares.layer_by_layer(bytes_s),
                strict=True,
            )
        ]
    chips = tp * ranks
    layers = np.asarray(shares.num_layers)
    # the busiest sender sets the uniform exchange, the busiest receiver may stretch all-to-all
    busiest_share = shares.per_layer(np.asarray(fill)) * shares.busiest_load
    skew = shares.over_layers(np.maximum(1.0, busiest_share * shares.per_layer(chips)))
    skew = layers + rates.skewed * (skew - layers)
    sourced = rows / tp * moe.expert_input_dim
    many = np.where(ranks > 1, fraction, 0.0)
    for part, element in (
        ("dispatch", rates.widening * dispatch_element_bytes(moe, operations)),
        ("combine", operations.activation_bytes),
    ):
        result.traffic(
            part,
            many * layers * rates.dispatch_latency_s,
            many * skew * rates.dispatch_s_per_byte * sourced * element,
        )


def dispatch_element_bytes(moe: MoE, operations: Operations) -> float:
    """Bytes of one dispatched element: FP8 where the experts multiply in FP8 or below, else as is."""
    if operations.spec.dispatch_dtype is not None:
        return ELEMENT_BYTES[operations.spec.dispatch_dtype]
    if moe.expert_dtype in ("fp8", "fp4", "int8"):
        return min(ELEMENT_BYTES["fp8"], operations.activation_bytes)
    return operations.activation_bytes
