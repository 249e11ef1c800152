"""Routed experts: both grouped products by width and rows, and whole layers with what lies between. Needs PyTorch and Triton."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from benchmarks.kernels.grouped import Grouped
from benchmarks.kernels.timing import BEYOND_CACHE, seconds

Line = dict[str, object]
#: columns inside a slice, and rows of every expert
_WIDTHS = (2048, 1024, 512, 384, 256, 192, 128, 96, 64, 32)
_ROWS = (1, 4, 16, 64, 256, 1024)
#: rows up to which the experts are so many that no cache holds them; beyond it, they are few
_MANY_UP_TO, _FEW = 64, 32
#: hidden size, width inside, experts, experts per token: DeepSeek-V3, Qwen3-30B-A3B, Qwen3-235B-A22B
MODELS = ((7168, 2048, 256, 8), (2048, 768, 128, 8), (4096, 1536, 128, 8))
_TOKENS = (64, 256, 1024, 8192)
_WAYS = (4, 8, 16)
_NARROWEST = 64
#: columns that one program adds
_COLUMNS = 1024
#: distance from the product in higher precision that rounding leaves
_ROUNDING = 1e-2


def grouped() -> Iterator[Line]:
    """Both products of routed experts with equally many rows each."""
    for hidden, dtype in ((7168, "bf16"), (7168, "fp8"), (2880, "bf16")):
        for width in _WIDTHS:
            size = 3 * hidden * width * (2 if dtype == "bf16" else 1)
            many = max(_FEW, int(-(-BEYOND_CACHE // size)))
            for rows in _ROWS:
                counts = [rows] * (many if rows <= _MANY_UP_TO else _FEW)
                for name, columns, depth in (("up", 2 * width, hidden), ("down", hidden, width)):
                    product = Grouped(counts, columns, depth, dtype)
                    took, tile = product.quickest()
                    if rows <= _MANY_UP_TO:
                        assert product.error() < _ROUNDING, (name, columns, depth, rows)
                    shape = {"rows": rows, "columns": columns, "depth": depth}
                    yield {
                        "kernel": f"grouped_{name}", "dtype": dtype, **shape, "experts": len(counts),
                        "how": "x".join(map(str, tile)), "seconds": took,
                    }  # fmt: skip


@torch.compile(dynamic=True)
def gated(both: torch.Tensor) -> torch.Tensor:
    """What follows the first product: one half gates the other."""
    one, other = both.chunk(2, -1)
    return torch.nn.functional.silu(one) * other


@triton.jit
def add_outputs(
    out, weights, total, hidden, top_k: tl.constexpr, columns_: tl.constexpr
):  # fmt: skip
    """``total[t, :]``: outputs ``out[t, k, :]`` of a token's experts, weighted and added."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * columns_ + tl.arange(0, columns_)
    inside = column < hidden
    found = tl.zeros((columns_,), dtype=tl.float32)
    for k in tl.static_range(top_k):
        own = tl.load(out + (token * top_k + k) * hidden + column, mask=inside, other=0.0)
        found += own.to(tl.float32) * tl.load(weights + token * top_k + k).to(tl.float32)
    tl.store(total + token * hidden + column, found.to(tl.bfloat16), mask=inside)


def summed(out: torch.Tensor, weights: torch.Tensor, total: torch.Tensor) -> None:
    """Outputs ``[tokens, top_k, hidden]`` of each token's experts, weighted and added into ``total [tokens, hidden]``."""
    tokens, top_k, hidden = out.shape
    grid = (tokens, triton.cdiv(hidden, _COLUMNS))
    add_outputs[grid](out, weights, total, hidden, top_k=top_k, columns_=_COLUMNS, num_warps=4)


def layers() -> Iterator[Line]:
    """Routed experts of one layer, on one of ``ways`` chips: whole experts of its own, or a slice of every expert.

    Tokens choose their experts independently; of whole experts, the first chip's are measured. ``tokens``: of the layer.
    ``rows``: tokens times experts that reach the chip.
    """
    for hidden, width, experts, top_k in MODELS:
        for tokens in _TOKENS:
            chosen = torch.stack([torch.randperm(experts)[:top_k] for _ in range(tokens)])
            counts = torch.bincount(chosen.flatten(), minlength=experts).tolist()
            for ways in _WAYS:
                shape = {
                    "dtype": "bf16",
                    "depth": hidden,
                    "tokens": tokens,
                    "ways": ways,
                    "top_k": top_k,
                }
                for line in _layer(counts[: experts // ways], width, hidden, top_k):
                    yield {**shape, **line, "how": "whole"}
                if width // ways >= _NARROWEST:
                    for line in _layer(counts, width // ways, hidden, top_k):
                        yield {**shape, **line, "how": "cut"}
                torch.cuda.empty_cache()


def _layer(counts: list[int], inner: int, hidden: int, top_k: int) -> Iterator[Line]:
    up = Grouped(counts, 2 * inner, hidden, "bf16")
    down = Grouped(counts, hidden, inner, "bf16")
    up_s, up_tile = up.quickest()
    down.a = gated(up.out)
    down_s, down_tile = down.quickest()
    sums = sum(counts) // top_k
    outputs = down.out[: sums * top_k].view(sums, top_k, hidden)
    weights = torch.rand(sums, top_k, device="cuda", dtype=torch.bfloat16)

    total = torch.empty(sums, hidden, device="cuda", dtype=torch.bfloat16)
    summed(outputs, weights, total)
    wanted = (outputs.float() * weights.float()[..., None]).sum(1)
    assert float((total.float() - wanted).norm() / wanted.norm()) < _ROUNDING

    def layer() -> None:
        up.run(up_tile)
        gated(up.out)
        down.run(down_tile)
        summed(outputs, weights, total)

    line: Line = {"rows": sum(counts), "columns": inner, "experts": len(counts)}
    yield {"kernel": "layer", **line, "seconds": seconds(layer, 3)}
    yield {"kernel": "layer_up", **line, "seconds": up_s}
    yield {"kernel": "layer_gate", **line, "seconds": seconds(lambda: gated(up.out), 3)}
    yield {"kernel": "layer_down", **line, "seconds": down_s}
    yield {
        "kernel": "layer_sum",
        **line,
        "seconds": seconds(lambda: summed(outputs, weights, total), 3),
    }
