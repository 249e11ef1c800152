"""Which host a chip is in, and which of that host's devices it is. Knows no engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rackfit.quoting import host_label
from topology import Cluster
from topology.errors import InstanceError, Problem, on_command_line
from topology.reading import read_text


@dataclass(frozen=True, slots=True)
class Place:
    """A chip as a launcher sees it: host name, device number on that host, rack."""

    chip: str
    host: str
    gpu: int
    rack: str


class Hosts:
    """Places of every chip of a cluster.

    Domains are cut into hosts of ``gpus_per_host`` consecutive chips; by default the
    ``chips_per_host`` of the chip's data, at most the domain. Hosts are
    called ``<rack>-host<n>``, a rack's name in letters that host names have, unless ``names`` gives one
    name per host, in order.
    """

    def __init__(
        self,
        cluster: Cluster,
        gpus_per_host: int | None = None,
        names: Sequence[str] | None = None,
    ):
        if gpus_per_host is not None and gpus_per_host < 1:
            raise InstanceError(Problem("gpus per host", f"must be 1 or more, got {gpus_per_host}"))
        self.places: dict[str, Place] = {}
        order: dict[str, None] = {}
        called: dict[tuple[int, int], str] = {}
        for domain in cluster.domains:
            size = gpus_per_host or min(domain.chips[0].chip.chips_per_host, len(domain.chips))
            for chip in domain.chips:
                number, gpu = divmod(chip.position, size)
                key = (domain.index, number)
                if key not in called:
                    host = f"{host_label(domain.rack)}-host{number}"
                    called[key] = host if host not in order else f"{host}-{domain.name}"
                    order[called[key]] = None
                host = called[key]
                self.places[chip.id] = Place(chip.id, host, gpu, domain.rack)
        self.names = tuple(order)
        #: whether the names are ours: no host of the user's is called so
        self.made_up = names is None
        if names is not None:
            self._rename(tuple(names))

    def _rename(self, names: tuple[str, ...]) -> None:
        if len(names) != len(self.names) or len({name.casefold() for name in names}) != len(names):
            message = (
                f"{len(names)} names, {len({name.casefold() for name in names})} of them different, for "
                f"{len(self.names)} hosts; give one line per host, rack by rack"
            )
            raise InstanceError(Problem("host names", message))
        new = dict(zip(self.names, names, strict=True))
        self.places = {
            chip: Place(chip, new[place.host], place.gpu, place.rack)
            for chip, place in self.places.items()
        }
        self.names = names

    @property
    def notes(self) -> list[str]:
        """That the names are made up, where they are."""
        if not self.made_up:
            return []
        several = "" if len(self.names) == 1 else f" to {self.names[-1]}"
        own = on_command_line("; --hosts FILE (one name per line) writes yours", "; put in yours")
        return [f"hosts are called {self.names[0]}{several}{own}"]

    def of(self, chip: str) -> Place:
        """Place of a chip."""
        return self.places[chip]


def read_host_names(path: Path) -> list[str]:
    """Host names, one per line; blank lines and ``#`` comments are left out."""
    text = read_text(path, MAX_BYTES)
    names = [line.split("#")[0].strip() for line in text.splitlines()]
    found = [name for name in names if name]
    strange = [name for name in found if not set(name) <= _HOST_CHARACTERS]
    if strange:
        raise InstanceError(Problem(str(path), f"{strange[0][:60]!r} is not a host name"))
    return found


#: A file of host names larger than this is refused.
MAX_BYTES = 32 * 2**20
_HOST_CHARACTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]")
