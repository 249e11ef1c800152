"""A layout: every replica with its stages and placements. The decision and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Role = Literal["prefill", "decode", "mixed"]
KvTier = Literal["hbm", "host", "flash", "disk"]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]


class Shape(BaseModel):
    """How one replica is built.

    Each stage is ``tp * attention_dp`` chips. Attention, dense FFN and shared experts are sharded
    ``tp`` ways and replicated over ``attention_dp`` ranks; the routed experts lie on ``ep`` chips
    of the stage (all of them for a mixture of experts, 1 for a dense model). ``batch`` is the
    number of sequences in flight (decode, mixed) or of prompts in one pass (prefill), over all
    ranks and microbatches.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tp: Count
    ep: Count
    pp: Count
    attention_dp: Count
    batch: Count

    @property
    def chips_per_stage(self) -> int:
        """Chips of one stage."""
        return self.tp * self.attention_dp


class Stage(BaseModel):
    """Consecutive layers on one group of chips, rank by rank (``chips[rank * tp + shard]``)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: first and last layer, both included, counted from 0
    layers: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]
    chips: tuple[str, ...]
    #: expert slots of each MoE layer on each chip: one number, or one per chip
    slots_per_chip: int | tuple[int, ...] | None = None
    expert_map: str | None = None

    def slots(self) -> tuple[int, ...]:
        """Slots on each chip, chip by chip (zeros for a stage without expert slots)."""
        if self.slots_per_chip is None:
            return (0,) * len(self.chips)
        if isinstance(self.slots_per_chip, int):
            return (self.slots_per_chip,) * len(self.chips)
        return self.slots_per_chip


class KvShare(BaseModel):
    """The KV cache on one chip.

    ``sequences`` counts those whose home is this chip, so that the replica's shares add up to its
    batch; a sequence's shards lie on every chip of its attention rank, in every stage. ``bytes`` is
    what this chip holds of them all, at their final length.

    ``tier`` other than ``hbm``: the KV lies there and is read from there in every pass. ``idle``: KV of
    conversations that may go on later; these sequences are not part of the batch.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    chip: str
    tier: KvTier = "hbm"
    idle: bool = False
    sequences: Annotated[int, Field(ge=0)]
    bytes: Annotated[float, Field(ge=0)]


class Replica(BaseModel):
    """A shape put on concrete chips; it holds the whole model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Role
    shape: Shape
    stages: tuple[Stage, ...]
    kv: tuple[KvShare, ...] = ()

    @property
    def chips(self) -> list[str]:
        """Every chip of the replica, stage by stage."""
        return [chip for stage in self.stages for chip in stage.chips]

    def rank_sequences(self) -> list[int]:
        """Sequences of each attention rank: the homes on its chips, over all stages."""
        counts = [0] * self.shape.attention_dp
        rank_of = {
            chip: place // self.shape.tp
            for stage in self.stages
            for place, chip in enumerate(stage.chips)
        }
        for share in self.kv:
            rank = rank_of.get(share.chip, self.shape.attention_dp)
            if share.idle:
                continue
            if rank < self.shape.attention_dp:
                counts[rank] += share.sequences
        return counts


#: expert id per slot, chip by chip, of each layer
ExpertMap = dict[int, tuple[int, ...]]


class Layout(BaseModel):
    """All replicas and the expert maps they use."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    replicas: tuple[Replica, ...]
    expert_maps: dict[str, ExpertMap] = Field(default_factory=dict)

    def experts_of(self, stage: Stage) -> ExpertMap:
        """The expert map of a stage; empty where it has none."""
        if stage.expert_map is None:
            return {}
        return self.expert_maps.get(stage.expert_map, {})


def spread(total: int, parts: int) -> Sequence[int]:
    """``total`` in ``parts`` whole shares that differ by at most one, larger ones first."""
    small, more = divmod(total, parts)
    return [small + 1] * more + [small] * (parts - more)
