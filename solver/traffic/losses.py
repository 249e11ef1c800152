"""What is left of a layout after the loss of a node, a rack or some chips: replicas that touch it are gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from costmodel.layout.layout import Layout
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
    for kept in remainders(instance, layout, spare):
        yield layout.model_copy(update={"replicas": tuple(layout.replicas[at] for at in kept)})


def remainders(instance: Instance, layout: Layout, spare: str | int) -> list[tuple[int, ...]]:
    """Replicas that serve after each loss that leaves another set of them, most capacity lost first."""
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
    cut.sort(key=lambda hit: -sum(len(layout.replicas[i].chips) for i in hit))
    every = range(len(layout.replicas))
    return [_serving(layout, [at for at in every if at not in hit]) for hit in cut]


def _serving(layout: Layout, kept: Sequence[int]) -> tuple[int, ...]:
    """Those that can serve: prefill needs decode replicas, and the other way round."""
    roles = {layout.replicas[at].role for at in kept}
    if {"prefill", "decode"} <= roles:
        return tuple(kept)
    return tuple(at for at in kept if layout.replicas[at].role == "mixed")
