"""NICs, leaves and spines between domains, and the load that collectives put on them.

Domains are grouped into *units* that share leaves; a chip at position *p* of its domain hangs on
leaf *p mod rails* of its unit, and every leaf has a link to every spine. A rail-optimised fabric
has several rails, a plain one a single (logical) leaf per unit. Knows nothing of the scale-up.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from topology.catalogue import checked
from topology.errors import InstanceError, NoRoute, Problem
from topology.fabric import Link
from topology.quantity import Seconds


class NetworkSpec(BaseModel):
    """Options of a scale-out network.

    ``oversubscription`` is NIC bandwidth into a leaf over its bandwidth to the spines. ``relayed`` says that traffic to
    another rail first crosses the scale-up to the chip on that rail, as NCCL does on rail-optimised fabrics.
    ``floor_s`` is the time of the smallest transfer between two domains, ``hop_s`` the wire and port time of one link.
    A sum over domains, for which engines call a library, takes ``reduce_start_s`` beside its steps of ``reduce_step_s``.

    *Sources:* the start as NCCL models its own trees (github.com/NVIDIA/nccl, src/graph/tuning.cc); the step as transfers
    between nodes of H100 were measured beyond those in a node (``scale_out`` in ``instances/links/h100.json``).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    domains_per_unit: int = Field(default=1, ge=1)
    rails: int = Field(default=1, ge=1, le=4096)
    spines: int = Field(default=16, ge=1, le=4096)
    oversubscription: float = Field(default=1.0, ge=0.01, le=10_000)
    relayed: bool = False
    hop_s: Seconds = 0.5e-6
    floor_s: Seconds = 5e-6
    reduce_start_s: Seconds = 6.8e-6
    reduce_step_s: Seconds = 14e-6


_KINDS: dict[str, type[NetworkSpec]] = {}
_Spec = TypeVar("_Spec", bound=NetworkSpec)


def network_kind(spec: type[_Spec]) -> type[_Spec]:
    """Register an options model under its ``kind``."""
    kind = spec.model_fields["kind"].default
    if kind in _KINDS:
        raise ValueError(f"two scale-out networks are called {kind!r}")
    _KINDS[kind] = spec
    return spec


@lru_cache(maxsize=1)
def network_kinds() -> dict[str, type[NetworkSpec]]:
    """Every kind of scale-out network, found by scanning this folder."""
    import topology.scaleout as folder

    for module in sorted(pkgutil.iter_modules(folder.__path__), key=lambda found: found.name):
        importlib.import_module(f"{folder.__name__}.{module.name}")
    return _KINDS


def read_network(data: Any, place: str) -> NetworkSpec:
    """Validate the ``scale_out`` entry of a cluster file. Raises ``InstanceError``."""
    kind = data.get("kind") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in network_kinds():
        known = ", ".join(sorted(network_kinds()))
        raise InstanceError(Problem(f"{place}.kind", f"unknown network {kind!r}; known: {known}"))
    with checked(place):
        return (network_kinds()[kind]).model_validate(data)


def network_node_kind(name: str) -> str:
    """``nic``, ``leaf`` or ``spine`` by the name of a node."""
    return "nic" if name.endswith(".nic") else name.rstrip("0123456789")


@dataclass(frozen=True, slots=True)
class Flow:
    """What each member of one domain moves per byte of the collective's argument.

    ``cross`` leaves (or enters, the larger) the domain through the member's NIC, ``far`` of it
    leaves the unit through the leaf's links to the spines. ``repeats`` is how many domains with
    the same members and NICs the flow stands for.
    """

    domain: int
    members: tuple[int, ...]
    cross: float
    far: float
    repeats: int = 1


class Network:
    """The scale-out of one cluster: NIC rates by domain and position, leaves, spines, failures.

    ``nics[d][p]`` is bytes/s per direction. ``failed`` holds names of NICs (``r0g3.nic``),
    leaves, spines and links between these (``leaf0--spine2``).
    """

    def __init__(
        self,
        spec: NetworkSpec,
        chip_ids: Sequence[Sequence[str]],
        nics: Sequence[Sequence[float]],
        failed: frozenset[str] = frozenset(),
    ):
        self.spec = spec
        self._ids = chip_ids
        self._given = nics
        self._units = -(-len(chip_ids) // spec.domains_per_unit)
        self._spines = [f"spine{index}" for index in range(spec.spines)]
        self.failed = failed
        down = [0.0] * (self._units * spec.rails)
        for domain, rates in enumerate(nics):
            for position, rate in enumerate(rates):
                down[self._leaf(domain, position)] += rate
        self._wire = [total / spec.oversubscription / spec.spines for total in down]
        self._up = [
            wire * sum(self._joined(leaf, spine) for spine in self._spines)
            for leaf, wire in enumerate(self._wire)
        ]
        self._nics = [
            [self._rate(domain, position, rate) for position, rate in enumerate(rates)]
            for domain, rates in enumerate(nics)
        ]
        classes: dict[tuple[float, ...], int] = {}
        self._class = [classes.setdefault(tuple(rates), len(classes)) for rates in self._nics]
        self._groups: dict[
            tuple[int, tuple[int, ...]], tuple[int, int, tuple[tuple[int, int], ...]]
        ] = {}

        wide: dict[tuple[float, ...], int] = {}
        rails = spec.rails
        self._seams = [
            self.unit(domain)
            if spec.domains_per_unit > 1
            else wide.setdefault(tuple(self._up[domain * rails : (domain + 1) * rails]), len(wide))
            for domain in range(len(nics))
        ]

    def in_one_unit(self) -> Network:
        """The same NICs under the same leaves: no group of chips is joined less well than here."""
        spec = self.spec.model_copy(update={"domains_per_unit": max(1, len(self._ids))})
        broken = frozenset(name for name in self.failed if ".nic" in name)
        return Network(spec, self._ids, self._given, broken)

    def nic_class(self, domain: int) -> int:
        """Equal for domains whose working NICs are alike, position by position."""
        return self._class[domain]

    def seam(self, domain: int) -> int:
        """Equal for domains that collectives need not tell apart: of one unit, or each its own."""
        return self._seams[domain]

    def unit(self, domain: int) -> int:
        """The unit (group of domains under the same leaves) of a domain."""
        return domain // self.spec.domains_per_unit

    def unit_bytes_per_s(self, unit: int) -> float:
        """Bytes/s per direction of all working links between a unit's leaves and the spines."""
        rails = self.spec.rails
        return sum(self._up[unit * rails : (unit + 1) * rails])

    def leaf_bytes_per_s(self, unit: int, rail: int) -> float:
        """Bytes/s per direction of the working links between one leaf of a unit and the spines."""
        return self._up[unit * self.spec.rails + rail]

    def same_rail(self, position: int, other: int) -> bool:
        """Whether chips at these positions of two domains of a unit share a leaf."""
        return position % self.spec.rails == other % self.spec.rails

    def nic_bytes_per_s(self, domain: int, position: int) -> float:
        """Bytes/s per direction of one chip's NIC, 0 if it or its leaf failed."""
        return self._nics[domain][position]

    def nic_profile(self, domain: int) -> tuple[float, ...]:
        """Rates of all NICs of a domain by position."""
        return tuple(self._nics[domain])

    def path_latency_s(self, across_units: bool) -> float:
        """Seconds on the wire between two chips: 4 links through one leaf, 6 through a spine."""
        return (6 if across_units else 4) * self.spec.hop_s

    def node_names(self) -> list[str]:
        """NICs, leaves and spines that exist, working or not."""
        nics = [f"{name}.nic" for ids in self._ids for name in ids]
        return [*nics, *(f"leaf{index}" for index in range(len(self._wire))), *self._spines]

    def links(self) -> Iterator[Link]:
        """Every working link: chip to NIC, NIC to leaf, leaf to spine."""
        hop = self.spec.hop_s
        for domain, ids in enumerate(self._ids):
            for position, name in enumerate(ids):
                rate = self._nics[domain][position]
                if rate > 0:
                    yield Link(name, f"{name}.nic", rate, hop)
                    yield Link(f"{name}.nic", f"leaf{self._leaf(domain, position)}", rate, hop)
        for leaf, wire in enumerate(self._wire):
            for spine in self._spines:
                if wire > 0 and self._joined(leaf, spine):
                    yield Link(f"leaf{leaf}", spine, wire, hop)

    def carry(self, flows: Sequence[Flow]) -> tuple[float, str]:
        """Seconds per byte of the most loaded NIC or leaf uplink, and its name.

        Members whose NIC failed hand their traffic to the others of the same domain, evenly.
        Raises ``NoRoute`` when a domain that must send has no NIC left.
        """
        worst, name = 0.0, "none"
        leaves: dict[int, float] = {}
        for flow in flows:
            if flow.cross <= 0:
                continue
            alive, slow, rails = self._attached(flow.domain, flow.members)
            if not alive:
                place = self._ids[flow.domain][flow.members[0]]
                raise NoRoute(Problem(place, "no working NIC to leave the domain"))
            share = len(flow.members) / alive
            time = flow.cross * share / self._nics[flow.domain][slow]
            if time > worst:
                worst, name = time, f"{self._ids[flow.domain][slow]}.nic"
            if flow.far > 0:
                first = self.unit(flow.domain) * self.spec.rails
                together = flow.repeats if self.spec.domains_per_unit > 1 else 1
                load = flow.far * share * together
                for rail, count in rails:
                    leaves[first + rail] = leaves.get(first + rail, 0.0) + load * count
        for leaf, load in leaves.items():
            if self._up[leaf] <= 0:
                raise NoRoute(Problem(f"leaf{leaf}", "no working link to a spine"))
            if load / self._up[leaf] > worst:
                worst, name = load / self._up[leaf], f"leaf{leaf}--spine"
        return worst, name

    def _attached(
        self, domain: int, members: tuple[int, ...]
    ) -> tuple[int, int, tuple[tuple[int, int], ...]]:
        """How many members have a working NIC, the slowest of them, and how many per rail."""
        key = (self.nic_class(domain), members)
        if key not in self._groups:
            rates = self._nics[domain]
            alive = [position for position in members if rates[position] > 0]
            rails: dict[int, int] = {}
            for position in alive:
                rail = position % self.spec.rails
                rails[rail] = rails.get(rail, 0) + 1
            slow = min(alive, key=rates.__getitem__, default=-1)
            self._groups[key] = (len(alive), slow, tuple(rails.items()))
        return self._groups[key]

    def loads(self, flows: Sequence[Flow]) -> dict[tuple[str, str], float]:
        """Load of every link outside the domains, both directions alike, as in :meth:`carry`."""
        loads: dict[tuple[str, str], float] = {}

        def add(a: str, b: str, amount: float) -> None:
            if amount > 0:
                loads[a, b] = loads.get((a, b), 0.0) + amount
                loads[b, a] = loads.get((b, a), 0.0) + amount

        for flow in flows:
            rates = self._nics[flow.domain]
            alive = [position for position in flow.members if rates[position] > 0]
            for position in alive:
                share = len(flow.members) / len(alive)
                name = self._ids[flow.domain][position]
                leaf = f"leaf{self._leaf(flow.domain, position)}"
                add(name, f"{name}.nic", flow.cross * share)
                add(f"{name}.nic", leaf, flow.cross * share)
                up = [spine for spine in self._spines if self._joined_name(leaf, spine)]
                for spine in up:
                    add(leaf, spine, flow.far * share / len(up))
        return loads

    def _joined_name(self, leaf: str, spine: str) -> bool:
        return not {leaf, spine, f"{leaf}--{spine}"} & self.failed

    def _leaf(self, domain: int, position: int) -> int:
        return self.unit(domain) * self.spec.rails + position % self.spec.rails

    def _joined(self, leaf: int, spine: str) -> bool:
        return self._joined_name(f"leaf{leaf}", spine)

    def _rate(self, domain: int, position: int, rate: float) -> float:
        name = f"{self._ids[domain][position]}.nic"
        leaf = f"leaf{self._leaf(domain, position)}"
        plug = f"{self._ids[domain][position]}--{name}"
        broken = {name, leaf, f"{name}--{leaf}", plug} & self.failed
        return 0.0 if broken else rate
