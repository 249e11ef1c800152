"""What a pass spends on routed experts: their products, their weights, and the exchange of tokens."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from costmodel.models.parts.quantisation.formats import ELEMENT_BYTES
from costmodel.models.spec import MoE
from costmodel.passes.group import ChipGroup
from costmodel.passes.operations import Operations
from costmodel.passes.pass_sums import PassTime, Term
from costmodel.passes.tokens import Array, ExpertShares, Tokens

#: rows per expert at which grouped products are halfway to dense ones: of 256 to 16,384 among those that predict left-out
#: runs best, which are alike from 4,096 on; public kernel tables have 0.2 to 0.5 of the peak at some 512 rows
TILE_ROWS = 4096.0
#: times the HBM's bytes per second, the columns inside an expert, or inside its slice, at which reading takes twice as long as of
#: many: kernels turn to the next tile in a time of their own. Grouped kernels read slices of 128 to 2,048 columns so within 3 %:
#: 16.4 columns at 3.35 TB/s (H100), 24.6 at 4.8 TB/s (H200; ``instances/measured/kernels_h100.csv``, ``kernels_h200.csv``)
NARROW_S_PER_B = 5e-12


def mixtures(operations: Operations) -> list[MoE]:
    """Every mixture of experts that a pass meets: those of the layers, and of what drafts."""
    kinds = [*operations.kinds]
    if operations.draft is not None:
        kinds += [kind for kind, _ in operations.draft.layers]
    return [kind.moe for kind in kinds if kind.moe is not None]


def drafts_whole(operations: Operations, whole: ArrayLike) -> Array:
    """1 where the experts of what drafts lie whole on chips, 0 where each is cut over all: as those of the model.

    ``whole``: of the model's. Beside a model without experts they are cut: engines give the draft the model's tensor
    parallelism, and share experts out whole only where that is asked for, which means nothing to such a model
    (``create_draft_parallel_config`` of vLLM, ``--ep-size`` of SGLang).
    """
    return np.asarray(whole, dtype=float) * (operations.moe is not None)


def full_tiles(rows: Array, grouped: float | Array) -> Array:
    """Share of dense arithmetic that grouped products reach with so many rows per expert on average.

    ``grouped`` with few, halfway to all of it at ``TILE_ROWS``.
    """
    return np.asarray((rows + grouped * TILE_ROWS) / (rows + TILE_ROWS))


def excess_tokens(routed: Array, chips: Array, noise: float) -> Array:
    r"""Routed tokens of one pass that the busiest of ``chips`` has beyond its expected share.

    *Formula:* ``sqrt(2 (n / c) ln c)`` for ``n`` routed tokens over ``c`` chips: by at most so much the largest of ``c``
    counts of mean and variance ``n / c`` exceeds the mean on average (maximal inequality; drawn maxima are
    15 to 40 % nearer). It is taken at even loads whatever the placement, and multiplied by ``noise``.
    """
    return np.asarray(noise * np.sqrt(2.0 * routed / chips * np.log(chips)))


def add_experts(
    result: PassTime,
    group: ChipGroup,
    moe: MoE,
    fraction: Array,
    tokens: Tokens,
    shares: ExpertShares,
) -> None:
    """Routed experts: each layer lasts as long as its busiest chip; dispatch and combine beside it.

    With one attention rank nothing is dispatched: every chip holds every token, and the outputs are
    summed by an all-reduce.

    ``fraction``: layers priced over layers in ``shares`` (1 unless a balanced stage is assumed).
    """
    operations, tp, ranks = group.operations, group.tp, group.ranks
    achieved, rates, rows, fill = group.achieved, group.rates, tokens.rows, tokens.fill
    met = fill * rows * ranks * moe.top_k
    chips = tp * ranks
    excess = group.whole * excess_tokens(met, chips, achieved.efficiency.routing_noise)
    routed = shares.per_layer(met)
    share = full_tiles(met / moe.num_experts, achieved.efficiency.grouped)
    peak = achieved.weight_flops_per_s(moe.expert_dtype) * shares.per_layer(share)
    # seconds only grow with load and with experts touched: the busiest chip by each is the largest
    busiest = routed * shares.busiest_load + shares.per_layer(excess)
    flops_s = busiest * 2.0 * moe.expert_params / peak
    bandwidth = achieved.weight_bandwidth(moe.expert_dtype, "experts")
    columns = moe.expert_width * _part(group, moe)
    narrow = NARROW_S_PER_B * achieved.chip.hbm_bytes_per_s / columns
    read = moe.expert_bytes * shares.per_layer(np.asarray(1.0 + narrow))
    bytes_s = shares.most_touched * read / bandwidth
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
    _activations(result, group, moe, fraction, busiest, shares)
    layers = np.asarray(shares.num_layers)
    # the busiest sender sets the uniform exchange, the busiest receiver may stretch all-to-all
    busiest_share = shares.per_layer(np.asarray(fill)) * shares.busiest_load
    beyond = excess * chips / np.maximum(rows * ranks * moe.top_k, 1e-300)
    received = busiest_share * shares.per_layer(chips) + shares.per_layer(beyond)
    skew = shares.over_layers(np.maximum(1.0, received))
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


def _activations(
    result: PassTime,
    group: ChipGroup,
    moe: MoE,
    fraction: Array,
    busiest: Array,
    shares: ExpertShares,
) -> None:
    """What routed tokens leave between kernels: results inside the expert, and its output, which is summed later.

    ``busiest [..., layers]``: tokens of the busiest chip. Of an expert that is cut over chips each has a part of what is
    inside, and an output of full width.
    """
    width = moe.expert_input_dim
    outputs = np.asarray(width / _part(group, moe))
    results = inside_width(moe.expert_params, width) + shares.per_layer(outputs)
    element = group.operations.activation_bytes
    seconds = 2.0 * element * busiest * results / group.achieved.bandwidth("activations")
    seconds = fraction * shares.over_layers(seconds)
    result.roofline("routed_experts", np.zeros(()), seconds, stream="activations")


def _part(group: ChipGroup, moe: MoE) -> Array:
    """Share of an expert that lies in one place: all of it, or a slice."""
    return np.where(np.asarray(group.whole) > 0, 1.0, moe.slice_share(group.tp * group.ranks))


def inside_width(params: float | Array, width: float) -> float | Array:
    """Numbers per token that a feed-forward network of ``params`` makes between its first product and its last.

    The results of the first products and of what follows them: three times the width inside where a gate multiplies, twice
    where none does. That is as often as matrices of ``width`` times the width inside are in ``params``.
    """
    return params / width


def dispatch_element_bytes(moe: MoE, operations: Operations) -> float:
    """Bytes of one dispatched element: FP8 where the experts multiply in FP8 or below, else as is."""
    if operations.spec.dispatch_dtype is not None:
        return ELEMENT_BYTES[operations.spec.dispatch_dtype]
    if moe.expert_dtype in ("fp8", "fp4", "int8"):
        return min(ELEMENT_BYTES["fp8"], operations.activation_bytes)
    return operations.activation_bytes
