"""What chips must load to go from one layout to another: bytes of weights, and how long that takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costmodel.change.weights import expert_bytes, weights_by_chip
from costmodel.evaluate import Evaluation
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance


@dataclass(frozen=True)
class Loading:
    """``total_bytes`` over all chips; ``seconds`` of the slowest chip from its host's memory.

    ``None``: the host bandwidth of some chip is not known. Disks and networks that feed the hosts may be slower.
    """

    total_bytes: float
    seconds: float | None

    def words(self) -> str:
        """The same as a line."""
        took = "" if self.seconds is None else f", {self.seconds:.1f} s from host memory at least"
        return f"{self.total_bytes / 1e9:,.1f} GB of weights have to be loaded{took}"


def loading(
    before: Layout, instance: Instance, after: Layout, evaluation: Evaluation, *, same_model: bool
) -> Loading:
    """Weights that each chip of ``after`` holds and does not hold in ``before``."""
    fresh = fresh_bytes(before, instance, after, evaluation, same_model=same_model)
    return Loading(sum(fresh.values()), read_s(instance, fresh))


def fresh_bytes(
    before: Layout, instance: Instance, after: Layout, evaluation: Evaluation, *, same_model: bool
) -> dict[str, float]:
    """The same by chip of ``after``.

    A chip that keeps its layers and its shard keeps its other weights; of experts it loads the new ones.
    """
    had = weights_by_chip(before) if same_model else {}
    each = expert_bytes(instance)
    wanted = weights_by_chip(after, evaluation.priced)
    return {chip: own.fresh(had.get(chip), each) for chip, own in wanted.items()}


def read_s(instance: Instance, size: Mapping[str, float], source: str = "host") -> float | None:
    """Seconds in which every chip has read its bytes, all at once, each through its own link.

    ``source``: ``host`` memory at the chip's ``host_bytes_per_s``, or its tier of ``flash`` or ``disk``. ``None``:
    some chip that has to read has no such speed.
    """
    slowest = 0.0
    for chip, number in size.items():
        if not number:
            continue
        rate = read_bytes_per_s(instance, chip, source)
        if rate is None:
            return None
        slowest = max(slowest, number / rate)
    return slowest


def read_bytes_per_s(instance: Instance, chip: str, source: str) -> float | None:
    """Bytes/s at which a chip reads weights from its host's memory, flash or disk; ``None`` where it has none."""
    kind = instance.cluster.chip(chip).chip
    if source == "host":
        return kind.host_bytes_per_s
    tier = next((tier for tier in kind.tiers if tier.kind == source), None)
    return None if tier is None else tier.read_bytes_per_s
