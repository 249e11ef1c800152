"""Grouped products of routed experts by one Triton kernel, as serving engines have them. Needs PyTorch and Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from benchmarks.kernels.timing import operand, seconds

_SCALE_BLOCK = 128


@triton.jit
def grouped_product(
    a, b, out, a_scale, b_scale, starts, tile_expert, tile_row,
    n, k, a_stride, b_expert, b_row, scale_columns,
    scaled: tl.constexpr, rows_: tl.constexpr, columns_: tl.constexpr, depth_: tl.constexpr,
):  # fmt: skip
    """``out[r, :] = a[r, :] @ b[expert of r].T`` for rows that lie sorted by expert, a tile per program."""
    tile = tl.program_id(1)
    expert = tl.load(tile_expert + tile)
    first = tl.load(tile_row + tile)
    last = tl.load(starts + expert + 1)
    row = first + tl.arange(0, rows_)
    column = tl.program_id(0) * columns_ + tl.arange(0, columns_)
    depth = tl.arange(0, depth_)
    inside, within = row < last, column < n
    a_at = a + row.to(tl.int64)[:, None] * a_stride + depth[None, :]
    b_at = b + expert.to(tl.int64) * b_expert + column[None, :] * b_row + depth[:, None]
    total = tl.zeros((rows_, columns_), dtype=tl.float32)
    for step in range(tl.cdiv(k, depth_)):
        left = k - step * depth_
        x = tl.load(a_at, mask=inside[:, None] & (depth[None, :] < left), other=0.0)
        y = tl.load(b_at, mask=within[None, :] & (depth[:, None] < left), other=0.0)
        if scaled:
            block = step * depth_ // 128
            s = tl.load(a_scale + row * scale_columns + block, mask=inside, other=0.0)
            blocks = tl.cdiv(n, 128)
            t = tl.load(
                b_scale + (expert * blocks + column // 128) * scale_columns + block,
                mask=within, other=0.0,
            )  # fmt: skip
            total += tl.dot(x, y) * s[:, None] * t[None, :]
        else:
            total += tl.dot(x, y)
        a_at += depth_
        b_at += depth_
    out_at = out + row.to(tl.int64)[:, None] * n + column[None, :]
    tl.store(out_at, total.to(tl.bfloat16), mask=inside[:, None] & within[None, :])


#: rows, columns and depth of a tile, warps, stages
Tile = tuple[int, int, int, int, int]
TILES: tuple[Tile, ...] = (
    (16, 64, 128, 4, 4), (16, 128, 128, 4, 3), (16, 64, 256, 4, 3), (16, 32, 256, 4, 4),
    (64, 64, 128, 4, 3), (64, 128, 128, 4, 3), (64, 128, 64, 4, 4),
    (128, 128, 64, 8, 4), (128, 256, 64, 8, 3), (128, 128, 128, 8, 3),
)  # fmt: skip


def tiles_of(rows: list[int], size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Expert and first row of every tile of ``size`` rows, none of two experts."""
    experts, firsts, start = [], [], 0
    for expert, count in enumerate(rows):
        for first in range(0, count, size):
            experts.append(expert)
            firsts.append(start + first)
        start += count
    return torch.tensor(experts, dtype=torch.int32), torch.tensor(firsts, dtype=torch.int32)


class Grouped:
    """One grouped product: rows of every expert, its matrix ``[columns, depth]``, in a format."""

    def __init__(self, rows: list[int], columns: int, depth: int, dtype: str, device: str = "cuda"):
        self.rows, self.n, self.k, self.scaled = rows, columns, depth, dtype == "fp8"
        self.device = device
        total, experts = sum(rows), len(rows)
        self.a = operand(total, depth, dtype=dtype, device=device)
        self.b = operand(experts, columns, depth, dtype=dtype, device=device)
        self.out = torch.full((total, columns), float("nan"), device=device, dtype=torch.bfloat16)
        wide, high = -(-depth // _SCALE_BLOCK), -(-columns // _SCALE_BLOCK)
        self.a_scale = torch.rand(total, wide, device=device) + 0.5
        self.b_scale = torch.rand(experts, high, wide, device=device) + 0.5
        ends = torch.tensor([0, *rows]).cumsum(0)
        self.starts = ends.to(torch.int32).to(device)
        self.tiles: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def prepare(self, size: int) -> None:
        """Lay out the tiles of so many rows."""
        if size not in self.tiles:
            one, two = tiles_of(self.rows, size)
            self.tiles[size] = one.to(self.device), two.to(self.device)

    def run(self, tile: Tile) -> None:
        """Start the product with one form of tile."""
        rows, columns, depth, warps, stages = tile
        depth = min(depth, _SCALE_BLOCK) if self.scaled else depth
        expert, row = self.tiles[rows]
        grid = (triton.cdiv(self.n, columns), len(expert))
        grouped_product[grid](
            self.a, self.b, self.out, self.a_scale, self.b_scale, self.starts, expert, row,
            self.n, self.k, self.k, self.n * self.k, self.k, self.a_scale.shape[1],
            scaled=self.scaled, rows_=rows, columns_=columns, depth_=depth,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip

    def wanted(self) -> torch.Tensor:
        """The product in higher precision, expert by expert."""
        a, b = self.a.float(), self.b.float()
        if self.scaled:
            a = a * self.a_scale.repeat_interleave(_SCALE_BLOCK, 1)[:, : self.k]
            scale = self.b_scale.repeat_interleave(_SCALE_BLOCK, 1)[:, : self.n]
            b = b * scale.repeat_interleave(_SCALE_BLOCK, 2)[:, :, : self.k]
        parts, start = [], 0
        for expert, count in enumerate(self.rows):
            parts.append(a[start : start + count] @ b[expert].T)
            start += count
        return torch.cat(parts)

    def error(self) -> float:
        """Distance of what was computed from what is wanted, over the latter's length."""
        wanted = self.wanted()
        return float((self.out.float() - wanted).norm() / wanted.norm())

    def quickest(self) -> tuple[float, Tile]:
        """Seconds under the best form of tile, and that form."""
        found: list[tuple[float, Tile]] = []
        most = max(self.rows)
        for tile in TILES:
            # tiles far taller than any expert's rows, and far lower, are never the best
            if tile[0] > max(16, 2 * most) or (most >= 256 and tile[0] < 64):
                continue
            self.prepare(tile[0])
            try:
                found.append((seconds(lambda tile=tile: self.run(tile), 2), tile))
            except (
                triton.runtime.errors.OutOfResources
            ):  # a form that this chip's memory cannot hold
                continue
        took, tile = min(found)
        self.run(tile)
        return took, tile
