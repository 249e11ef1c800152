"""Real systems of 72 chips, and the steps between them: one property exchanged after another."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from topology import Chip, Cluster, load_chip, load_cluster
from topology.errors import InstanceError, Problem

#: fields of a chip that each step takes from the newer system; the last makes it that system
GAINS = {
    "network": "the larger domain with its links and NICs",
    "bandwidth": "the HBM's bytes per second",
    "capacity": "the HBM's bytes",
    "arithmetic": "FLOP/s, engine and price",
}
_FIELDS = {"bandwidth": ("hbm_bytes_per_s",), "capacity": ("hbm_bytes",)}
_LINKS = ("scale_up_bytes_per_s", "scale_up_links", "nic_bytes_per_s")
#: the systems in order: cluster and chip
_GENERATIONS = (("hgx-h200@9", "h200"), ("gb200-nvl72", "gb200"), ("vr-nvl72", "rubin"))


@dataclass(frozen=True)
class Step:
    """A system as it is, or on the way to the next: its cluster, its chip, and what came last."""

    cluster: str
    chip: Chip
    gain: str

    def build(self) -> Cluster:
        """The cluster with the chip of this step on every place."""
        return load_cluster(self.cluster, adjust=lambda _: self.chip)


def _steps() -> dict[str, Step]:
    first, name = _GENERATIONS[0]
    found = {first: Step(first, load_chip(name), "")}
    for (old, old_chip), (new, new_chip) in pairwise(_GENERATIONS):
        chip, target = load_chip(old_chip), load_chip(new_chip)
        chip = chip.model_copy(update={field: getattr(target, field) for field in _LINKS})
        label = f"{old} + network"
        found[label] = Step(new, chip, "network")
        for gain, fields in _FIELDS.items():
            chip = chip.model_copy(update={field: getattr(target, field) for field in fields})
            label += f" + {gain}"
            found[label] = Step(new, chip, gain)
        found[new] = Step(new, target, "arithmetic")
    return found


#: values of the axis, old to new
SYSTEMS = (
    "hgx-h200@9",
    "hgx-h200@9 + network",
    "hgx-h200@9 + network + bandwidth",
    "hgx-h200@9 + network + bandwidth + capacity",
    "gb200-nvl72",
    "gb200-nvl72 + network",
    "gb200-nvl72 + network + bandwidth",
    "gb200-nvl72 + network + bandwidth + capacity",
    "vr-nvl72",
)


def step_of(name: str) -> Step:
    """The step of a value of the axis. Raises ``InstanceError`` with what exists."""
    steps = _steps()
    if name not in steps:
        known = "; ".join(steps)
        raise InstanceError(Problem("system", f"unknown {name[:60]!r}; known: {known}"))
    return steps[name]
