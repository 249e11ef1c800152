"""A cluster: placed chips in domains, joined by a scale-out, with what transfers cost on it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any

import networkx as nx

from topology.chip import Basis
from topology.collectives.compose import Part, cost_of
from topology.collectives.demand import Dispatched, check_kind
from topology.collectives.loads import collective_loads
from topology.collectives.measured import measured_rate
from topology.collectives.transfers import Transfers, sent
from topology.describe import build_graph, describe, digest
from topology.domain import Domain, PlacedChip
from topology.errors import InstanceError, Problem
from topology.links.fits import PROFILES
from topology.rate import Rate
from topology.routing.spread import Edge
from topology.scaleout.base import Network
from topology.scaleout.uplinks import Uplinks, uplinks

#: Rates kept before the memory of a long search is emptied.
MAX_KNOWN_RATES = 100_000


class Cluster:
    """Domains joined by a network; made by :func:`topology.load.load_cluster`.

    All answers depend on the description alone and are cached. ``describe()`` says what it is,
    ``provenance`` whether its wiring is published, derived or assumed.
    """

    def __init__(
        self,
        name: str,
        domains: Sequence[Domain],
        network: Network | None,
        *,
        title: str = "",
        sources: Sequence[str] = (),
        notes: Sequence[str] = (),
        provenance: Mapping[str, Basis] | None = None,
    ):
        self.name = name
        self.title = title
        self.sources = tuple(sources)
        self.notes = tuple(notes)
        self.provenance: dict[str, Basis] = dict(provenance or {})
        self.domains = tuple(domains)
        self.network = network
        self.profile = "physics"
        self.granularities: tuple[str, ...] = ()  # ways in which its chips can be taken, by name
        self.chips: tuple[PlacedChip, ...] = tuple(
            chip for domain in self.domains for chip in domain.chips
        )
        self._by_id = {chip.id: chip for chip in self.chips}
        self._rates: dict[Hashable, Rate] = {}
        self._picks: dict[tuple[int, int], tuple[int, ...]] = {}
        self._alike: dict[Hashable, list[int]] = {}
        for domain in self.domains:
            self._alike.setdefault(domain.signature, []).append(domain.index)
        self._first_alike = {index: alike[0] for alike in self._alike.values() for index in alike}

    def __repr__(self) -> str:
        return f"Cluster({self.name!r}: {len(self.domains)} domains, {len(self.chips)} chips)"

    def chip(self, chip_id: str) -> PlacedChip:
        """The placed chip of an id. Raises ``InstanceError`` for an unknown one."""
        try:
            return self._by_id[chip_id]
        except KeyError:
            last = self.chips[-1].id
            message = f"no such chip; {self.name} has r0g0 to {last}"
            raise InstanceError(Problem(str(chip_id)[:80], message)) from None

    def __contains__(self, chip_id: str) -> bool:
        """Whether there is a chip of this id, working or not."""
        return chip_id in self._by_id

    @cached_property
    def usable(self) -> tuple[PlacedChip, ...]:
        """Every chip that a layout may use, in order."""
        return tuple(chip for chip in self.chips if chip.usable)

    @cached_property
    def usable_ids(self) -> frozenset[str]:
        """Ids of the chips that a layout may use."""
        return frozenset(placed.id for domain in self.domains for placed in domain.usable)

    @cached_property
    def sold(self) -> bool:
        """Whether there are usable chips that a replica may take, as the domains are sold."""
        return any(domain.sold for domain in self.domains)

    @cached_property
    def uplinks(self) -> Uplinks:
        """What can leave each domain and each unit of domains."""
        return uplinks(self.domains, self.network)

    @cached_property
    def chip_names(self) -> tuple[str, ...]:
        """Names of the types of chip, in order of first place."""
        return tuple(dict.fromkeys(placed.chip.name for placed in self.chips))

    def alike(self, domain_index: int) -> tuple[int, ...]:
        """Indices of the domains interchangeable with this one, itself included."""
        return tuple(self._alike[self.domains[domain_index].signature])

    def first_alike(self, domain_index: int) -> int:
        """The first domain interchangeable with this one: equal numbers, interchangeable domains."""
        return self._first_alike[domain_index]

    @cached_property
    def graph(self) -> nx.DiGraph[str]:
        """Chips, switches, NICs, leaves and spines that work, as a directed graph.

        Nodes have ``kind``, chips also ``wires`` (physical links of the scale-up); edges have
        ``bytes_per_s`` per direction, ``latency_s`` and ``links``.
        """
        return build_graph(self.name, self.domains, self.network)

    def rate(
        self,
        kind: str,
        chip_ids: Sequence[str],
        *,
        top_k: int | None = None,
        one_copy_per_domain: bool = True,
        max_domains: int | None = None,
    ) -> Rate:
        """What a collective costs between these chips, at the links' full speed.

        ``kind`` and its byte convention are those of :mod:`topology.collectives.demand`; for
        ``send`` the ids are (source, target), for ``broadcast`` the first is the root.
        ``max_domains`` bounds the domains that a token of ``dispatch`` reaches. Raises
        ``InstanceError`` for unknown or unusable chips and where no route exists.
        """
        ids = tuple(chip_ids)
        dispatched = Dispatched(top_k, one_copy_per_domain, max_domains)
        return self._rate(kind, ids, lambda: self._parts(ids), dispatched)

    def rate_for(
        self,
        kind: str,
        domain_index: int,
        chips_per_domain: int,
        num_domains: int = 1,
        *,
        top_k: int | None = None,
        one_copy_per_domain: bool = True,
        max_domains: int | None = None,
    ) -> Rate:
        """As :meth:`rate` for ``chips_per_domain`` chips in each of ``num_domains`` like this one."""
        chosen = (domain_index, chips_per_domain, num_domains)
        dispatched = Dispatched(top_k, one_copy_per_domain, max_domains)
        return self._rate(kind, chosen, lambda: self._representative(*chosen), dispatched)

    def _chosen(self, index: int, count: int) -> tuple[int, ...]:
        key = (index, count)
        if key not in self._picks:
            chips = self.domains[index].pick(count)
            self._picks[key] = tuple(chip.position for chip in chips)
        return self._picks[key]

    def _representative(self, index: int, count: int, num_domains: int) -> list[Part]:
        alike = self.alike(index)
        if not 0 < num_domains <= len(alike):
            raise InstanceError(
                Problem(
                    self.domains[index].name,
                    f"{num_domains} domains asked for, {len(alike)} are like this one",
                )
            )
        start = alike.index(index)
        chosen = sorted((alike[start:] + alike[:start])[:num_domains])
        home = self.domains[index]
        members = self._chosen(index, count)
        parts: list[Part] = []
        for other in chosen:
            domain = self.domains[other]
            whole = domain.fabric is home.fabric and len(domain.usable) == len(domain.chips)
            own = members if whole else self._chosen(other, count)
            parts.append((other, domain.fabric, own))
        return parts

    def loads(
        self,
        kind: str,
        chip_ids: Sequence[str],
        *,
        top_k: int | None = None,
        one_copy_per_domain: bool = True,
        max_domains: int | None = None,
    ) -> dict[Edge, float]:
        """Bytes on every directed link of :attr:`graph` per byte of the collective's argument.

        Walks the routes, so that it costs more than :meth:`rate`, which it agrees with.
        """
        check_kind(kind, len(chip_ids))
        dispatched = Dispatched(top_k, one_copy_per_domain, max_domains)
        return collective_loads(kind, self._parts(tuple(chip_ids)), self.network, dispatched)

    def transfers(self, messages: Iterable[tuple[str, str, float]]) -> Transfers:
        """Many messages (source, target, bytes) at once: load of each link and the time it sets.

        Messages inside a domain take its own routes; others split over shortest paths of the
        whole graph in proportion to their width, through a neighbour's NIC where the own one
        failed or the target's rail is reached as quickly.
        """
        return sent(
            self.graph, self.domains, [(self.chip(a), self.chip(b), n) for a, b, n in messages]
        )

    def _parts(self, ids: tuple[str, ...]) -> list[Part]:
        if not ids or len(set(ids)) != len(ids):
            raise InstanceError(Problem("chips", "name each chip once, and at least one"))
        grouped: dict[int, list[int]] = {}
        for chip_id in ids:
            placed = self.chip(chip_id)
            if not placed.healthy:
                raise InstanceError(Problem(chip_id, "the chip has failed or has no working link"))
            grouped.setdefault(placed.domain, []).append(placed.position)
        return [
            (index, self.domains[index].fabric, tuple(positions))
            for index, positions in grouped.items()
        ]

    def _rate(
        self,
        kind: str,
        chosen: Hashable,
        parts_of: Callable[[], list[Part]],
        dispatched: Dispatched,
    ) -> Rate:
        """The rate of a collective on the chips ``chosen``, worked out once."""
        key = (kind, chosen, *dispatched)
        if key in self._rates:
            return self._rates[key]
        if len(self._rates) >= MAX_KNOWN_RATES:
            self._rates.clear()
        parts = parts_of()
        check_kind(kind, sum(len(group) for _, _, group in parts))
        cost = cost_of(kind, parts, self.network, dispatched)
        measured = self.profile != "physics"
        found = measured_rate(cost, kind, parts) if measured else cost.rate()
        return self._rates.setdefault(key, found)

    def with_profile(self, profile: str) -> Cluster:
        """The same cluster whose rates are ``"physics"`` or ``"calibrated"`` (as measured).

        A collective that was never measured on a chip or one like it stays at physics;
        :func:`topology.links.fits.load_link_fits` says what there is. Raises ``InstanceError``.
        """
        if profile not in PROFILES:
            message = f"unknown profile {profile!r}; known: {', '.join(PROFILES)}"
            raise InstanceError(Problem("profile", message))
        if profile == self.profile:
            return self
        twin = copy(self)
        twin.profile = profile
        twin._rates = {}
        twin.__dict__.pop("in_one_unit", None)
        return twin

    @cached_property
    def in_one_unit(self) -> Cluster:
        """The same domains under the same leaves, for bounds: see :meth:`Network.in_one_unit`."""
        twin = copy(self)
        twin.network = self.network.in_one_unit() if self.network is not None else None
        twin._rates = {}
        return twin

    def pick(self, count: int) -> tuple[PlacedChip, ...]:
        """``count`` usable chips that belong together: one domain if it fits, else whole ones."""
        if not 0 < count <= len(self.usable):
            raise InstanceError(
                Problem("chips", f"{count} asked for, {self.name} has {len(self.usable)} usable")
            )
        for domain in self.domains:
            if len(domain.usable) >= count:
                return domain.pick(count)
        chosen: list[PlacedChip] = []
        for domain in self.domains:
            rest = min(count - len(chosen), len(domain.usable))
            chosen += domain.pick(rest) if rest else ()
        return tuple(chosen)

    def describe(self) -> dict[str, Any]:
        """What the cluster is, as plain data: domains by kind, chips, failures, scale-out."""
        return describe(self.name, self.title, self.sources, self.domains, self.network)

    @cached_property
    def digest(self) -> str:
        """Hash of everything that changes an answer at full link speed: chips, links, health."""
        return digest(self.domains, self.network)
