"""``nvidia-smi nvlink -s``, saved as HOST.txt: GPUs and how many of their NVLinks are dead."""

from __future__ import annotations

from rackfit.discovery.document import Document
from rackfit.discovery.found import Found
from rackfit.discovery.products import DISPLAY
from rackfit.discovery.readers.nvidia import nvidia_smi_text, nvidia_smi_topo
from rackfit.discovery.readers.nvidia.nvlinks import count_links, has_links
from topology.errors import InstanceError, Problem
from topology.names import shown

TITLE = "nvidia-smi nvlink -s (the file named like its host)"


def recognises(document: Document) -> bool:
    """Links below GPUs, in no file that another reader of NVIDIA's reads with them."""
    others = (nvidia_smi_text, nvidia_smi_topo)
    return has_links(document.text) and not any(other.recognises(document) for other in others)


def read(document: Document) -> Found:
    """One host with its GPUs."""
    found = Found()
    place = document.place
    told = count_links(document.text.splitlines(), place)
    if sorted(told.names) != list(range(len(told.names))):
        numbers = ", ".join(map(str, sorted(told.names)[:20]))
        message = f"tells of GPUs {numbers}; expected all of the host, from GPU 0 on"
        raise InstanceError(Problem(place, message))
    most = max(told.links.values(), default=0)
    for number, links in told.links.items():
        if 0 < links < most:
            message = f"GPU {number} has {links} links, others have {most}; the file seems cut off"
            raise InstanceError(Problem(place, message))
    gpus = [number for number, name in sorted(told.names.items()) if DISPLAY not in name]
    products = {told.names[number] for number in gpus}
    if len(products) > 1:
        message = f"several kinds of GPU in one host: {shown(', '.join(sorted(products)), 200)}"
        raise InstanceError(Problem(place, message))
    host = found.host(document.stem, place)
    host.chips = len(gpus)
    host.product = next(iter(products), None)
    host.nvlinks = {
        position: told.alive[number] for position, number in enumerate(gpus) if number in told.alive
    }
    for number in told.slow:
        found.notes.append(
            f"{host.name} GPU {number}: its NVLinks have unlike rates; each is taken as a whole one"
        )
    found.notes.append(f"{host.name}: its links do not tell which GPUs are in use")
    return found
