"""What AMD's tools tell of one host's GPUs, put together: products, memory, partitions, links of XGMI, use.

One GPU that partitions split is listed once for each part; the bus address up to its function is the GPU's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from rackfit.discovery.document import Document
from rackfit.discovery.found import Found, Host
from rackfit.discovery.products import chip_of, product_of_device
from topology.errors import InstanceError, Problem
from topology.names import shown

#: words for what a tool cannot tell
_NONE = ("", "n/a", "none", "unknown", "xxxx")
#: modes that split a GPU
_SPLIT = re.compile(r"[DTQC]PX")
_BUS = re.compile(r"[0-9a-f]{2,8}(?::[0-9a-f]{2}){1,2}\.[0-9a-f]")
#: no host has more
MOST = 1024
#: share of the memory that a driver alone takes up is a few thousandths
_USED = 0.05


@dataclass
class Gpu:
    """One entry of a listing: a GPU or a part of one.

    ``memory`` and ``used`` are bytes, ``share`` is the part of the memory in use where only that is told. ``nameless``
    says that the tool knows of no device, ``linked`` of other entries whether XGMI leads there.
    """

    names: set[str] = field(default_factory=set)
    device: str = ""
    bus: str = ""
    mode: str = ""
    part: str = ""
    memory: float | None = None
    used: float | None = None
    running: bool = False
    share: float = 0.0
    nameless: bool = False
    failed: str = ""
    split: bool = False
    linked: dict[int, bool] = field(default_factory=dict)


@dataclass
class Listing:
    """Entries by number; ``processes`` counts GPUs that processes use, where no file says which."""

    gpus: dict[int, Gpu] = field(default_factory=dict)
    processes: int = 0

    def gpu(self, number: int, place: str) -> Gpu:
        """The entry of a number, new if need be. Raises ``InstanceError`` for one that no host has."""
        if not 0 <= number < MOST:
            message = f"expected the number of a GPU, got {shown(number, 40)}"
            raise InstanceError(Problem(place, message))
        return self.gpus.setdefault(number, Gpu())


def told(text: object) -> str:
    """``text`` unless it is a tool's word for what it cannot tell."""
    word = str(text).strip()
    return "" if text is None or word.lower() in _NONE else word


def set_bus(gpu: Gpu, bus: str, place: str) -> None:
    """The bus address of an entry. Raises ``InstanceError`` where another one was told."""
    bus = told(bus).lower()
    if bus and gpu.bus and bus != gpu.bus:
        message = (
            f"is at {shown(bus, 40)} and at {shown(gpu.bus, 40)}; expected a file for each host"
        )
        raise InstanceError(Problem(place, message))
    gpu.bus = bus or gpu.bus


def host_of(listing: Listing, document: Document) -> Found:
    """The host of a listing, named like its file. Raises ``InstanceError`` for listings that are not whole."""
    found = Found()
    gpus = listing.gpus
    if not gpus:
        raise InstanceError(Problem(document.place, "no GPU in it"))
    if sorted(gpus) != list(range(len(gpus))):
        numbers = ", ".join(map(str, sorted(gpus)[:20]))
        message = f"tells of GPUs {numbers}; expected all of the host, from GPU 0 on"
        raise InstanceError(Problem(document.place, message))
    whole = _whole(gpus, found, document.place)
    if not whole:
        return found
    host = found.host(document.stem, document.place)
    host.chips = len(whole)
    if listing.processes or any(gpu.running or gpu.used or gpu.share for gpu in whole):
        host.use_told = True
    host.product = _product(gpus.values(), document.place)
    sizes = [gpu.memory for gpu in whole if not gpu.split and gpu.memory]
    host.hbm_bytes = min(sizes, default=None)
    for position, gpu in enumerate(whole):
        if gpu.failed:
            host.failed[position] = gpu.failed
        if gpu.split:
            host.taken[position] = "split into partitions"
        elif gpu.running:
            host.taken[position] = "in use"
        elif (gpu.used / gpu.memory if gpu.used and gpu.memory else gpu.share) > _USED:
            host.taken[position] = "its memory is in use"
    if listing.processes and not host.taken:
        host.taken_anywhere["in use"] = listing.processes
    if all(not gpu.split for gpu in gpus.values()):
        _link(host, gpus, document.place)
    return found


def _whole(gpus: dict[int, Gpu], found: Found, place: str) -> list[Gpu]:
    """One entry for each GPU; none, with a note, where parts do not tell which GPU they are of.

    Tools give parts the address of their GPU with other functions, or its very address; they tell its mode and its
    device of the first part alone.
    """
    ordered = [gpu for _, gpu in sorted(gpus.items())]
    buses = Counter(gpu.bus for gpu in ordered if gpu.bus)
    devices = any(gpu.device for gpu in ordered)
    for gpu in ordered:
        gpu.split |= bool(_SPLIT.match(gpu.mode.upper())) or gpu.part not in ("", "0")
        gpu.split |= buses[gpu.bus] > 1 or (gpu.nameless and devices and not gpu.device)
    if not any(gpu.split for gpu in ordered):
        return ordered
    if not all(_BUS.fullmatch(gpu.bus) for gpu in ordered):
        modes = sorted({gpu.mode for gpu in ordered if gpu.split and gpu.mode})
        found.notes.append(
            f"{place}: left out; {len(gpus)} parts of GPUs ({shown(', '.join(modes) or 'partitions', 60)}), and it does "
            "not tell the bus addresses that show which belong together; amd-smi list does"
        )
        return []
    chips = {gpu.bus.partition(".")[0] for gpu in ordered if gpu.split}
    first: dict[str, Gpu] = {}
    for gpu in ordered:
        chip = gpu.bus.partition(".")[0]
        gpu.split |= chip in chips
        first.setdefault(chip if gpu.split else gpu.bus, gpu)
    return list(first.values())


def _product(gpus: Iterable[Gpu], place: str) -> str | None:
    """The name of the host's GPUs; of several names for one chip the longest."""
    names: set[str] = set()
    for gpu in gpus:
        own = {name for name in gpu.names if not name.lower().startswith("0x")}
        names |= own or ({product_of_device(gpu.device)} if gpu.device else set())
    if len(names) > 1 and (
        len({chip_of(name) for name in names}) > 1 or chip_of(min(names)) is None
    ):
        message = f"several kinds of GPU in one host: {shown(', '.join(sorted(names)), 200)}"
        raise InstanceError(Problem(place, message))
    return max(sorted(names), key=len, default=None)


def _link(host: Host, gpus: dict[int, Gpu], place: str) -> None:
    """Links of XGMI between all pairs. Raises ``InstanceError`` where a listing tells some pairs only."""
    if len(gpus) < 2 or not any(gpu.linked for gpu in gpus.values()):
        return
    for a, gpu in gpus.items():
        for b in gpus:
            if a != b and gpu.linked.get(b, gpus[b].linked.get(a)) is None:
                message = f"no link type of GPUs {a} and {b}; expected one for every pair (amd-smi topology --link-type tells them)"
                raise InstanceError(Problem(place, message))
    for a, gpu in gpus.items():
        others = [b for b in gpus if b != a]
        host.links[a] = tuple(int(gpu.linked.get(b, gpus[b].linked.get(a, False))) for b in others)
    bare = [a for a, pairs in host.links.items() if not any(pairs)]
    if len(bare) < len(gpus):
        lost = "no XGMI, unlike the host's other GPUs"
        host.failed |= {a: lost for a in bare if a not in host.failed}
