"""Mamba and Mamba-2 blocks: a state per channel or head and a short convolution."""

from __future__ import annotations

from costmodel.models.parts.builder import Builder
from costmodel.models.spec import LinearState

#: FLOPs per state element and token: decay 1, update 2, read-out 2.
_STATE_FLOPS = 5.0


def mamba1(
    b: Builder,
    at: str,
    *,
    inner: int,
    state: int,
    dt_rank: int,
    conv: int,
    conv_bias: bool,
    proj_bias: bool,
    inner_norms: bool,
    element_bytes: float,
) -> LinearState:
    """A Mamba block of ``inner`` channels with ``state`` elements each (Mamba paper, section 3)."""
    vectors = inner * conv + (inner if conv_bias else 0) + inner * state + inner
    vectors += (dt_rank + 2 * state) if inner_norms else 0
    weights = (
        b.matrix("mamba in", f"{at}.in_proj", 2 * inner, b.hidden, "heads", bias=proj_bias),
        b.matrix("mamba step, B and C", f"{at}.x_proj", dt_rank + 2 * state, inner, "heads"),
        b.matrix("mamba step", f"{at}.dt_proj", inner, dt_rank, "heads", bias=True),
        b.matrix("mamba out", f"{at}.out_proj", b.hidden, inner, "heads", bias=proj_bias),
        b.vector("mamba vectors", vectors, "heads"),
    )
    kept = inner * state * element_bytes + inner * (conv - 1) * b.base_bytes
    flops = _STATE_FLOPS * inner * state + 2.0 * inner * conv
    return LinearState("mamba1", weights, inner, kept, flops)


def mamba2(
    b: Builder,
    at: str,
    *,
    heads: int,
    head_dim: int,
    groups: int,
    state: int,
    conv: int,
    conv_bias: bool,
    proj_bias: bool,
    element_bytes: float,
    norm: bool = True,
) -> LinearState:
    """A Mamba-2 block: ``heads`` of ``head_dim`` x ``state``; B and C shared within groups."""
    inner = heads * head_dim
    channels = inner + 2 * groups * state
    vectors = channels * (conv + (1 if conv_bias else 0)) + 3 * heads + (inner if norm else 0)
    weights = (
        b.matrix("mamba in", f"{at}.in_proj", inner + channels + heads, b.hidden, "heads",
                 bias=proj_bias),
        b.matrix("mamba out", f"{at}.out_proj", b.hidden, inner, "heads", bias=proj_bias),
        b.vector("mamba vectors", vectors, "heads"),
    )  # fmt: skip
    kept = inner * state * element_bytes + channels * (conv - 1) * b.base_bytes
    flops = _STATE_FLOPS * inner * state + 2.0 * channels * conv
    return LinearState("mamba2", weights, heads, kept, flops)
