"""What the catalogue knows of a chip's usual domain: fabric, word for hosts, scale-out."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from topology import load_chip
from topology.catalogue import catalogue_names, data_dir, is_file
from topology.chip import Chip
from topology.names import shown
from topology.spec import read_cluster_spec


@dataclass(frozen=True)
class Typical:
    """The chip, its usual fabric and scale-out, chips of its domain; ``cluster`` names the catalogue's entry."""

    name: str
    chip: Chip
    cluster: str | None
    fabric: dict[str, Any]
    rack: str
    domain_chips: int
    scale_out: dict[str, Any] = field(default_factory=lambda: {"kind": "leaf-spine"})

    @property
    def spans_hosts(self) -> bool:
        """Whether its scale-up domain holds several hosts."""
        return self.domain_chips > self.chip.chips_per_host


@lru_cache(maxsize=64)
def typical(chip_name: str) -> Typical:
    """The smallest cluster of the catalogue with that chip; for a chip in none, one switch (PCIe) per host."""
    chip = load_chip(chip_name)
    known = chip.name if is_file(data_dir("chips") / f"{chip.name}.yaml") else ""
    entries = []
    for name in catalogue_names("clusters", (".yaml",)):
        spec, _ = read_cluster_spec(name)
        rows = spec.domains[0].chips
        if len(rows) == 1 and rows[0].chip == known and "parametric" not in spec.title.lower():
            entries.append((rows[0].count, name, spec))
    if not entries:
        fabric = {"kind": "nvswitch", "links_per_switch": [1], "in_network_reduction": False}
        return Typical(chip_name, chip, None, fabric, "node", chip.chips_per_host)
    count, name, spec = min(entries, key=lambda entry: entry[:2])
    domain = spec.domains[0]
    return Typical(
        chip_name,
        chip,
        shown(name),
        dict(domain.fabric),
        domain.rack or "node",
        count,
        dict(spec.scale_out or {"kind": "leaf-spine"}),
    )
