"""``python -m benchmarks.kernels measure FILE``: time kernels on this machine's GPU; ``page``: docs/kernels.md from the shipped table.

Measuring needs a GPU, PyTorch and Triton, and none of Rackfit's packages; it takes about two minutes. The shipped tables are
``instances/measured/kernels_h100.csv`` and ``kernels_h200.csv``.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

#: what a line says; a cell that a kernel has no use for is empty
COLUMNS = (
    "kernel", "dtype", "rows", "columns", "depth", "experts", "heads", "kv_heads", "qk_dim", "v_dim",
    "queries", "context", "tokens", "ways", "top_k", "how", "seconds",
)  # fmt: skip


def measure(path: Path) -> None:
    """Measure every kernel, a line as soon as it is known."""
    import torch
    import triton

    from benchmarks.kernels import dense, experts

    print(torch.cuda.get_device_name(), torch.__version__, triton.__version__, torch.version.cuda)
    started = time.monotonic()
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        parts = (
            dense.launches,
            dense.copies,
            dense.attention,
            dense.products,
            experts.layers,
            experts.grouped,
        )
        for part in parts:
            for line in part():
                table.writerow(line | {"seconds": f"{line['seconds']:.4g}"})
                file.flush()
            torch.cuda.empty_cache()
            print(part.__name__, f"{time.monotonic() - started:.0f} s")


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__)
    parser.add_argument("what", choices=("measure", "page"))
    parser.add_argument("file", nargs="?", type=Path, help="where the measured table goes")
    asked = parser.parse_args()
    if asked.what == "measure":
        if asked.file is None:
            parser.error("measure: name the file that the table goes to")
        measure(asked.file)
        return
    from benchmarks.kernels.page import write

    write()


if __name__ == "__main__":
    main()
