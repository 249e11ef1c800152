"""Dense kernels: launches, copies, products of served models' matrices, attention over prompts. Needs PyTorch.

The median over replays of a captured graph, so that no launch from the host is in it (but for the line that measures
launches).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import cycle

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.kernels.timing import BEYOND_CACHE, operand, seconds

Line = dict[str, object]
#: columns and depth of matrices: squares, and those of Llama-3.1-70B and DeepSeek-V3, whole and in their slices over eight chips
_SHAPES = (
    (8192, 8192), (57344, 8192), (8192, 28672), (7168, 8192), (8192, 3584), (1280, 8192), (24576, 1536), (7168, 16384),
)  # fmt: skip
_ROWS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
#: heads, KV heads, widths of queries and keys, of values
_HEADS = (
    (64, 8, 128, 128),
    (8, 1, 128, 128),
    (64, 8, 64, 64),
    (128, 128, 192, 128),
    (16, 16, 192, 128),
)
#: tokens that ask, tokens that they see: whole prompts, and chunks after what came before
_PROMPTS = (
    (512, 512), (1024, 1024), (2048, 2048), (4096, 4096), (8192, 8192), (16384, 16384), (32768, 32768),
    (2048, 8192), (2048, 32768), (8192, 32768),
)  # fmt: skip


def launches() -> Iterator[Line]:
    """Small kernels one after the other: in a graph, and launched one by one from the host."""
    x = torch.zeros(1024, device="cuda")
    yield {"kernel": "launch", "how": "graph", "seconds": seconds(lambda: x.add_(1.0), 1000)}
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(10000):
        x.add_(1.0)
    torch.cuda.synchronize()
    yield {"kernel": "launch", "how": "host", "seconds": (time.perf_counter() - start) / 10000}


def copies() -> Iterator[Line]:
    """A plain copy and a largest element of eight gigabytes; ``columns``: bytes moved."""
    source = torch.randn(2**31, device="cuda", dtype=torch.bfloat16)
    target = torch.empty_like(source)
    size = source.numel() * source.element_size()
    copied = seconds(lambda: target.copy_(source))
    yield {"kernel": "copy", "columns": 2 * size, "seconds": copied}
    read = seconds(lambda: source.view(torch.int32).amax())
    yield {"kernel": "read", "columns": size, "seconds": read}


def products() -> Iterator[Line]:
    """Dense products, weights of several matrices in turn; FP8 with one scale per matrix."""
    for columns, depth in _SHAPES:
        for dtype in ("bf16", "fp8"):
            size = columns * depth * (2 if dtype == "bf16" else 1)
            turns = max(1, min(16, int(BEYOND_CACHE / size)))
            weights = [operand(columns, depth, dtype=dtype) for _ in range(turns)]
            for rows in _ROWS:
                if rows < 16 and dtype == "fp8":  # the library asks for 16
                    continue
                took = _product_s(weights, operand(rows, depth, dtype=dtype), rows)
                shape = {"rows": rows, "columns": columns, "depth": depth}
                yield {"kernel": "product", "dtype": dtype, **shape, "seconds": took}


def _product_s(weights: list[torch.Tensor], x: torch.Tensor, rows: int) -> float:
    turn, one = cycle(weights), torch.ones((), device="cuda")

    def run() -> torch.Tensor:
        if x.dtype == torch.bfloat16:
            return x @ next(turn).T
        return torch._scaled_mm(x, next(turn).T, one, one, out_dtype=torch.bfloat16)

    return seconds(run, max(4, len(weights)) if rows <= 1024 else 3)


def attention() -> Iterator[Line]:
    """Causal attention of one prompt, and of a chunk over all that came before it, by both libraries."""
    backends = (("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION))
    for heads, kv_heads, qk, v in _HEADS:
        for queries, context in _PROMPTS:
            sizes = ((heads, queries, qk), (kv_heads, context, qk), (kv_heads, context, v))
            operands = [operand(1, *size, dtype="bf16") for size in sizes]
            for name, backend in backends:
                took = _attention_s(operands, backend, causal=queries == context)
                if took is None:
                    continue
                shape = {"heads": heads, "kv_heads": kv_heads, "qk_dim": qk, "v_dim": v}
                shape |= {"queries": queries, "context": context}
                yield {
                    "kernel": "attention",
                    "dtype": "bf16",
                    **shape,
                    "how": name,
                    "seconds": took,
                }


def _attention_s(
    operands: list[torch.Tensor], backend: SDPBackend, *, causal: bool
) -> float | None:
    """Seconds, or ``None`` where the library has no kernel of these widths."""
    attend = torch.nn.functional.scaled_dot_product_attention
    try:
        with sdpa_kernel(backend):
            return seconds(lambda: attend(*operands, is_causal=causal, enable_gqa=True), 2)
    except RuntimeError as error:
        print(backend, [tuple(one.shape) for one in operands], error, file=sys.stderr)
        return None
