"""``nvidia-smi -q`` as text, as bug reports hold it, saved as HOST.txt: the facts of its XML, read by the same rules.

Lines are ``Key : Value`` or a heading, deeper ones further in. Other output may stand around the log; a matrix of ``topo
-m`` in the same file tells the links.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rackfit.discovery.document import Document
from rackfit.discovery.found import Found
from rackfit.discovery.readers.nvidia import nvidia_smi_topo
from rackfit.discovery.readers.nvidia.nvidia_smi_xml import failure_of, read_log
from rackfit.discovery.readers.nvidia.nvlinks import count_links
from rackfit.discovery.readers.nvidia.xml_tree import MAX_ELEMENTS, Element
from topology.errors import InstanceError, Problem

TITLE = "nvidia-smi -q as text (the file named like its host)"

_BANNER = "NVSMI LOG="
_GPU = re.compile(r"GPU [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]")
#: what the text calls otherwise than the XML: heading and key
_CALLED = {
    ("gpu", "gpu_uuid"): "uuid",
    ("mig_mode", "current"): "current_mig",
    ("remapped_rows", "pending"): "remapped_row_pending",
    ("remapped_rows", "remapping_failure_occurred"): "remapped_row_failure",
    ("fabric", "cliqueid"): "clique_id",
    ("fabric", "clusteruuid"): "cluster_uuid",
    ("processes", "process_id"): "process_info",
}
#: a line about a GPU that cannot be asked, between the others
_NO_ANSWER = "unable to determine"


def recognises(document: Document) -> bool:
    """The banner of a log of whole GPUs; a part of a log (``-d``) beside a matrix of links says nothing more."""
    if _BANNER not in document.text:
        return False
    return "Product Name" in document.text or not nvidia_smi_topo.recognises(document)


def read(document: Document) -> Found:
    """One host, its GPUs in the order of the log."""
    root = _tree(document.text.splitlines(), document.place)
    for position, gpu in enumerate(root.each("gpu")):
        if failure_of(gpu):
            continue
        where = f"{document.place}: GPU {position}"
        if not gpu.at("product_name"):
            message = "no Product Name; expected all that nvidia-smi -q prints, not a part (-d)"
            raise InstanceError(Problem(where, message))
        if not any(gpu.each("processes")):
            raise InstanceError(Problem(where, "no Processes; the log seems cut off"))
    found = read_log(root, document)
    counted = count_links(document.text.splitlines(), document.place).alive
    if sorted(counted) == list(range(len(counted))):
        next(iter(found.hosts.values())).nvlinks = counted
    if nvidia_smi_topo.recognises(document):
        (host,) = found.hosts.values()
        (linked,) = nvidia_smi_topo.read(document).hosts.values()
        if linked.chips == host.chips:
            host.links = linked.links
    return found


def _tree(lines: Sequence[str], place: str) -> Element:
    """The log as its XML has it. Raises ``InstanceError`` for a second log and for one without GPUs."""
    root = Element("nvidia_smi_log")
    counted = [number for number, line in enumerate(lines) if _pair(line)[0] == "attached_gpus"]
    if not counted:
        message = "no number of attached GPUs in it; expected all that nvidia-smi -q prints"
        raise InstanceError(Problem(place, message))
    if len(counted) > 1:
        message = f"another log begins in line {counted[1] + 1}; expected one in a file"
        raise InstanceError(Problem(place, message))
    lines = lines[counted[0] :]
    base = _margin(lines[0])
    root.inside.append(Element("attached_gpus", text=_pair(lines[0])[1]))
    above = [(base, root)]
    for count, line in enumerate(_of_log(lines[1:], base)):
        if count > MAX_ELEMENTS:
            raise InstanceError(Problem(place, f"more than {MAX_ELEMENTS:,} lines in the log"))
        margin = _margin(line)
        if margin == base:
            above = [(base, root), (base, gpu := Element("gpu"))]
            root.inside.append(gpu)
            continue
        while len(above) > 2 and above[-1][0] >= margin:
            above.pop()
        heading = above[-1][1]
        key, value = _pair(line)
        element = Element(_CALLED.get((heading.tag, key), key), text=value)
        heading.inside.append(element)
        above.append((margin, element))
    return root


def _of_log(lines: Sequence[str], base: int) -> Iterator[str]:
    """Lines of GPUs, up to the first that is none."""
    begun = False
    for line in lines:
        if not line.strip() or line.strip().lower().startswith(_NO_ANSWER):
            continue
        if _margin(line) <= base:
            if _margin(line) < base or not _GPU.fullmatch(line.strip()):
                return
            begun = True
        if begun:
            yield line


def _margin(line: str) -> int:
    line = line.expandtabs()
    return len(line) - len(line.lstrip())


def _pair(line: str) -> tuple[str, str]:
    """Key, as an element of the XML is called, and value; a heading has none."""
    key, _, value = line.strip().partition(" :")
    return re.sub(r"[^a-z0-9]+", "_", key.lower()).strip("_"), value.strip()
