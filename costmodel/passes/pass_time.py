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
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from costmodel.passes.context import add_context, add_states
from costmodel.passes.group import Achieved, ChipGroup
from costmodel.passes.operations import LayerKind, Matmul
from costmodel.passes.pass_sums import PassTime
from costmodel.passes.routed import add_experts, drafts_whole, inside_width
from costmodel.passes.tokens import Array, ExpertShares, Tokens, even_shares
from costmodel.question.speculation import draft_runs
from topology import Chip

#: message that pays half of what large ones wait: one-shot kernels end about there
RAMP_BYTES = 2.0**20
#: chips of a host
_HOST_CHIPS = 8.0
_FFN = ("dense_ffn", "shared_experts")


def pass_time(
    group: ChipGroup,
    layers: Sequence[tuple[LayerKind, ArrayLike]],
    tokens: Tokens,
    experts: Sequence[ExpertShares | None],
    *,
    with_head: ArrayLike = True,
    record: bool = False,
) -> PassTime:
    """Time of one pass over ``layers`` (kinds and how many of each) on one group of chips.

    ``experts[i]`` belongs to ``layers[i]``; ``with_head`` adds the LM head and the cost per sampled
    sequence (last stage); ``record`` keeps the terms. Shapes: every array, counts of layers included,
    broadcasts to one common shape ``[...]``.
    """
    result = PassTime(terms=[] if record else None)
    for (kind, layer_count), shares in zip(layers, experts, strict=True):
        _layers(result, group, kind, np.asarray(layer_count, dtype=float), tokens, shares)
    last = np.asarray(with_head, dtype=float)
    if last.any():
        _head(result, group, last, tokens.sampled)
        sequences = np.asarray(tokens.decode, dtype=float) + np.asarray(tokens.prompts, dtype=float)
        told = told_share(group.tp, group.ranks) * group.achieved.efficiency.sequence_overhead_s
        result.add("overhead", last * sequences * told)
        _encoders(result, group, last, np.asarray(tokens.prompts, dtype=float))
        if group.operations.draft is not None:
            _draft(result, group, last, tokens)
    return result


def _layers(
    result: PassTime,
    group: ChipGroup,
    kind: LayerKind,
    count: Array,
    tokens: Tokens,
    shares: ExpertShares | None,
) -> None:
    """Add ``count`` layers of one kind."""
    operations, tp, ranks = group.operations, group.tp, group.ranks
    achieved, rates = group.achieved, group.rates
    rows, efficiency = tokens.rows, achieved.efficiency
    _matmuls(result, kind.matmuls, count, tp, rows, achieved)
    _inside(result, group, kind.matmuls, count * rows)
    for attention in kind.attentions:
        add_context(result, group, attention, count, tokens)
    add_states(result, group, kind, count, tokens)
    # a residual branch reads and writes the hidden vector twice (norm and residual sum)
    norm_bytes = 4.0 * kind.num_sublayers * operations.hidden_size * operations.activation_bytes
    result.roofline("norms", np.zeros(()), count * rows * norm_bytes / achieved.bandwidth())
    reduced = rows * operations.hidden_size * operations.activation_bytes
    sharded = tp > 1
    reductions = count * reductions_of(kind, tp, ranks)
    result.traffic(
        "all_reduce",
        reductions
        * (
            rates.reduce_latency_s
            + efficiency.reduce_ramp_s * ramp_share(achieved.chip, tp, reduced)
        ),
        reductions * rates.reduce_s_per_byte * reduced,
    )
    overhead = efficiency.layer_overhead_s + np.where(sharded, efficiency.sync_overhead_s, 0.0)
    overhead = overhead + launched_of(kind, achieved.chip) * efficiency.kernel_overhead_s
    overhead = overhead + quantised_of(kind, achieved.chip) * efficiency.quantise_overhead_s
    if kind.moe is not None:
        waited = efficiency.exchange_overhead_s * filled(reduced)
        own = efficiency.moe_overhead_s + efficiency.unfused_moe_overhead_s
        overhead = overhead + own + np.where(ranks > 1, waited, 0.0)
        if achieved.chip.unpacks(kind.moe.expert_dtype):
            overhead = overhead + efficiency.widened_moe_overhead_s
    result.add("overhead", count * overhead)
    if kind.moe is not None and shares is not None:
        fraction = count / np.maximum(shares.num_layers, 1)
        add_experts(result, group, kind.moe, fraction, tokens, shares)


def _inside(result: PassTime, group: ChipGroup, matmuls: Sequence[Matmul], rows: Array) -> None:
    """What dense feed-forward networks write between their products and read again."""
    operations = group.operations
    moved = 2.0 * operations.activation_bytes * rows / group.achieved.bandwidth("activations")
    for matmul in matmuls:
        if matmul.part in _FFN:
            params = matmul.flops_per_token / 2.0 / matmul.ways(group.tp)
            seconds = moved * inside_width(params, operations.hidden_size)
            result.roofline(matmul.part, np.zeros(()), seconds, stream="activations")


def _head(result: PassTime, group: ChipGroup, count: Array, sampled: Array) -> None:
    """Add ``count`` runs of the LM head over ``sampled`` tokens."""
    tp, achieved = group.tp, group.achieved
    for matmul in group.operations.head:
        compute = sampled * matmul.flops_per_token / matmul.ways(tp)
        result.roofline(
            "head",
            count * compute / achieved.weight_flops_per_s(matmul.dtype),
            count * matmul.weight_bytes / matmul.ways(tp) / achieved.bandwidth(),
            dtype=matmul.dtype,
        )


def _encoders(result: PassTime, group: ChipGroup, last: Array, prompts: Array) -> None:
    """Add the images and sound of ``prompts``, encoded beside their prefill by all chips of a rank."""
    tp, achieved = group.tp, group.achieved
    for encoder in group.operations.encoders:
        result.roofline(
            "encoders",
            last * prompts * encoder.flops_per_prompt / tp / achieved.flops_per_s("bf16"),
            last * (prompts > 0) * encoder.weight_bytes / tp / achieved.bandwidth(),
        )


def _draft(result: PassTime, group: ChipGroup, last: Array, tokens: Tokens) -> None:
    """Add the runs of what drafts beside a pass, each with the LM head for its drafts.

    Its experts lie as :func:`~costmodel.passes.routed.drafts_whole` says.
    ``last``: 1 for a last stage, which runs them, and 0 for another.
    """
    draft, ranks = group.operations.draft, group.ranks
    assert draft is not None
    group = replace(group, whole=drafts_whole(group.operations, group.whole))
    if draft.own is not None:
        group = replace(group, operations=draft.own)
    _matmuls(result, draft.once, last, group.tp, tokens.rows, group.achieved)
    for times, run in draft_runs(draft, tokens):
        for kind, count in draft.layers:
            shares = None
            if kind.moe is not None:
                shares = even_shares(
                    kind.moe, group.tp * ranks, run.fill * run.rows * ranks, group.whole
                )
            _layers(result, group, kind, last * times * count, run, shares)
        drafted = np.asarray(run.decode, dtype=float) + np.asarray(run.prompts, dtype=float)
        _head(result, group, last * times, drafted)


def ramp_share(chip: Chip, tp: Array, reduced: Array) -> Array:
    """Share of :attr:`Efficiency.reduce_ramp_s` that an all-reduce of ``reduced`` bytes over ``tp`` chips pays.

    Compiled programs move every message the same way: nothing is changed at some size.
    """
    return np.asarray((not chip.compiled) * np.log2(tp) / 3.0 * filled(reduced))


def told_share(tp: Array, ranks: Array) -> Array:
    """Share of :attr:`Efficiency.sequence_overhead_s` that a sequence pays in a stage of ``tp`` times ``ranks`` chips.

    Beyond the eight chips of a host a stage's processes tell each other no more of it.
    """
    return np.asarray(np.log2(np.minimum(tp * ranks, _HOST_CHIPS)) / np.log2(_HOST_CHIPS))


def filled(message: Array) -> Array:
    """Share of what waits for large messages that one of so many bytes pays."""
    return np.asarray(message / (message + RAMP_BYTES))


def reductions_of(kind: LayerKind, tp: Array, ranks: Array) -> Array:
    """All-reduces in a layer of a kind; with one rank the experts' outputs are summed, none is sent."""
    summed = kind.num_reductions + np.where(ranks > 1, 0.0, float(kind.moe is not None))
    return np.where(tp > 1, summed, 0.0)


def launched_of(kind: LayerKind, chip: Chip) -> int:
    """Kernels of a layer that are launched one after the other: none of a compiled program."""
    return 0 if chip.compiled else kind.num_kernels


def quantised_of(kind: LayerKind, chip: Chip) -> int:
    """Activations that a layer of a kind quantises: none for weights that the chip widens instead."""
    return sum(count for dtype, count in kind.quantised if not chip.unpacks(dtype))


def _matmuls(
    result: PassTime,
    matmuls: Sequence[Matmul],
    count: Array,
    tp: Array,
    rows: Array,
    achieved: Achieved,
) -> None:
    layer_rows = count * rows
    for matmul in matmuls:
        ways, dtype = matmul.ways(tp), matmul.dtype
        result.roofline(
            matmul.part,
            layer_rows * matmul.flops_per_token / ways / achieved.weight_flops_per_s(dtype),
            count * matmul.weight_bytes / ways / achieved.weight_bandwidth(dtype),
            dtype=dtype,
        )
