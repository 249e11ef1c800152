r"""Weights that new replicas take from replicas that run: seconds over the cluster's links.

Each new replica takes its weights from one replica that runs, of those that have sent least. A chip sends to one
chip at a time and receives from one at a time, at what the links between the two carry; domains and units of the
network carry what their uplinks do:

    seconds = max( sum of a chip's sends, sum of a chip's receipts, bytes over a cut / its bytes/s )

An order of the transfers that takes no longer than the busiest chip exists (open shop with pre-emption, Gonzalez and
Sahni 1976). Requests that are served meanwhile are not in it: their traffic shares the links.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from costmodel.change.weights import Weights
from costmodel.layout.layout import Replica
from costmodel.question.instance import Instance
from topology import Cluster
from topology.errors import InstanceError


@dataclass
class Sent:
    """Bytes from chip to chip, and those that no chip that runs can send."""

    between: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    left: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(
        self, donor: Mapping[str, Weights], chip: str, fresh: float, wanted: Weights,
        there: Weights | None, each: Mapping[int, float],
    ) -> None:  # fmt: skip
        """A chip takes what it does not hold from the chips of a donor: experts, or their slices, where they lie, the rest evenly."""
        missing = wanted.experts if there is None else wanted.experts - there.experts
        dense = fresh - sum(each.get(layer, 0.0) for layer, _ in missing)
        for source, held in donor.items():
            own = missing & held.experts
            missing -= own
            size = sum(each.get(layer, 0.0) for layer, _ in own) + max(dense, 0.0) / len(donor)
            size += (
                sum(each.get(layer, 0.0) for layer, _ in missing if held.slices(layer)) * held.part
            )
            if size > 0:
                self.between[source, chip] += size
        missing = frozenset(
            one for one in missing if not any(own.slices(one[0]) for own in donor.values())
        )
        lost = sum(each.get(layer, 0.0) for layer, _ in missing)
        if lost:
            self.left[chip] += lost


def from_peers(
    new: Sequence[Replica],
    running: Sequence[Replica],
    weights: tuple[Mapping[str, Weights], Mapping[str, Weights], Mapping[str, Weights]],
    each: Mapping[int, float],
) -> Sent:
    """What chips send so that ``new`` replicas hold their weights.

    ``weights`` by chip: of the new replicas, of those that run, and what new chips hold already.
    """
    wanted, held, there = weights
    sent = Sent()
    given = [0.0] * len(running)
    for replica in new:
        fresh = {chip: wanted[chip].fresh(there.get(chip), each) for chip in replica.chips}
        if not running:
            for chip, size in fresh.items():
                sent.left[chip] += size
            continue
        at = min(range(len(running)), key=lambda i: (given[i] / len(running[i].chips), i))
        given[at] += sum(fresh.values())
        donor = {chip: held[chip] for chip in running[at].chips}
        for chip, size in fresh.items():
            if size:
                sent.add(donor, chip, size, wanted[chip], there.get(chip), each)
    return sent


def transfer_s(instance: Instance, sent: Sent) -> float | None:
    """Seconds of the transfers, all at once; ``None`` where some chip cannot be reached from its source."""
    cluster = instance.cluster
    busy: dict[tuple[str, str], float] = defaultdict(float)
    cut: dict[tuple[str, int], float] = defaultdict(float)
    for (source, chip), size in sent.between.items():
        rate = _s_per_byte(cluster, source, chip)
        if rate is None:
            return None
        busy["from", source] += size * rate
        busy["to", chip] += size * rate
        home, goal = cluster.chip(source).domain, cluster.chip(chip).domain
        if home != goal:
            cut["from domain", home] += size
            cut["to domain", goal] += size
            units = int(cluster.uplinks.unit_of[home]), int(cluster.uplinks.unit_of[goal])
            if units[0] != units[1]:
                cut["from unit", units[0]] += size
                cut["to unit", units[1]] += size
    for (side, place), size in cut.items():
        capacity = (cluster.uplinks.domain if "domain" in side else cluster.uplinks.unit)[place]
        if not capacity:
            return None
        busy[side, str(place)] = size / float(capacity)
    return max(busy.values(), default=0.0)


def _s_per_byte(cluster: Cluster, source: str, chip: str) -> float | None:
    """Seconds per byte from one chip to another with the links to themselves; ``None``: no route."""
    try:
        return cluster.rate("send", (source, chip)).s_per_byte
    except InstanceError:
        return None
