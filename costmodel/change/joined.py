"""Replicas of several layouts in one, each with its own expert maps."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.layout.layout import ExpertMap, Layout, Replica


def joined(parts: Sequence[Layout]) -> Layout:
    """All replicas in order. Maps of one name and other contents get a name of their own."""
    maps: dict[str, ExpertMap] = {}
    replicas: list[Replica] = []
    for number, part in enumerate(parts):
        used = {stage.expert_map for replica in part.replicas for stage in replica.stages}
        named: dict[str | None, str | None] = {None: None}
        for name in sorted(used - {None}, key=str):
            assert name is not None
            own = part.expert_maps.get(name)
            new = name
            while new in maps and maps[new] != own:
                new = f"{new[:50]}.{number}"
            named[name] = new
            if own is not None:
                maps[new] = own
        replicas += [_renamed(replica, named) for replica in part.replicas]
    return Layout(replicas=tuple(replicas), expert_maps=maps)


def _renamed(replica: Replica, named: dict[str | None, str | None]) -> Replica:
    if all(named[stage.expert_map] == stage.expert_map for stage in replica.stages):
        return replica
    stages = tuple(
        stage.model_copy(update={"expert_map": named[stage.expert_map]}) for stage in replica.stages
    )
    return replica.model_copy(update={"stages": stages})


def on_chips(replica: Replica, chips: dict[str, str]) -> Replica:
    """The replica with chips exchanged for others; chips that are not named stay."""
    stages = tuple(
        stage.model_copy(update={"chips": tuple(chips.get(chip, chip) for chip in stage.chips)})
        for stage in replica.stages
    )
    kv = tuple(
        share.model_copy(update={"chip": chips.get(share.chip, share.chip)}) for share in replica.kv
    )
    return replica.model_copy(update={"stages": stages, "kv": kv})
