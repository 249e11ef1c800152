"""The size that a checkpoint's own index states, beside what is counted from its config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from costmodel.models.files import read_object
from costmodel.models.spec import ModelSpec
from costmodel.models.summary import copied_bytes, summarise
from topology.quantity import per_cent

#: Written beside the weights: which file holds which tensor, and the bytes of all of them.
INDEX_FILE = "model.safetensors.index.json"
#: An index names every tensor; the largest released ones have a few hundred thousand.
MAX_INDEX_BYTES = 128 * 2**20
#: A count that differs from the files by more than this is a warning.
TOLERANCE = 0.02


def published_bytes(config: Path) -> int | None:
    """``total_size`` of the index beside a config; ``None`` without an index or a usable size."""
    beside = config.with_name(INDEX_FILE)
    if not beside.is_file():
        return None
    metadata: Any = read_object(beside, limit=MAX_INDEX_BYTES).get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(size, float) and size.is_integer():
        size = int(size)
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None


def compared(spec: ModelSpec, published: int) -> str:
    """One line on counted and published bytes; a warning where they differ by more than 2 %.

    A checkpoint may hold the draft modules, their copies of the tables and the image tower or not: the
    sum that comes closest is compared.
    """
    s = summarise(spec)
    vision = sum(tower.num_bytes for tower in (spec.vision, spec.audio) if tower)
    text = (s.weight_bytes, s.weight_bytes + s.mtp_bytes,
            s.weight_bytes + s.mtp_bytes + copied_bytes(spec))  # fmt: skip
    counted = min(
        (part + tower for part in text for tower in (0.0, vision)),
        key=lambda size: abs(size - published),
    )
    share = counted / published - 1
    words = (
        f"the checkpoint's index states {published / 1e9:,.2f} GB; {counted / 1e9:,.2f} GB are "
        f"counted ({per_cent(share, 2, signed=True)})"
    )
    return f"warning: {words}" if abs(share) > TOLERANCE else words
