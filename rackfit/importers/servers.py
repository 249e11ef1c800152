"""What an importer finds: servers by their sizes, before they have chips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from costmodel.layout.layout import Role
from topology.errors import InstanceError, Problem

#: Expert of each slot by layer of the model; ``None``: as the engine starts.
Rows = dict[int, tuple[int, ...]]
Split = Literal["larger first", "larger last but one"]
#: Keys of a remark. An export writes all but ``count``; ``chips`` are there those of one process.
REMARKS = (
    "count", "role", "chips", "replica_chips", "server", "rank", "host", "gpus", "batch",
)  # fmt: skip


_KV_FORMATS = {
    "fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "mxfp8": "fp8", "bf16": "bf16",
    "bfloat16": "bf16", "nvfp4": "fp4", "fp4_e2m1": "fp4", "fp4_mx_block16": "fp4",
}  # fmt: skip


@dataclass(frozen=True)
class FoundServer:
    """One server: sizes as Rackfit counts them.

    ``spare`` counts expert slots of a layer beyond one per expert; ``slots`` all of them, where known.
    ``batch``: sequences (or prompts of a pass) over all ranks and microbatches; ``None`` where the
    files do not say, the largest that fits is then taken. ``experts``: placement by model layer;
    ``balanced``: the engine moves experts by itself. ``chips``: where a remark names them. ``sharded_experts``:
    the engine cuts every expert instead of spreading whole ones. ``kv_dtype``: as the engine calls it.
    """

    place: str
    role: Role
    tp: int
    attention_dp: int
    pp: int
    spare: int = 0
    slots: int | None = None
    batch: int | None = None
    prefill_tokens: int | None = None
    layers: tuple[int, ...] | None = None
    split: Split = "larger first"
    experts: Rows | None = None
    balanced: bool = False
    chips: tuple[str, ...] | None = None
    copies: int = 1
    sharded_experts: bool = False
    kv_dtype: str | None = None

    @property
    def kv_format(self) -> str | None:
        """KV precision as Rackfit calls it; ``None`` where the engine decides."""
        return _KV_FORMATS.get(self.kv_dtype or "")

    @property
    def width(self) -> int:
        """Chips of a stage."""
        return self.tp * self.attention_dp


def role_of(text: str | None, place: str) -> Role:
    """A role by its name; ``None`` and ``null`` serve prompts and answers alike."""
    if text in (None, "null", "mixed", "both", "kv_both"):
        return "mixed"
    if text in ("prefill", "kv_producer"):
        return "prefill"
    if text in ("decode", "kv_consumer"):
        return "decode"
    raise InstanceError(Problem(place, f"unknown role {str(text)[:40]!r}"))


def from_remarks(remarks: dict[str, str], place: str) -> tuple[tuple[str, ...] | None, int]:
    """Chips of the server and how many alike a remark names. Raises ``InstanceError``."""
    unknown = [key for key in remarks if key not in REMARKS]
    if unknown:
        message = f"unknown remark {unknown[0][:40]!r}; known: {', '.join(REMARKS)}"
        raise InstanceError(Problem(place, message))
    named = remarks.get("replica_chips", remarks.get("chips"))
    chips = tuple(named.split(",")) if named is not None else None
    count = remarks.get("count", "1")
    if not count.isdigit() or not 1 <= int(count) <= 100_000:
        raise InstanceError(Problem(place, f"count {count[:20]!r} is not a number of servers"))
    return chips, int(count)
