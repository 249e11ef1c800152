"""Reads a cluster by name, by name and count, by family and size, or from a file."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

from topology.builders.base import build, read_spec
from topology.catalogue import catalogue_names
from topology.chip import Chip, load_chip
from topology.cluster import Cluster
from topology.domain import Row, make_domain
from topology.errors import InstanceError, Problem, told
from topology.fabric import Fabric
from topology.failures import matching, split, taken_chips
from topology.names import shown
from topology.scaleout.base import Network, NetworkSpec, read_network
from topology.spec import MAX_CHIPS, ChipCount, ClusterSpec, read_cluster_spec


def load_cluster(
    name_or_path: str | Path,
    *,
    count: int | None = None,
    failed: Sequence[str] = (),
    taken: Sequence[str] = (),
    adjust: Callable[[Chip], Chip] | None = None,
    change: Callable[[ClusterSpec], ClusterSpec] | None = None,
    granularity: str | None = None,
) -> Cluster:
    """The cluster of a name or a YAML file.

    ``"gb200-nvl72"`` is one rack, ``"gb200-nvl72@4"`` (or ``count=4``) four joined by its
    scale-out, ``"nvl-36"`` and ``"tpu-v5p-4x4x8"`` members of a family, anything with ``/`` or
    ``.yaml`` a file. ``failed`` breaks more of it, in the names of :mod:`topology.failures`, ``taken`` gives chips
    to others. ``adjust`` changes every chip before the links are built, ``change`` the file, for what-if questions.
    ``granularity`` names one of the ways in which the file says that chips are sold, or ``chip`` for any chips.
    Raises ``InstanceError`` with every problem found, or with what exists.
    """
    text, times = str(name_or_path), count
    if "@" in text:
        text, _, number = text.rpartition("@")
        if not number.isdecimal() or not 0 < int(number[:9]) <= 10_000:
            raise InstanceError(
                Problem(
                    str(name_or_path)[:80],
                    f"the count after @ must be a whole number from 1 to 10000, got {shown(number, 40)}",
                )
            )
        times = int(number)
    if times is not None and not 0 < times <= 10_000:
        raise InstanceError(Problem("count", f"must be 1 to 10000, got {times}"))
    spec, place = read_cluster_spec(text)
    if failed:
        spec = spec.model_copy(update={"failed": (*spec.failed, *failed)})
    if taken:
        spec = spec.model_copy(update={"taken": (*spec.taken, *taken)})
    if change is not None:
        spec = change(spec)
    if granularity is not None:
        spec = spec.model_copy(update={"sold_as": granularity})
    label = text if times is None else f"{text}@{times}"
    if "/" in text or text.endswith(".yaml"):
        label = spec.name if times is None else f"{spec.name}@{times}"
    return build_cluster(spec, label, times or 1, place, adjust)


def cluster_names() -> list[str]:
    """Sorted names of the shipped clusters and families (``nvl-N``, ``tpu-v5p-AxBxC``)."""
    return catalogue_names("clusters", (".yaml",))


def build_cluster(
    spec: ClusterSpec,
    name: str,
    times: int = 1,
    place: str = "cluster",
    adjust: Callable[[Chip], Chip] | None = None,
) -> Cluster:
    """The cluster that a specification describes, its domains repeated ``times`` over."""
    problems: list[Problem] = []
    fabrics: list[Row] = []
    problems += _not_sold(spec)
    for index, domain in enumerate(spec.domains):
        where = f"{place}: domains[{index}]"
        try:
            options = read_spec(domain.fabric, f"{where}.fabric")
            chips, nics = _chips_of(domain.chips, adjust, where)
        except InstanceError as error:
            problems += error.problems
            continue
        sold = None if spec.sold_as is None else domain.granularity.get(spec.sold_as)
        fabrics += [Row(options, chips, nics, domain.rack or "rack", sold)] * domain.count
    problems += _namesakes([row.chips for row in fabrics], place)
    network_spec: NetworkSpec | None = None
    if spec.scale_out is not None:
        try:
            network_spec = read_network(spec.scale_out, f"{place}: scale_out")
        except InstanceError as error:
            problems += error.problems
    if problems:
        raise InstanceError(problems)
    fabrics = fabrics * times
    total = sum(len(row.chips) for row in fabrics)
    if total > MAX_CHIPS:
        raise InstanceError(Problem(place, f"{total} chips; at most {MAX_CHIPS} are built"))
    cluster = _assemble(spec, name, fabrics, network_spec, place)
    cluster.granularities = _ways(spec)
    return cluster


def _ways(spec: ClusterSpec) -> tuple[str, ...]:
    """Names of the ways in which its domains are sold."""
    return tuple(sorted({name for domain in spec.domains for name in domain.granularity}))


def _not_sold(spec: ClusterSpec) -> list[Problem]:
    """That no domain is sold in the way asked for."""
    names = _ways(spec)
    if spec.sold_as in (None, "chip", *names):
        return []
    known = ", ".join([*names, "chip (any chips)"])
    message = f"{spec.name} is not sold by {shown(str(spec.sold_as), 40)}; known: {known}"
    return [Problem("granularity", message)]


def _chips_of(
    rows: tuple[ChipCount, ...], adjust: Callable[[Chip], Chip] | None, place: str
) -> tuple[tuple[Chip, ...], tuple[float, ...]]:
    chips: list[Chip] = []
    nics: list[float] = []
    for number, row in enumerate(rows):
        try:
            chip = load_chip(row.chip)
        except InstanceError as error:
            where = f"{place}.chips[{number}]"
            raise InstanceError(
                [Problem(f"{where}: {one.place}", one.message) for one in error.problems]
            ) from None
        if row.usd_per_hour is not None:
            chip = chip.priced(row.usd_per_hour, "as the cluster file says")
        nic = row.nic_bytes_per_s or chip.nic_bytes_per_s
        if adjust is not None:
            chip = adjust(chip.model_copy(update={"nic_bytes_per_s": nic}))
            nic = chip.nic_bytes_per_s
        chips += [chip] * row.count
        nics += [nic] * row.count
    return tuple(chips), tuple(nics)


def _namesakes(domains: Sequence[tuple[Chip, ...]], place: str) -> list[Problem]:
    """Names that two chips share which differ in more than price and NIC."""
    first: dict[str, Chip] = {}
    wrong: set[str] = set()
    for chip in {id(chip): chip for chips in domains for chip in chips}.values():
        bare = chip.priced(0.0, "").model_copy(update={"nic_bytes_per_s": 0.0})
        if first.setdefault(chip.name, bare) != bare:
            wrong.add(chip.name)
    return [
        Problem(
            f"{place}: domains",
            f"two different chips are called {name!r}; give each chip file a name of its own",
        )
        for name in sorted(wrong)
    ]


def _assemble(
    spec: ClusterSpec,
    name: str,
    fabrics: list[Row],
    network_spec: NetworkSpec | None,
    place: str,
) -> Cluster:
    ids = [[f"r{d}g{p}" for p in range(len(chips))] for d, (_, chips, *_) in enumerate(fabrics)]
    broken: list[list[str]] = [[] for _ in fabrics]
    outside: list[str] = []
    unmatched: list[str] = []
    if spec.failed:
        broken, outside, unmatched = split(spec.failed, len(fabrics))
    built: dict[Any, Fabric] = {}
    made: list[Fabric] = []
    for domain, (options, chips, *_) in enumerate(fabrics):
        key = (options, chips, tuple(broken[domain]))
        if key not in built:
            plain = build(options, chips)
            names = _names(plain)
            hit = {pattern: matching(pattern, names) for pattern in broken[domain]}
            unmatched += [f"r{domain}{pattern}" for pattern, found in hit.items() if not found]
            failed = frozenset(name for found in hit.values() for name in found)
            built[key] = build(options, chips, failed) if failed else plain
        made.append(built[key])
    network = None
    if network_spec is not None:
        nics = [row.nics for row in fabrics]
        network = Network(network_spec, ids, nics)
        if outside:
            names = [*network.node_names(), *(f"{a.a}--{a.b}" for a in network.links())]
            hit = {pattern: matching(pattern, names) for pattern in outside}
            unmatched += [pattern for pattern, found in hit.items() if not found]
            failed = frozenset(found_name for found in hit.values() for found_name in found)
            network = Network(network_spec, ids, nics, failed)
    else:
        unmatched += outside
    taken, wrong = taken_chips(spec.taken, ids) if spec.taken else (set(), [])
    chips_are = f"chips are {ids[0][0]} to {ids[-1][-1]}"
    others = "their NICs r0g0.nic, domains r0, switches r0sw0, links r0g0--r0sw0"
    problems = [
        Problem(f"{place}: failed", f"nothing is called {name!r}; {chips_are}, {others}")
        for name in unmatched
    ]
    problems += [
        Problem(f"{place}: taken", f"no chip is called {name!r}; {chips_are}") for name in wrong
    ]
    if problems:
        raise InstanceError(told(problems, place))
    works: dict[int, list[bool]] = {}
    signatures: dict[Hashable, Hashable] = {}
    for fabric in made:  # equal domains share one fabric
        if id(fabric) not in works:
            works[id(fabric)] = [
                f"g{position}" not in fabric.failed and fabric.reaches(position)
                for position in range(len(fabric.chips))
            ]
    domains = [
        make_domain(
            index, fabrics[index], fabric, network, ids[index], taken, works[id(fabric)], signatures
        )
        for index, fabric in enumerate(made)
    ]
    return Cluster(
        name,
        domains,
        network,
        title=spec.title,
        sources=spec.sources,
        notes=spec.notes,
        provenance=spec.provenance,
    )


def _names(fabric: Fabric) -> list[str]:
    links = [(link.a, link.b) for link in fabric.links()]
    return [
        *fabric.chip_names(),
        *fabric.switch_names(),
        *(f"{a}--{b}" for a, b in links),
    ]
