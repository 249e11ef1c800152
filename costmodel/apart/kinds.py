"""Layers in two halves: what attention's chips compute of them, and what the experts' chips compute.

Experts' chips have the routed experts and nothing else. Attention's chips have all the rest: attention with its KV,
norms, the router, dense layers, embedding and head, and shared experts. Every token meets those, so that they need no
exchange, and lie with attention as the other dense products do; engines that put them beside the routed ones are not
covered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from costmodel.passes.kernels import quantised_activations
from costmodel.passes.operations import LayerKind, Operations

#: kernels of routed experts: two grouped products (:func:`costmodel.passes.kernels.num_kernels_of`)
_EXPERT_KERNELS = 2


@dataclass(frozen=True)
class HalfKind:
    """Layers of one kind: what attention computes of each, and what experts do (``None`` in a dense layer)."""

    attention: LayerKind
    experts: LayerKind | None


def half_kinds(operations: Operations) -> list[HalfKind]:
    """Every kind of layer in two halves, in the order of ``operations.kinds``."""
    return [_halves(kind, by_block=operations.spec.scaled_by_block) for kind in operations.kinds]


def _halves(kind: LayerKind, *, by_block: bool) -> HalfKind:
    moe = kind.moe
    if moe is None:
        return HalfKind(kind, None)
    quantised = quantised_activations([moe], by_block=by_block)
    left = dict(kind.quantised)
    for dtype, count in quantised:
        left[dtype] -= count
    attention = replace(
        kind,
        moe=None,
        num_kernels=kind.num_kernels - _EXPERT_KERNELS,
        quantised=tuple((dtype, count) for dtype, count in left.items() if count),
    )
    experts = replace(
        kind, matmuls=(), attentions=(), states=(), num_sublayers=0, num_reductions=0,
        num_kernels=_EXPERT_KERNELS, quantised=quantised,
    )  # fmt: skip
    return HalfKind(attention, experts)
