"""Seconds of kernels on the GPU of this machine, and operands to give them. Needs PyTorch."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

#: operands that take turns are larger than this together, so that the cache holds none of them
BEYOND_CACHE = 400e6
_REPLAYS = 5


def operand(*shape: int, dtype: str, device: str = "cuda") -> torch.Tensor:
    """Normal numbers in a format."""
    values = torch.randn(*shape, device=device, dtype=torch.bfloat16)
    return values.to(torch.float8_e4m3fn) if dtype == "fp8" else values


def seconds(run: Callable[[], object], times: int = 4) -> float:
    """Seconds of one call, the median over replays of a graph that holds ``times`` of them."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            run()
    graph.replay()
    found = []
    for _ in range(_REPLAYS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end) / 1e3 / times)
    return statistics.median(found)
