"""Hyper-connections: residual streams side by side, mixed before and after every branch.

Source: DeepSeek-V4 report, section 2 (manifold-constrained hyper-connections).
"""

from __future__ import annotations

from costmodel.models.parts.builder import Builder
from costmodel.models.spec import Weights


def hyper_connections(b: Builder, streams: int, times: int) -> list[Weights]:
    """``times`` maps: (2 + n) n rows over n residual streams, with base and scales, in fp32."""
    rows = (2 + streams) * streams
    size = times * (rows * streams * b.hidden + rows + 3)
    return [Weights("hyper-connections", size, 4.0 * size, "fp32", "replicated", size)]


def hyper_head(b: Builder, streams: int) -> list[Weights]:
    """The map that joins the streams before the head."""
    size = streams * streams * b.hidden + streams + 1
    return [Weights("hyper-connection head", size, 4.0 * size, "fp32", "replicated", size)]
