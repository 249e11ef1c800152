"""What is left of a layout after the loss of a node, a rack or some chips: replicas that touch it are gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from costmodel.layout.layout import Layout, Replica
from costmodel.question.instance import Instance


def units(instance: Instance, spare: str | int) -> list[Sequence[str]]:
    """Chips that go together, each a possible loss.

    ``rack``: a scale-up domain. ``node``: the chips of one host, where domains are larger. A number: so many
    neighbours of a domain.
    """
    found: list[Sequence[str]] = []
    for domain in instance.cluster.domains:
        chips = [placed.id for placed in domain.chips]
        size = len(chips)
        if spare == "node":
            size = min(size, domain.chips[0].chip.chips_per_host)
        elif isinstance(spare, int):
            size = min(size, spare)
        found += [chips[at : at + size] for at in range(0, len(chips), size)]
    return found


def losses(instance: Instance, layout: Layout, spare: str | int) -> Iterator[Layout]:
    """The layout after each loss that leaves another set of replicas, most capacity lost first."""
    seen = set()
    cut = []
    for chips in units(instance, spare):
        gone = set(chips)
        hit = tuple(
            index for index, one in enumerate(layout.replicas) if not gone.isdisjoint(one.chips)
        )
        kinds = tuple(
            sorted((layout.replicas[i].role, repr(layout.replicas[i].shape)) for i in hit)
        )
        if hit and kinds not in seen:
            seen.add(kinds)
            cut.append(hit)
    for hit in sorted(cut, key=lambda hit: -sum(len(layout.replicas[i].chips) for i in hit)):
        kept = tuple(one for index, one in enumerate(layout.replicas) if index not in hit)
        yield layout.model_copy(update={"replicas": _serving(kept)})


def _serving(replicas: Sequence[Replica]) -> tuple[Replica, ...]:
    """Those that can serve: prefill needs decode replicas, and the other way round."""
    roles = {one.role for one in replicas}
    if {"prefill", "decode"} <= roles:
        return tuple(replicas)
    return tuple(one for one in replicas if one.role == "mixed")
