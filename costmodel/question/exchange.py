"""How a replica's routed experts exchange tokens: an engine's backends, and which of them fits.

All-to-all sends each token to the chips that hold its experts. Collectives gather every rank's tokens on
every chip and scatter the sums back. With one attention rank nothing is exchanged: every chip has every
token, and the outputs are summed by an all-reduce.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from topology.chip import Chip
    from topology.cluster import Cluster


@dataclass(frozen=True)
class Ranks:
    """Where a replica's ranks lie: how many in a row on one domain, stage by stage (``runs``).

    ``attention_dp``: attention ranks of a stage. ``even``: whether all hold equally many experts. ``cut``: whether each
    expert is cut over all of them, so that every chip needs every token.
    """

    attention_dp: int
    runs: Sequence[Sequence[int]]
    even: bool = True
    cut: bool = False


class Exchange(BaseModel):
    """One backend of an engine, with the replicas that it serves.

    ``kind``: ``all-to-all``, or ``collectives``: an all-gather before the experts and a reduce-scatter
    after them. ``roles``: of replicas. ``models``: the kind of model classes that use the backend, ``None``
    for all; ``formats``: of experts' weights. ``chips``: types of chip, empty for all. ``widths``: numbers of
    chips that there is a configuration for, empty for any. ``host_group``: ranks in a row that must share
    one scale-up domain; fewer ranks than that must all share one. ``one_domain``: all ranks must. ``even_slots``: every rank holds
    equally many experts.
    ``most_tokens``: of a rank in one decode pass. ``cuda_graphs``: whether decode passes are captured;
    a backend without serves prefill only. ``gathers``: what an all-gather sends, tokens ``quantised`` for the
    experts or ``as they are``. ``arguments``: options beside the backend's own, by format of the experts
    (``*``: any).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    backend: str
    kind: Literal["all-to-all", "collectives"]
    roles: tuple[Literal["prefill", "decode", "mixed"], ...] = ("prefill", "decode", "mixed")
    models: Literal["all_to_all"] | None = None
    formats: tuple[str, ...] | None = None
    chips: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()
    host_group: Annotated[int, Field(ge=2)] | None = None
    one_domain: bool = False
    even_slots: bool = False
    most_tokens: Annotated[int, Field(ge=1)] | None = None
    cuda_graphs: bool = True
    gathers: Literal["quantised", "as they are"] = "quantised"
    arguments: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    source: str

    def fits(self, expert_dtype: str, chip: Chip, role: str, ranks: Ranks) -> bool:
        """Whether it serves a replica with these ranks."""
        return (
            role in self.roles
            and (self.cuda_graphs or role == "prefill")
            and (self.formats is None or expert_dtype in self.formats)
            and (not self.chips or chip.name in self.chips)
            and (ranks.even or not self.even_slots)
            and all(self._spans(stage) for stage in ranks.runs)
        )

    @property
    def serves_all(self) -> bool:
        """Whether it serves every replica of every model."""
        return (
            set(self.roles) == {"prefill", "decode", "mixed"}
            and (self.models, self.formats, self.host_group, self.most_tokens) == (None,) * 4
            and not (self.chips or self.widths or self.one_domain or self.even_slots)
            and self.cuda_graphs
        )

    def _spans(self, stage: Sequence[int]) -> bool:
        total = sum(stage)
        if self.widths and total not in self.widths:
            return False
        if self.one_domain and len(stage) > 1:
            return False
        if self.host_group is None or len(stage) == 1:
            return True
        return total > self.host_group and not any(count % self.host_group for count in stage)


def domain_runs(cluster: Cluster, stages: Sequence[Sequence[str]]) -> list[list[int]]:
    """Chips in a row on one domain, for each stage of a replica."""
    return [
        [len(list(own)) for _, own in groupby(stage, key=lambda chip: cluster.chip(chip).domain)]
        for stage in stages
    ]
