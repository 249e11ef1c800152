"""A layout: every replica with its stages and placements. The decision and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from struct import error as struct_error
from struct import pack
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
)

from costmodel.layout.slot_table import SlotTable, slot_table

Role = Literal["prefill", "decode", "mixed"]
KvTier = Literal["hbm", "host", "flash", "disk"]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
#: ``r0g3``, and what a layout calls an expert map: printable and short
ChipId = Annotated[str, StringConstraints(max_length=64, pattern=r"^[ -~]*$")]
MapId = Annotated[str, StringConstraints(max_length=64, pattern=r"^[ -~]*$")]
_SlotCount = Annotated[int, Field(ge=0, le=100_000)]
#: expert slots of a layer on each chip: one number, or one per chip
Slots = _SlotCount | tuple[_SlotCount, ...]


class _Decision(BaseModel):
    """Part of a decision. What was read off its fields once is no part of it, nor of a copy."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def __copy__(self) -> Self:
        """A copy that reads its fields anew, as ``model_copy(update=...)`` may change them."""
        copied = super().__copy__()
        for name in self.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied


class Shape(_Decision):
    """How one replica is built.

    Each stage is ``tp * attention_dp`` chips. Attention, dense FFN and shared experts are sharded
    ``tp`` ways and replicated over ``attention_dp`` ranks; the routed experts lie on ``ep`` chips
    of the stage: on all of them, whole; 1 where each is cut over all chips, and for a dense model. ``batch`` is the
    number of sequences in flight (decode, mixed) or of prompts in one pass (prefill), over all
    ranks and microbatches.
    """

    tp: Count
    ep: Count
    pp: Count
    attention_dp: Count
    batch: Count

    @property
    def chips_per_stage(self) -> int:
        """Chips of one stage."""
        return self.tp * self.attention_dp


class Stage(_Decision):
    """Consecutive layers on one group of chips, rank by rank (``chips[rank * tp + shard]``)."""

    #: first and last layer, both included, counted from 0
    layers: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]
    chips: tuple[ChipId, ...]
    #: expert slots of each MoE layer on each chip: one number, or one per chip
    slots_per_chip: Slots | None = None
    expert_map: MapId | None = None
    #: the MoE layers that have other slots than ``slots_per_chip``, with theirs
    layer_slots: dict[Annotated[int, Field(ge=0)], Slots] | None = None

    @property
    def cut(self) -> bool:
        """Whether every expert is cut over all chips: these have 0 slots each; a map, if any, lists every expert once."""
        return self.slots_per_chip == 0 and not self.layer_slots

    @property
    def uneven(self) -> str | None:
        """What is wrong with slots that are listed chip by chip: a list of another length; else ``None``."""
        listed: dict[str, Slots | None] = {"slots_per_chip": self.slots_per_chip}
        listed |= {f"layer_slots of {n}": own for n, own in (self.layer_slots or {}).items()}
        for what, slots in listed.items():
            if isinstance(slots, tuple) and len(slots) != len(self.chips):
                return f"{what} lists {len(slots)} chips, the stage has {len(self.chips)}"
        return None

    def slots(self, layer: int | None = None) -> tuple[int, ...]:
        """Slots of a layer on each chip, chip by chip (zeros for a stage without expert slots).

        Without a layer: of those that ``layer_slots`` does not name.
        """
        if layer is None or self.layer_slots is None or layer not in self.layer_slots:
            return self._slots
        return self._each(self.layer_slots[layer])

    def _each(self, slots: Slots | None) -> tuple[int, ...]:
        if slots is None:
            return (0,) * len(self.chips)
        if isinstance(slots, int):
            return (slots,) * len(self.chips)
        return slots

    @cached_property
    def _slots(self) -> tuple[int, ...]:
        return self._each(self.slots_per_chip)

    @cached_property
    def unlike(self) -> tuple[int, ...]:
        """Layers whose slots differ from those of ``slots_per_chip``."""
        return tuple(
            layer for layer in sorted(self.layer_slots or ()) if self.slots(layer) != self.slots()
        )

    @cached_property
    def slot_key(self) -> tuple[object, ...]:
        """Equal for stages with the same slots on their chips in every layer."""
        return (
            self.slots(),
            *sorted((layer, self.slots(layer)) for layer in self.layer_slots or ()),
        )


class KvShare(_Decision):
    """The KV cache on one chip.

    ``sequences`` counts those whose home is this chip, so that the replica's shares add up to its
    batch; a sequence's shards lie on every chip of its attention rank, in every stage. ``bytes`` is
    what this chip holds of the rank's sequences, at their final length (``None``: not stated).

    ``tier`` other than ``hbm``: the KV lies there and is read from there in every pass. ``idle``: KV of
    conversations that may go on later; these sequences are not part of the batch.
    """

    chip: ChipId
    tier: KvTier = "hbm"
    idle: bool = False
    sequences: Annotated[int, Field(ge=0, le=1_000_000_000)]
    bytes: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class Apart(_Decision):
    """Routed experts on chips of their own, and the microbatches that are in flight between these and attention.

    ``experts``: all layers on the chips that hold routed experts and nothing else (:mod:`costmodel.apart`).
    """

    microbatches: Count
    experts: Stage


class Replica(_Decision):
    """A shape put on concrete chips; it holds the whole model.

    ``apart``: where attention and routed experts have chips of their own; the one stage is then that of attention,
    and ``shape.ep`` counts the chips of experts.
    """

    role: Role
    shape: Shape
    stages: tuple[Stage, ...]
    kv: tuple[KvShare, ...] = ()
    apart: Apart | None = None

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """As fields, without ``apart`` where there is none: such replicas are written as they ever were."""
        found: dict[str, Any] = write(self)
        if found.get("apart", ...) is None:
            del found["apart"]
        return found

    @cached_property
    def cuts_experts(self) -> bool:
        """Whether each routed expert is cut over all chips of its stage."""
        return self.apart is None and all(stage.cut for stage in self.stages)

    @cached_property
    def groups(self) -> tuple[Stage, ...]:
        """Chips that are priced together: the stages, and those of experts where they lie apart."""
        return self.stages if self.apart is None else (*self.stages, self.apart.experts)

    @cached_property
    def kv_chips(self) -> tuple[str, ...]:
        """The chips that hold KV, stage by stage."""
        return tuple(chip for stage in self.stages for chip in stage.chips)

    @cached_property
    def chips(self) -> tuple[str, ...]:
        """Every chip of the replica, stage by stage; those of experts that lie apart come last."""
        return self.kv_chips + (() if self.apart is None else self.apart.experts.chips)

    @cached_property
    def place_in_flight(self) -> KvTier:
        """Where the caches of the sequences in flight lie (one place, checked by ``kv_tiers``)."""
        return next((share.tier for share in self.kv if not share.idle), "hbm")

    @cached_property
    def idle_kv(self) -> tuple[KvShare, ...]:
        """Shares of conversations that wait."""
        return tuple(share for share in self.kv if share.idle)

    def rank_sequences(self) -> list[int]:
        """Sequences of each attention rank: the homes on its chips, over all stages."""
        return list(self._rank_sequences)

    @cached_property
    def _rank_sequences(self) -> tuple[int, ...]:
        counts = [0] * self.shape.attention_dp
        tp, ranks = self.shape.tp, self.shape.attention_dp
        rank_of = {
            chip: place // tp for stage in self.stages for place, chip in enumerate(stage.chips)
        }
        for share in self.kv:
            rank = rank_of.get(share.chip, ranks)
            if not share.idle and rank < ranks:
                counts[rank] += share.sequences
        return tuple(counts)


#: expert id per slot, chip by chip, of each layer; where all chips of a stage share every expert, each once
ExpertMap = dict[int, tuple[int, ...]]


class Layout(_Decision):
    """All replicas and the expert maps they use."""

    replicas: tuple[Replica, ...]
    expert_maps: dict[MapId, ExpertMap] = Field(default_factory=dict)

    def experts_of(self, stage: Stage) -> ExpertMap:
        """The expert map of a stage; empty where it has none, or where all chips share every expert."""
        if stage.expert_map is None or stage.cut:
            return {}
        return self.expert_maps.get(stage.expert_map, {})

    @cached_property
    def slot_tables(self) -> dict[str, SlotTable]:
        """Every expert map whose layers have equally many slots, as an array; others are left out."""
        tables = {}
        for name, by_layer in self.expert_maps.items():
            widths = {len(row) for row in by_layer.values()}
            if len(widths) != 1:
                continue
            width = widths.pop()
            try:  # pack() reads Python integers several times faster than numpy does
                flat = pack(f"={len(by_layer) * width}q", *chain.from_iterable(by_layer.values()))
            except struct_error:  # no expert has such a number
                continue
            experts = np.frombuffer(flat, np.dtype("=i8")).reshape(len(by_layer), width)
            tables[name] = slot_table(tuple(by_layer), experts)
        return tables

    def __eq__(self, other: object) -> bool:
        """Equal decisions; whether the maps were read as arrays is no part of it."""
        if not isinstance(other, Layout):
            return NotImplemented
        return self.replicas == other.replicas and self.expert_maps == other.expert_maps


def spread(total: int, parts: int) -> Sequence[int]:
    """``total`` in ``parts`` whole shares that differ by at most one, larger ones first."""
    small, more = divmod(total, parts)
    return [small + 1] * more + [small] * (parts - more)
