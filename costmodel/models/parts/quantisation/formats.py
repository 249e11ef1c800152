"""Storage formats of matrices: bits per element and what the scales cost."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal


@dataclass(frozen=True, slots=True)
class Format:
    """How one matrix is stored.

    Bytes of a matrix = rows * cols * bits / 8 + scales * scale_bytes + matrix_bytes, with one scale
    per ``block`` of rows x cols, rounded up in each dimension (0 means the whole dimension, so
    ``(1, 0)`` is one scale per output row and ``(0, 0)`` one per matrix).
    """

    dtype: str  #: bf16 fp16 fp32 fp8 int8 fp4 int4
    label: str
    bits: float
    block: tuple[int, int] | None = None
    scale_bytes: float = 0.0
    matrix_bytes: float = 0.0

    def num_bytes(self, rows: int, cols: int) -> float:
        """Bytes of a matrix of ``rows`` outputs and ``cols`` inputs, scales included."""
        if rows == 0 or cols == 0:
            return 0.0
        total = rows * cols * self.bits / 8 + self.matrix_bytes
        if self.block is not None:
            block_rows, block_cols = self.block[0] or rows, self.block[1] or cols
            total += ceil(rows / block_rows) * ceil(cols / block_cols) * self.scale_bytes
        return total

    def blocks(self, rows: int, cols: int, along: Literal["rows", "cols"]) -> int:
        """Blocks of FP8 scales along one side of a matrix, its elements where scales are none or by row; 0: no whole blocks."""
        size, side = (rows, 0) if along == "rows" else (cols, 1)
        if self.dtype != "fp8" or self.block is None or self.block[0] <= 1:
            return size
        own = self.block[side] or size
        return size // own if size % own == 0 else 0


BF16 = Format("bf16", "bf16", 16)
FP16 = Format("fp16", "fp16", 16)
FP32 = Format("fp32", "fp32", 32)
FP8_BLOCK = Format("fp8", "fp8, fp32 scale per 128x128 block", 8, (128, 128), 4)
#: fp8 with one bf16 scale per output row (llm-compressor "channel" strategy).
FP8_CHANNEL = Format("fp8", "fp8, bf16 scale per row", 8, (1, 0), 2)
#: fp8 with an fp32 weight scale and an fp32 input scale per matrix (ModelOpt, fbgemm static).
FP8_TENSOR = Format("fp8", "fp8, fp32 scale per matrix", 8, None, 0, 8)
INT8_CHANNEL = Format("int8", "int8, bf16 scale per row", 8, (1, 0), 2)
#: OCP microscaling: one exponent byte per 32 elements.
MXFP4 = Format("fp4", "mxfp4, 1-byte scale per 32", 4, (1, 32), 1)
MXFP8 = Format("fp8", "mxfp8, 1-byte scale per 32", 8, (1, 32), 1)
#: NVFP4: one fp8 scale per 16 elements, two fp32 scales per matrix.
NVFP4 = Format("fp4", "nvfp4, fp8 scale per 16", 4, (1, 16), 1, 8)
INT4_G128 = Format("int4", "int4, bf16 scale per 128", 4, (1, 128), 2)

#: What a user may ask for instead of the native precision.
BY_REQUEST = {
    "bf16": BF16,
    "fp16": FP16,
    "fp8": FP8_BLOCK,
    "fp4": NVFP4,
    "int8": INT8_CHANNEL,
    "int4": INT4_G128,
}

#: ``torch_dtype`` / ``dtype`` of a config.
BY_TORCH_NAME = {
    "bfloat16": BF16,
    "float16": FP16,
    "half": FP16,
    "float32": FP32,
    "float": FP32,
    "torch.bfloat16": BF16,
    "torch.float16": FP16,
    "torch.float32": FP32,
}

#: Bytes of one element where a cache or a state is kept in a dtype.
ELEMENT_BYTES = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp32": 4.0,
    "fp8": 1.0,
    "int8": 1.0,
    "fp4": 0.5,
    "int4": 0.5,
}


def grouped_int(bits: int, group: int, zero_points: bool) -> Format:
    """Grouped integers (GPTQ, AWQ, llm-compressor): a bf16 scale, perhaps a zero point, per group.

    ``group`` 0 means one group per row.
    """
    scale = 2.0 + (bits / 8 if zero_points else 0.0)
    dtype = "int8" if bits == 8 else "int4"
    each = f"per {group}" if group else "per row"
    return Format(dtype, f"int{bits}, bf16 scale {each}", bits, (1, group), scale)
