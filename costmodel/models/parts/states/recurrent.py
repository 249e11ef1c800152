"""Recurrences with a small state: short convolutions, RG-LRU, RWKV and the xLSTM's matrix memory.

FLOPs count a multiply-add as 2, as in linear.py.
"""

from __future__ import annotations

from costmodel.models.parts.builder import Builder
from costmodel.models.spec import LinearState


def short_convolution(b: Builder, at: str, *, taps: int, bias: bool) -> LinearState:
    """A gated convolution over the last ``taps`` tokens (LFM2): three projections in, one out."""
    h = b.hidden
    weights = (
        b.matrix("convolution in", f"{at}.in_proj", 3 * h, h, "heads", bias=bias),
        b.matrix("convolution out", f"{at}.out_proj", h, h, "heads", bias=bias),
        b.vector("convolution", h * (taps + (1 if bias else 0)), "heads"),
    )
    return LinearState(
        "short-conv", weights, h, h * (taps - 1) * b.base_bytes, 2.0 * h * (taps + 1)
    )


def token_convolutions(b: Builder, channels: int, taps: int) -> LinearState:
    """Convolutions over the last ``taps`` tokens of ``channels`` channels, without projections."""
    weights = (b.vector("token convolutions", channels * taps, "heads"),)
    kept = channels * (taps - 1) * b.base_bytes
    return LinearState("short-conv", weights, channels, kept, 2.0 * channels * taps)


def gated_lru(b: Builder, at: str, *, width: int, heads: int, taps: int) -> LinearState:
    """Griffin's recurrent block: two branches in, a convolution and RG-LRU (Griffin, section 2.4)."""
    gates = 2 * heads * (width // heads) ** 2
    weights = (
        b.matrix("recurrent in", f"{at}.linear_x", width, b.hidden, "heads", bias=True, copies=2),
        b.matrix("recurrent out", f"{at}.linear_out", b.hidden, width, "heads", bias=True),
        b.matrix("recurrence gates", f"{at}.rg_lru", gates // (width // heads), width // heads,
                 "heads", role="plain"),
        b.vector("recurrence and convolution", width * (taps + 1) + 3 * width, "heads"),
    )  # fmt: skip
    kept = width * 4.0 + width * (taps - 1) * b.base_bytes
    return LinearState("rg-lru", weights, width, kept, 10.0 * width + 2.0 * width * taps)


def rwkv_mixing(b: Builder, at: str, width: int) -> LinearState:
    """RWKV-4's time mixing: key, value and receptance, a decayed sum per channel (RWKV, section 3).

    A sequence keeps numerator, denominator and maximum in fp32, and the last input of both mixings.
    """
    h = b.hidden
    weights = (
        b.matrix("key, value, receptance", f"{at}.key", width, h, "heads", copies=3),
        b.matrix("time mixing out", f"{at}.output", h, width, "heads"),
        b.vector("time decay and mixing", 2 * width + 3 * h, "heads"),
    )
    return LinearState("rwkv", weights, width, 3 * width * 4.0 + 2 * h * b.base_bytes, 14.0 * width)


def matrix_memory(
    b: Builder, at: str, *, heads: int, keys: int, values: int, bias: bool
) -> LinearState:
    """The mLSTM: a key x value matrix per head with input, forget and output gates (xLSTM, 2.3)."""
    h = b.hidden
    weights = (
        b.matrix("query and key", f"{at}.q", keys, h, "heads", bias=bias, copies=2),
        b.matrix("value and output gate", f"{at}.v", values, h, "heads", bias=bias, copies=2),
        b.matrix("input and forget gate", f"{at}.igate_preact", heads, h, "heads", bias=True,
                 role="plain", copies=2),
        b.matrix("memory out", f"{at}.out_proj", h, values, "heads", bias=bias),
        b.vector("memory norm", values * (2 if bias else 1), "heads"),
    )  # fmt: skip
    matrix = (keys // heads) * (values // heads)
    state = heads * (matrix + keys // heads + 1)
    return LinearState("mlstm", weights, heads, state * 4.0, 5.0 * heads * matrix)
