"""Kernels that a layer launches, and activations that it quantises."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.models.spec import (
    Attention,
    LinearState,
    MoE,
    Sublayer,
    Weights,
)

#: share of bytes above one per parameter from which weights have scales for parts of a matrix
_PART_SCALES = 1e-5

#: kernels of a state: convolution, gates, the update itself, gated norm
_STATE_KERNELS = 4
#: kernels that pick groups of experts, mask the others and scale what is left
_GROUP_ROUTING = 3


def num_kernels_of(sublayers: Sequence[Sublayer]) -> int:
    """Matrix products that multiply, one kernel per attention or state, two for routed experts.

    Norms inside attention (of queries and keys, of latents) are one more; sinks, one number per
    query head, are part of the attention kernel.
    """
    count = 0
    for part in sublayers:
        if isinstance(part, MoE):
            own: tuple[Weights, ...] = (*part.router, *part.shared)
            count += 2 + _GROUP_ROUTING * (part.num_groups > 1)
        else:
            own = part.weights
            count += isinstance(part, Attention) + _STATE_KERNELS * isinstance(part, LinearState)
        if isinstance(part, Attention):
            vectors = sum(weights.params for weights in own if "norms" in weights.name)
            count += vectors > part.query_heads
        count += sum(weights.active_params > 0 for weights in own)
    return count


def quantised_activations(
    sublayers: Sequence[Sublayer], *, by_block: bool
) -> tuple[tuple[str, int], ...]:
    """Inputs that are quantised at run time, by format: two per branch whose weights have scales by block, one where one
    matrix alone has them.

    With one scale per matrix, which ``by_block`` says 8-bit weights do not have, inputs have constant scales too, which
    the kernel before applies. Grouped FP4 kernels quantise inside.
    """
    counts: dict[str, int] = {}
    for part in sublayers:
        if isinstance(part, MoE):
            dtype, params, size = part.expert_dtype, part.expert_params, part.expert_bytes
            matrices = 2
        else:
            largest = max(part.weights, key=lambda weights: weights.params, default=None)
            if largest is None:
                continue
            dtype, params, size = largest.dtype, largest.params, largest.num_bytes
            matrices = min(2, sum(weights.dtype == dtype for weights in part.weights))
        if dtype == "fp4":
            quantised = not isinstance(part, MoE)
        else:
            scaled = size > params * (1.0 + _PART_SCALES)
            quantised = by_block and scaled and dtype in ("fp8", "int8")
        if quantised:
            counts[dtype] = counts.get(dtype, 0) + matrices
    return tuple(counts.items())
