"""What files tell of hosts, their chips and their leaves, and how several files' words on one host are joined."""

from __future__ import annotations

from dataclasses import dataclass, field

from rackfit.discovery.products import chip_of, words
from topology.errors import InstanceError, Problem
from topology.names import check_name, shown
from topology.spec import MAX_CHIPS


@dataclass
class Host:
    """One operating system with its chips. What no file told is ``None`` or empty.

    ``failed`` and ``taken`` map a chip's position in the host to the reason; ``failed_anywhere`` and
    ``taken_anywhere`` count chips whose position is not told. ``out_of_service`` is the reason why no chip
    of the host serves, ``in_use`` why all are others', ``unread`` why no cluster file can hold the host. ``use_told``:
    whether a file tells which chips are in use; false of one that lists what could run something and not what does.
    ``domain`` names the scale-up domain, ``block`` a group of a scheduler's block topology, ``slice_shape`` the
    torus that the host is part of. ``leaves`` are the switches of the scale-out next to the host,
    ``nic_bytes_per_s`` all its ports together, one direction. ``links`` is how many scale-up links each position
    has to each other one, ``nvlinks`` how many of a position's links are alive, wherever they lead.
    """

    name: str
    product: str | None = None
    chips: int | None = None
    hbm_bytes: float | None = None
    failed: dict[int, str] = field(default_factory=dict)
    taken: dict[int, str] = field(default_factory=dict)
    failed_anywhere: dict[str, int] = field(default_factory=dict)
    taken_anywhere: dict[str, int] = field(default_factory=dict)
    out_of_service: str = ""
    in_use: str = ""
    unread: str = ""
    use_told: bool | None = None
    domain: str | None = None
    block: str | None = None
    slice_shape: tuple[int, ...] | None = None
    leaves: tuple[str, ...] = ()
    nic_bytes_per_s: float | None = None
    links: dict[int, tuple[int, ...]] = field(default_factory=dict)
    nvlinks: dict[int, int] = field(default_factory=dict)


@dataclass
class Found:
    """What one file, or all of them, told: hosts by name, remarks, what had to be assumed.

    ``whole`` says that the file lists the hosts that have chips; others only add to hosts that another file
    lists. ``spines`` and ``oversubscription`` are those of the scale-out, where a file tells them.
    """

    hosts: dict[str, Host] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    whole: bool = True
    spines: int | None = None
    oversubscription: float | None = None

    def host(self, name: str, place: str) -> Host:
        """The host of a name, new if need be. Raises ``InstanceError`` for what is no name or too many."""
        name = check_name(name.strip(), f"{place}: host")
        if name not in self.hosts and len(self.hosts) >= MAX_CHIPS:
            raise InstanceError(Problem(place, f"more than {MAX_CHIPS:,} hosts"))
        return self.hosts.setdefault(name, Host(name))


#: fields of a host that two files may both tell, if they tell the same
_ONE_VALUE = ("product", "chips", "hbm_bytes", "domain", "block", "slice_shape")


def join(parts: list[tuple[str, Found]]) -> Found:
    """All files' words, by place; the hosts are those of the files that list hosts with chips.

    Raises ``InstanceError`` where two files contradict each other.
    """
    whole = Found(whole=any(found.whole for _, found in parts))
    problems: list[Problem] = []
    told: dict[tuple[str, str], str] = {}
    listed = {name for _, found in parts if found.whole for name in found.hosts}
    unused: dict[str, int] = {}
    for place, found in parts:
        whole.notes += found.notes
        whole.assumed += found.assumed
        whole.sources += found.sources
        whole.spines = found.spines if found.spines is not None else whole.spines
        if found.oversubscription is not None:
            whole.oversubscription = found.oversubscription
        for name, host in found.hosts.items():
            if listed and name not in listed:
                unused[place] = unused.get(place, 0) + 1
                continue
            mine = whole.hosts.setdefault(name, Host(name))
            problems += _add(mine, host, place, told)
    if problems:
        raise InstanceError(problems)
    whole.notes += [
        f"{place}: {number} hosts that no other file lists with chips are left out"
        for place, number in unused.items()
    ]
    return whole


def _add(mine: Host, host: Host, place: str, told: dict[tuple[str, str], str]) -> list[Problem]:
    """Add what a file told of a host to what is known of it; what contradicts is returned.

    Of two names of a product the one that says more counts, where it holds all words of the other: drivers name form
    and memory, schedulers often a word alone.
    """
    problems = []
    for name in _ONE_VALUE:
        new, old = getattr(host, name), getattr(mine, name)
        if new is None:
            continue
        if old is None or (name == "product" and words(old) < words(new)):
            setattr(mine, name, new)
            told[mine.name, name] = place
        elif not _same(name, old, new):
            before = told[mine.name, name]
            message = f"{name} is {shown(new, 80)}, {before} says {shown(old, 80)}"
            problems.append(Problem(f"{place}: {mine.name}", message))
    mine.failed |= host.failed
    mine.taken |= host.taken
    mine.links |= host.links
    mine.nvlinks |= host.nvlinks
    for reason, number in host.failed_anywhere.items():
        mine.failed_anywhere[reason] = max(number, mine.failed_anywhere.get(reason, 0))
    for reason, number in host.taken_anywhere.items():
        mine.taken_anywhere[reason] = max(number, mine.taken_anywhere.get(reason, 0))
    mine.out_of_service = mine.out_of_service or host.out_of_service
    mine.in_use = mine.in_use or host.in_use
    mine.unread = mine.unread or host.unread
    if host.use_told is not None:
        mine.use_told = mine.use_told or host.use_told
    mine.leaves = host.leaves or mine.leaves
    if host.nic_bytes_per_s is not None:
        mine.nic_bytes_per_s = host.nic_bytes_per_s
    return problems


def _same(name: str, old: object, new: object) -> bool:
    """Whether two files mean the same; names of one product differ in spelling, sizes in what drivers keep back."""
    if name == "product":
        old, new = str(old), str(new)
        return words(new) <= words(old) or chip_of(old) == chip_of(new)
    if name == "hbm_bytes" and isinstance(old, float) and isinstance(new, float):
        return abs(old - new) <= 0.05 * max(old, new)
    return old == new
