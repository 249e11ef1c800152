"""Hosts into scale-up domains, their chips into places, what is broken or taken into names of a cluster file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import ceil, prod
from typing import Any

from rackfit.discovery.found import Found, Host
from rackfit.discovery.links import fabric_of, lost_pairs, lost_wires, unlinked
from rackfit.discovery.products import bytes_in, chip_of
from rackfit.discovery.typical import Typical, typical
from topology.errors import InstanceError, Problem
from topology.names import shown


@dataclass
class Place:
    """One scale-up domain: its chip, fabric, hosts in order, and how many places for chips it has."""

    kind: Typical
    hosts: list[Host]
    fabric: dict[str, Any]
    chips: int
    nic_bytes_per_s: float | None = None
    leaves: tuple[str, ...] = ()


@dataclass
class Assembled:
    """Domains in order; ``failed`` and ``taken`` map names of the cluster file to reasons."""

    places: list[Place]
    failed: dict[str, str] = field(default_factory=dict)
    taken: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)


def natural(text: str) -> list[tuple[int, str]]:
    """A key that sorts ``node-10`` after ``node-9``."""
    return [
        (int(part[:18]), "") if part.isdecimal() else (-1, part)
        for part in re.split(r"(\d+)", text)
    ]


def assemble(found: Found, chip: str | None, *, free: bool) -> Assembled:
    """The domains that hosts form. ``chip`` overrides the products; ``free`` counts chips in use as free.

    Raises ``InstanceError`` with every host whose chip is not known or not as the catalogue has it.
    """
    kinds, assumed = _kinds(found, chip)
    groups: dict[tuple[int, str], list[Host]] = {}
    lonely = 0
    for name in sorted(found.hosts, key=natural):
        host, kind = found.hosts[name], kinds[name]
        label = host.domain or (host.block if kind.spans_hosts else None)
        torus = kind.fabric.get("kind") == "torus" and host.slice_shape is not None
        if label is None or not (torus or kind.spans_hosts):
            lonely += kind.spans_hosts and not torus
            groups[1, name] = [host]
        else:
            groups.setdefault((0, label), []).append(host)
    if lonely:
        assumed.append(
            f"{lonely} hosts tell no scale-up domain: each is taken for one of its own (a clique label, a block or "
            "the XML of nvidia-smi tells it)"
        )
    if any(
        host.block and host.domain is None and kinds[name].spans_hosts
        for name, host in found.hosts.items()
    ):
        assumed.append("a block of the scheduler's is taken for one scale-up domain")
    done = Assembled([], assumed=assumed)
    for (_, label), hosts in groups.items():
        done.places += _domains(hosts, kinds, label, done)
    done.places = _by_leaves(done.places)
    for index, place in enumerate(done.places):
        _health(index, place, done, free=free)
    return done


def _by_leaves(places: list[Place]) -> list[Place]:
    """Domains under the same leaves together, otherwise in the order of their first hosts."""
    ordered = sorted(places, key=lambda place: natural(place.hosts[0].name))
    first: dict[tuple[str, ...], int] = {}
    for number, place in enumerate(ordered):
        first.setdefault(place.leaves, number)
    return sorted(ordered, key=lambda place: first[place.leaves])


def _kinds(found: Found, chip: str | None) -> tuple[dict[str, Typical], list[str]]:
    """The chip of every host, and what was assumed of it."""
    problems, kinds, counts, unsized = [], {}, 0, set()
    for name, host in found.hosts.items():
        if host.unread:
            problems.append(Problem(name, f"{host.unread}; leave it out with --hosts"))
            continue
        meant = chip or (chip_of(host.product) if host.product else None)
        if meant is None:
            what = (
                f"no chip of the catalogue is {shown(host.product, 80)}"
                if host.product
                else "no file tells its chips"
            )
            problems.append(
                Problem(
                    name,
                    f"{what}; give --chip NAME or the path of a chip file, "
                    "or leave such hosts out with --hosts",
                )
            )
            continue
        kind = kinds[name] = typical(meant)
        if host.chips is None:
            host.chips = kind.chip.chips_per_host
            counts += 1
        size = kind.chip.hbm_bytes
        told = host.hbm_bytes or bytes_in(host.product or "")
        if told is None and chip is None and host.slice_shape is None:
            unsized.add(kind.name)
        if chip is None and told is not None and abs(told - size) > 0.1 * size:
            message = (
                f"{shown(host.product, 80)} with {told / 2**30:.1f} GiB, {meant} of the catalogue has "
                f"{size / 2**30:.1f} GiB; give --chip NAME or the path of a chip file"
            )
            problems.append(Problem(name, message))
    if problems:
        raise InstanceError(problems)
    said = [f"{counts} hosts tell no number of chips: taken as the catalogue's"] if counts else []
    for meant in sorted(unsized):
        size = typical(meant).chip.hbm_bytes / 2**30
        said.append(
            f"no file tells form and memory of {meant}: taken as the catalogue's, {size:.4g} GiB"
        )
    return kinds, said


def _domains(
    hosts: list[Host], kinds: dict[str, Typical], label: str, done: Assembled
) -> list[Place]:
    """The domains of one label: one, but for a pool of tori, which may hold several slices."""
    kind, shape = kinds[hosts[0].name], hosts[0].slice_shape
    if any(kinds[host.name] is not kind or host.slice_shape != shape for host in hosts):
        message = "its hosts have different chips or shapes"
        raise InstanceError(Problem(shown(label, 80), message))
    if shape is None or kind.fabric.get("kind") != "torus":
        chips = sum(host.chips or 0 for host in hosts)
        if kind.spans_hosts and chips > kind.domain_chips:
            message = (
                f"{chips} chips in one scale-up domain, {kind.name} has at most {kind.domain_chips}"
            )
            raise InstanceError(Problem(shown(label, 80), message))
        alone = fabric_of(hosts[0], kind, done.assumed) if len(hosts) == 1 else dict(kind.fabric)
        return [_place(hosts, kind, alone, chips)]
    return _slices(hosts, kind, shape, label, done)


def _slices(
    hosts: list[Host], kind: Typical, shape: tuple[int, ...], label: str, done: Assembled
) -> list[Place]:
    """Tori of a shape, filled host by host; hosts that are not listed leave places that have failed."""
    sides = shape[: len(kind.fabric["shape"])]
    size = prod(shape)
    if prod(shape[len(sides) :]) > 1 or not 0 < size <= 20_000:
        message = f"{kind.name} has tori of {len(kind.fabric['shape'])} axes, got {'x'.join(map(str, shape))}"
        raise InstanceError(Problem(shown(label, 80), message))
    per_host = hosts[0].chips or 1
    if any(host.chips != per_host for host in hosts) or (size % per_host and per_host % size):
        message = f"hosts of {per_host} chips do not fill slices of {'x'.join(map(str, shape))}"
        raise InstanceError(Problem(shown(label, 80), message))
    per_slice = max(1, size // per_host)
    fabric = {**kind.fabric, "shape": [*sides, *[1] * (len(kind.fabric["shape"]) - len(sides))]}
    places = []
    for number in range(ceil(len(hosts) / per_slice)):
        own = hosts[number * per_slice : (number + 1) * per_slice]
        if missing := per_slice - len(own):
            gone = [
                Host(f"{label}: not listed", chips=per_host, out_of_service="not listed")
                for _ in range(missing)
            ]
            done.assumed.append(
                f"{shown(label, 80)}: {missing} hosts of a slice are not listed: their chips have failed"
            )
            own = [*own, *gone]
        places.append(_place(own, kind, fabric, max(size, per_host)))
    if per_slice > 1:
        done.assumed.append(
            f"{shown(label, 80)}: hosts stand on the torus in the order of their names"
        )
    return places


def _place(hosts: list[Host], kind: Typical, fabric: dict[str, Any], chips: int) -> Place:
    told = [host.nic_bytes_per_s for host in hosts if host.nic_bytes_per_s is not None]
    nic = (
        sum(told) / sum(host.chips or 0 for host in hosts if host.nic_bytes_per_s is not None)
        if told
        else None
    )
    blocks = {host.block for host in hosts if host.block} if not kind.spans_hosts else set()
    leaves = tuple(sorted({leaf for host in hosts for leaf in host.leaves} or blocks))
    return Place(kind, hosts, fabric, chips, nic, leaves)


def _health(index: int, place: Place, done: Assembled, *, free: bool) -> None:
    """Name every chip and link of a domain that has failed or is taken."""
    first = 0
    for host in place.hosts:
        chips = host.chips or 0
        failed, taken = _of_host(host, chips, done, free=free)
        if failed and len(failed) == chips == place.chips:
            done.failed[f"r{index}"] = f"{host.name}: {failed[0]}"
        else:
            for position, reason in failed.items():
                done.failed[f"r{index}g{first + position}"] = f"{host.name}: {reason}"
        for position, reason in taken.items():
            if position not in failed:
                done.taken[f"r{index}g{first + position}"] = f"{host.name}: {reason}"
        for position in sorted({*host.links, *host.nvlinks}):
            if position not in failed:
                for switch, reason in lost_wires(
                    position, place.kind, place.fabric, host, done.assumed
                ):
                    done.failed[f"r{index}g{first + position}--r{index}sw{switch}"] = reason
        for a, b in lost_pairs(place.kind, place.fabric, host, failed):
            lost = f"{host.name}: no link of the scale-up joins GPUs {a} and {b}"
            done.failed[f"r{index}g{first + a}--r{index}g{first + b}"] = lost
        first += chips


def _of_host(
    host: Host, chips: int, done: Assembled, *, free: bool
) -> tuple[dict[int, str], dict[int, str]]:
    """Failed and taken positions of a host; chips of which only the number is told come last."""
    if host.out_of_service:
        return dict.fromkeys(range(chips), host.out_of_service), {}
    failed = {**unlinked(host), **host.failed}
    for reason, number in host.failed_anywhere.items():
        _fill(failed, {}, number, reason, chips, host, done)
    taken = dict(host.taken)
    if host.in_use:
        taken = {position: taken.get(position, host.in_use) for position in range(chips)}
    for reason, number in host.taken_anywhere.items():
        _fill(taken, failed, number, reason, chips, host, done)
    if free:
        taken = {position: reason for position, reason in taken.items() if "split" in reason}
    for position in [*failed, *taken]:
        if not 0 <= position < chips:
            raise InstanceError(Problem(host.name, f"a chip {position}, but it has {chips} chips"))
    return failed, taken


def _fill(
    chosen: dict[int, str],
    others: dict[int, str],
    number: int,
    reason: str,
    chips: int,
    host: Host,
    done: Assembled,
) -> None:
    """Add positions from the last one down until ``number`` are chosen."""
    missing = min(number, chips - len(others)) - len(chosen)
    if missing <= 0:
        return
    spare = [
        position
        for position in reversed(range(chips))
        if position not in chosen and position not in others
    ]
    chosen.update(dict.fromkeys(spare[:missing], reason))
    if missing < chips:
        done.assumed.append(
            f"{host.name}: which {missing} of its {chips} chips are {reason} is not told; the last ones"
        )
