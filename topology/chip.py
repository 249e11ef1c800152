"""One accelerator as a scheduler sees it, read from ``instances/chips/<name>.yaml``.

Rates are dense, bandwidths are per direction. Knows nothing of how chips are joined.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from topology.catalogue import beside, catalogue_names, checked, data_dir, read_data, resolve
from topology.errors import InstanceError, Problem
from topology.names import Line, Name, Prose
from topology.quantity import (
    Bytes,
    BytesPerSecond,
    ExponentialsPerSecond,
    FlopsPerSecond,
    UsdPerHour,
    Watts,
)
from topology.tier import NamedTier, Tier, TierKind

Basis = Literal["measured", "published", "derived", "assumed"]
Fraction = float
Range = tuple[float, float]

#: Spellings of a number format and the arithmetic key it computes with.
_ALIASES = {
    "bfloat16": "bf16",
    "float16": "bf16",
    "fp16": "bf16",
    "float32": "bf16",
    "fp32": "bf16",
    "tf32": "bf16",
    "float8": "fp8",
    "float8_e4m3fn": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "mxfp8": "fp8",
    "mxfp6": "fp8",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
}

#: Where a format's arithmetic goes on a chip that lacks it: always to a wider one.
_WIDER = {"fp4": ("fp4", "fp8", "bf16"), "fp8": ("fp8", "bf16"), "bf16": ("bf16",)}


class ChipEfficiency(BaseModel):
    """Fractions of the peak that were measured; ``None`` where nobody measured.

    ``gemm`` and ``hbm`` are (low, high) over software builds; the three collectives are NCCL bus
    bandwidth at 512 MiB over the link peak of one direction. ``sustained``: what the quickest products reach, no product is
    priced quicker (power may hold the clock far below that of the peak). ``like``: a chip whose kernels run on this one. ``basis`` says where they come from.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    gemm: dict[str, Range] = Field(default_factory=dict)
    sustained: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(default_factory=dict)
    hbm: Range | None = None
    like: Line = ""
    all_to_all: Fraction | None = None
    all_gather: Fraction | None = None
    all_reduce: Fraction | None = None
    basis: Line = ""


class Chip(BaseModel):
    """One accelerator package: arithmetic, memory, links, price, power and where each comes from.

    ``flops_per_s`` has the keys ``bf16``, ``fp8``, ``fp4``, ``int8`` that the chip computes in,
    dense. ``scale_up_bytes_per_s`` is the headline of all scale-up links together, one direction;
    ``scale_up_links`` is how many physical links that is. ``host_bytes_per_s`` is what one chip
    gets of its host memory. ``provenance`` maps a field (or ``flops_per_s.bf16``) to ``measured``,
    ``published``, ``derived`` or ``assumed``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    title: Line = ""
    vendor: Line
    status: Line = ""
    flops_per_s: dict[str, FlopsPerSecond]
    #: exponentials of all its units for special functions, one per attention score; left out, products are taken to hide them
    exponentials_per_s: ExponentialsPerSecond | None = None
    #: whether engines' attention kernels multiply with a cache of 8-bit floats in its own format, or widen it first
    attention_in_kv_format: bool = False
    hbm_bytes: Bytes
    hbm_bytes_per_s: BytesPerSecond
    scale_up_bytes_per_s: BytesPerSecond
    scale_up_links: int = Field(default=1, ge=1)
    nic_bytes_per_s: BytesPerSecond
    #: chips that one operating system sees; a domain of fewer is one host
    chips_per_host: int = Field(default=8, ge=1)
    #: whether a pass is one program, scheduled ahead of time: operations follow each other, nothing launches them
    compiled: bool = False
    power_w: Watts
    usd_per_hour: UsdPerHour
    price_basis: Line
    host_memory_bytes: Bytes | None = None
    host_bytes_per_s: BytesPerSecond | None = None
    #: memory beside HBM that KV may move to, one of a kind; none: HBM only
    tiers: tuple[NamedTier, ...] = ()
    efficiency: ChipEfficiency = ChipEfficiency()
    provenance: dict[str, Basis] = Field(default_factory=dict)
    sources: tuple[Prose, ...] = ()
    notes: tuple[Prose, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Chip:
        unknown = set(self.flops_per_s) - {"bf16", "fp8", "fp4", "int8"}
        if unknown:
            raise ValueError(f"flops_per_s: unknown formats {sorted(unknown)}")
        if "bf16" not in self.flops_per_s:
            raise ValueError("flops_per_s: bf16 is missing; every other format falls back to it")
        kinds = [tier.kind for tier in self.tiers]
        if len(set(kinds)) < len(kinds):
            raise ValueError(f"tiers: one of each kind at most, got {', '.join(kinds)}")
        for field in self.provenance:
            if field.split(".")[0] not in type(self).model_fields:
                raise ValueError(f"provenance: no field {field!r}")
        return self

    def __hash__(self) -> int:
        return hash((self.name, self.usd_per_hour, self.hbm_bytes))

    def peak_flops_per_s(self, dtype: str) -> float:
        """Dense FLOP/s for operands of ``dtype``.

        A chip without the format computes in the next wider one it has (fp4 -> fp8 -> bf16).
        Integers use the integer rate unless bf16 is faster (int8 all but left Blackwell Ultra);
        4-bit integer weights are widened to bf16 first. Raises ``InstanceError`` for a format
        that is not known.
        """
        return self.flops_per_s[self.computes_in(dtype)]

    def attends_in(self, kv_dtype: str, otherwise: str) -> str:
        """The format in which queries are multiplied with a cache of ``kv_dtype``: ``otherwise``, unless kernels take the cache's."""
        return kv_dtype if self.attention_in_kv_format and kv_dtype == "fp8" else otherwise

    def computes_in(self, dtype: str) -> str:
        """The format of ``flops_per_s`` in which operands of ``dtype`` are multiplied."""
        key = _ALIASES.get(dtype.lower(), dtype.lower())
        if key == "int8":
            faster = self.flops_per_s.get("int8", 0.0) > self.flops_per_s["bf16"]
            return "int8" if faster else "bf16"
        if key == "int4":
            return "bf16"
        if key not in _WIDER:
            known = ", ".join([*_WIDER, "int8", "int4", *_ALIASES])
            raise InstanceError(Problem("dtype", f"unknown format {dtype!r}; known: {known}"))
        return next(wider for wider in _WIDER[key] if wider in self.flops_per_s)

    def unpacks(self, dtype: str) -> bool:
        """Whether weights of ``dtype`` are widened to another format before they are multiplied."""
        key = _ALIASES.get(dtype.lower(), dtype.lower())
        return self.computes_in(key) != key

    def tier(self, kind: TierKind) -> Tier | None:
        """The chip's tier of a kind, if it has one."""
        return next((tier for tier in self.tiers if tier.kind == kind), None)

    def priced(self, usd_per_hour: float, basis: str) -> Chip:
        """The chip at another price, and what that rests on."""
        # neither published nor assumed: what the file's author pays
        told = {key: own for key, own in self.provenance.items() if key != "usd_per_hour"}
        return self.model_copy(
            update={"usd_per_hour": usd_per_hour, "price_basis": basis, "provenance": told}
        )

    def assumes(self, field: str) -> bool:
        """Whether a number, or that of one of its formats, is said to be assumed."""
        own = (basis for key, basis in self.provenance.items() if key.split(".")[0] == field)
        return "assumed" in own


def load_chip(name_or_path: str | Path) -> Chip:
    """The chip of a catalogue name (``"gb200"``) or of a YAML file. Raises ``InstanceError``."""
    path = resolve(str(name_or_path), "chips", (".yaml",))
    if path.parent == data_dir("chips"):
        return _shipped(path)
    data = read_data(path)
    if isinstance(data, dict) and isinstance(tiers := data.get("tiers"), list):
        named = [beside(path, tier) if isinstance(tier, str) else tier for tier in tiers]
        data = {**data, "tiers": named}
    with checked(str(path)):
        return Chip.model_validate(data)


def chip_names() -> list[str]:
    """Sorted names of the shipped chips."""
    return catalogue_names("chips", (".yaml",))


@lru_cache(maxsize=256)
def _shipped(path: Path) -> Chip:
    with checked(str(path.name)):
        return Chip.model_validate(read_data(path))
