"""The shelf of readers: a new kind of file is one file in a room of :mod:`rackfit.discovery.readers`.

Files of a room that recognise nothing hold what its readers share. A reader has ``TITLE`` (what it reads, as
messages say it), ``recognises(document) -> bool``, cheap and never raising, and ``read(document) -> Found``. Of two
that recognise a file the first by name reads it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol, cast

from rackfit.discovery.document import Document
from rackfit.discovery.found import Found
from rackfit.shelf import modules
from topology.errors import InstanceError, Problem


class Reader(Protocol):
    """A module of the shelf."""

    TITLE: str

    def recognises(self, document: Document) -> bool:
        """Whether the file looks like one of this kind."""
        ...

    def read(self, document: Document) -> Found:
        """What it tells. Raises ``InstanceError``."""
        ...


@lru_cache(maxsize=1)
def readers() -> dict[str, Reader]:
    """Every reader by the name of its file."""
    import rackfit.discovery.readers as folder

    found = modules(folder)
    for room in [one for one in found.values() if hasattr(one, "__path__")]:
        found |= modules(room)
    return {
        name: cast(Reader, module)
        for name, module in sorted(found.items())
        if hasattr(module, "recognises")
    }


def read(document: Document) -> Found:
    """What a file tells, by the reader that recognises it. Raises ``InstanceError`` where none does."""
    for reader in readers().values():
        if reader.recognises(document):
            found = reader.read(document)
            for name in [name for name, host in found.hosts.items() if host.chips == 0]:
                found.notes.append(f"{document.place}: {name}: left out; it has 0 accelerators")
                del found.hosts[name]
            if not found.hosts:
                said = "; ".join(found.notes[:3])
                message = f"{reader.TITLE}, with no host that has accelerators in it" + (
                    f" ({said})" if said else ""
                )
                raise InstanceError(Problem(document.place, message))
            found.sources.append(f"{document.path.name}: {reader.TITLE}")
            return found
    document.items  # noqa: B018 - says why a listing that was cut off cannot be read
    known = "; ".join(reader.TITLE for reader in readers().values())
    raise InstanceError(Problem(document.place, f"no listing that is known; known: {known}"))
