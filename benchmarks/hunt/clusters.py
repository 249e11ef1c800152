"""A random cluster: one to three kinds of domains, uneven NICs, own prices, failures, taken chips.

A cluster is kept as plain data, one entry per domain, so that :mod:`benchmarks.hunt.variants` can alter it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import yaml

from topology.catalogue import catalogue_names, data_dir

Data = dict[str, Any]

#: chips of a domain; large ones are rare, for their questions take long
_SIZES = (1, 2, 2, 3, 4, 4, 4, 5, 6, 8, 8, 8, 16, 36, 72)
_TORI = (
    (1, 1), (1, 2), (2, 2), (1, 4), (2, 3), (2, 4), (4, 4), (2, 8), (3, 3), (4, 8), (2, 2, 1), (2, 2, 2),
    (2, 2, 4), (4, 4, 1), (1, 2, 4),
)  # fmt: skip
#: a domain of more chips stands alone, not beside others like it
_LARGE = 16


@dataclass
class DrawnCluster:
    """``domains``: fabric and chip rows of each; ``chips``: chip files of its own by name."""

    domains: list[Data]
    scale_out: Data | None
    failed: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    chips: dict[str, Data] = field(default_factory=dict)

    def copied(self) -> DrawnCluster:
        """A copy that may be altered."""
        return copy.deepcopy(self)

    def size(self, domain: int) -> int:
        """Chips of a domain."""
        return sum(row["count"] for row in self.domains[domain]["chips"])

    def own(self, chip: str) -> Data:
        """The file of a chip, as data of this cluster's own."""
        if chip not in self.chips:
            self.chips[chip] = copy.deepcopy(_shipped(chip))
        return self.chips[chip]

    def write(self, folder: Path) -> Path:
        """Write the cluster and its chips; the cluster's path."""
        folder.mkdir(parents=True, exist_ok=True)
        spec: Data = {"name": "drawn", "domains": copy.deepcopy(self.domains)}
        for name, data in self.chips.items():
            (folder / f"chip-{name}.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
        for domain in spec["domains"]:
            for row in domain["chips"]:
                if row["chip"] in self.chips:
                    row["chip"] = f"./chip-{row['chip']}.yaml"
        for key in ("scale_out", "failed", "taken"):
            if value := getattr(self, key):
                spec[key] = value
        path = folder / "cluster.yaml"
        path.write_text(yaml.safe_dump(spec, sort_keys=False))
        return path


def draw_cluster(draw: Random, needed_bytes: float) -> DrawnCluster:
    """A random cluster that often, not always, holds a model and a few caches of so many bytes."""
    cluster = DrawnCluster([], None)
    kinds = draw.choices((1, 2, 3), (6, 3, 1))[0]
    for _ in range(kinds):
        domain = _draw_domain(draw)
        large = sum(row["count"] for row in domain["chips"]) > _LARGE
        count = 1 if large else draw.choices((1, 2, 3, 4, 8), (8, 6, 3, 3, 1))[0]
        cluster.domains += [copy.deepcopy(domain) for _ in range(count)]
    if len(cluster.domains) > 1 or draw.random() < 0.7:
        cluster.scale_out = _draw_network(draw)
    if draw.random() < 0.5:
        _fit_hbm(draw, cluster, needed_bytes)
    if draw.random() < 0.6 and cluster.scale_out is not None:
        _draw_nics(draw, cluster)
    if draw.random() < 0.2:
        _draw_prices(draw, cluster)
    if draw.random() < 0.4:
        _draw_failures(draw, cluster)
    return cluster


@lru_cache(maxsize=64)
def _shipped(chip: str) -> Data:
    data: Data = yaml.safe_load((data_dir("chips") / f"{chip}.yaml").read_text())
    return data


@lru_cache(maxsize=1)
def _fabrics() -> tuple[Data, ...]:
    """The first domain of every shipped cluster."""
    return tuple(
        yaml.safe_load((data_dir("clusters") / f"{name}.yaml").read_text())["domains"][0]
        for name in catalogue_names("clusters", (".yaml",))
    )


def _draw_domain(draw: Random) -> Data:
    """A shipped domain in another size, at times with another chip or with two types of chips."""
    domain: Data = copy.deepcopy(draw.choice(_fabrics()))
    fabric, row = domain["fabric"], domain["chips"][0]
    most = row["count"]
    if fabric["kind"] == "torus":
        shape = draw.choice([s for s in _TORI if len(s) == len(fabric["shape"])])
        fabric["shape"] = list(shape)
        row["count"] = 1
        for side in shape:
            row["count"] *= side
    elif fabric["kind"] == "two-layer":
        fabric["chips_per_group"] = draw.choice((2, 4))
        row["count"] = fabric["chips_per_group"] * draw.choice((1, 2, 3))
    else:
        row["count"] = min(most, draw.choice(_SIZES))
        if fabric["kind"] == "nvswitch" and draw.random() < 0.15:
            row["chip"] = draw.choice(catalogue_names("chips", (".yaml",)))
    if draw.random() < 0.12 and row["count"] > 1 and fabric["kind"] != "torus":
        other = draw.choice(catalogue_names("chips", (".yaml",)))
        _split(domain, draw.randrange(1, row["count"]), {"chip": other})
    return domain


def _split(domain: Data, at: int, changed: Data) -> None:
    """Cut the last row of a domain in two; the second part is changed."""
    last = domain["chips"][-1]
    rest = last["count"] - at
    if at < 1 or rest < 1:
        last.update(changed)
        return
    last["count"] = at
    domain["chips"].append({**last, **changed, "count": rest})


def _draw_network(draw: Random) -> Data:
    kind = draw.choice(("leaf-spine", "leaf-spine", "rail-optimised", "datacentre"))
    network: Data = {"kind": kind}
    if draw.random() < 0.3:
        network["oversubscription"] = draw.choice((2.0, 4.0, 8.0))
    if draw.random() < 0.3:
        network["domains_per_unit"] = draw.choice((1, 2, 3, 32))
    if draw.random() < 0.2:
        network["spines"] = draw.choice((1, 2, 4))
    if draw.random() < 0.2:
        network["rails"] = draw.choice((1, 2, 4))
    return network


def _fit_hbm(draw: Random, cluster: DrawnCluster, needed_bytes: float) -> None:
    """Less memory on the chips, so that the model takes a few of them, or several domains."""
    total = sum(cluster.size(index) for index in range(len(cluster.domains)))
    chips = min(0.4 * 40 ** draw.random(), max(0.6, 0.8 * total))
    room = float(round(1.3 * needed_bytes / chips + 6e9))
    for name in sorted({row["chip"] for domain in cluster.domains for row in domain["chips"]}):
        cluster.own(name)["hbm_bytes"] = room * draw.choice((1.0, 1.0, 1.5))


def nic_rates(draw: Random) -> float:
    """Bytes/s of a NIC from 50 MB/s to 50 GB/s."""
    return float(f"{5e7 * 1000 ** draw.random():.3g}")


def _draw_nics(draw: Random, cluster: DrawnCluster) -> None:
    """One slow rate everywhere, one per domain, or unlike NICs in a domain."""
    how = draw.choice(("one", "one", "domain", "chip"))
    rate = nic_rates(draw)
    for domain in cluster.domains:
        if how != "one":
            rate = nic_rates(draw)
        for row in domain["chips"]:
            row["nic_bytes_per_s"] = rate
        if how == "chip" and domain["chips"][-1]["count"] > 1 and draw.random() < 0.7:
            last = domain["chips"][-1]["count"]
            _split(domain, draw.randrange(1, last), {"nic_bytes_per_s": nic_rates(draw)})


def _draw_prices(draw: Random, cluster: DrawnCluster) -> None:
    """Prices by row, at times two for one chip in a domain."""
    for domain in cluster.domains:
        if draw.random() < 0.6:
            domain["chips"][-1]["usd_per_hour"] = round(draw.uniform(0.2, 8.0), 2)
        last = domain["chips"][-1]["count"]
        if last > 1 and draw.random() < 0.3:
            price = round(draw.uniform(0.2, 8.0), 2)
            _split(domain, draw.randrange(1, last), {"usd_per_hour": price})


def _draw_failures(draw: Random, cluster: DrawnCluster) -> None:
    """One to three broken or taken things, of every kind that has a name."""
    number = len(cluster.domains)
    for _ in range(draw.choice((1, 1, 2, 3))):
        domain = draw.randrange(number)
        # rows of several domains count each of them
        name = f"r{sum(int(row.get('count', 1)) for row in cluster.domains[:domain])}"
        chip = f"{name}g{draw.randrange(cluster.size(domain))}"
        kind = draw.choice(("chip", "chip", "taken", "nic", "switch", "leaf", "spine", "domain"))
        fabric = cluster.domains[domain]["fabric"]
        if kind == "chip":
            cluster.failed.append(chip)
        elif kind == "taken":
            cluster.taken.append(chip)
        elif kind == "nic" and cluster.scale_out is not None:
            cluster.failed.append(f"{chip}.nic")
        elif kind == "switch" and fabric["kind"] == "nvswitch":
            switches = len(fabric["links_per_switch"])
            cluster.failed.append(f"{name}sw{draw.randrange(switches)}")
        elif kind in ("leaf", "spine") and cluster.scale_out is not None:
            cluster.failed.append(f"{kind}0")
        elif kind == "domain" and number > 1:
            cluster.failed.append(name)
