"""``rocm-smi``, also with ``--showtopo``, ``--showproductname``, ``--showmeminfo vram``, ``--showallinfo`` or ``--json``.

Saved as HOST.txt or HOST.json; several may stand in one file, also in reports of PyTorch's, vLLM's and SGLang's
environment. Forms are those of ROCm 4.5 to 7.2.
"""

from __future__ import annotations

import re
from typing import Any

from rackfit.discovery.document import Document, mapping
from rackfit.discovery.found import Found
from rackfit.discovery.readers.amd.gpus import Gpu, Listing, host_of, set_bus, told
from topology.errors import InstanceError, Problem
from topology.names import shown

TITLE = "rocm-smi, also --json (the file named like its host)"

_BANNER = re.compile(r"={4} ?ROCm System Management Interface ?={4}", re.IGNORECASE)
_FOOT = re.compile(r"={4} ?End of ROCm SMI Log ?={4}", re.IGNORECASE)
_LINE = re.compile(r"GPU\[(\d{1,6})\]\s*: (.{1,400})")
#: a row of the concise table: number, device, mode of partitions and part, share of the memory in use
_ROW = re.compile(
    r"(\d{1,4})\s+(?:\[(0x[0-9a-f]{4}) : 0x[0-9a-f]{1,4}\]|\d{1,4}\s+(0x[0-9a-f]{4}|N/A),\s+\d{1,6})\s.*"
    r"(?:NPS\d|N/A), ([A-Z]PX|N/A)(?:, (\d{1,2}|N/A))?\s.*\s(?:(\d{1,3})%|N/A|Unsupported)\s+(?:\d{1,3}%|N/A|Unsupported)"
)
_NAMED = re.compile(r"GPU (\d{1,3}(?:,\d{1,3}){0,127}): (AMD .{1,80}|Radeon .{1,80})")
_MODELS = re.compile(
    r"GPU models and configuration\s*: ((?:AMD|Radeon) [^()]{1,80}?)\s*(?:\(gfx.*)?"
)
_USING = re.compile(r"PID \d{1,10} is using \d{1,4} DRM device\(s\):")
_PAIR = re.compile(r"\(Topology\) Link type between DRM devices (\d{1,4}) and (\d{1,4})")
_CARD = re.compile(r"card(\d{1,6})")
_TYPES = {"XGMI": True, "PCIE": False}


def recognises(document: Document) -> bool:
    """The tool's banner or lines of its form; in JSON, cards by their number."""
    if document.json_start < 0:
        return bool(
            _BANNER.search(document.text) or re.search(r"(?m)^GPU\[0\]\s{0,20}: ", document.text)
        )
    if '"card' not in document.text and "DRM devices" not in document.text:
        return False
    try:
        return any(_cards(value) for value in document.values)
    except InstanceError:
        return bool(
            re.search(r'"card\d{1,4}"[ \t]{0,4}:', document.text[:20_000])
        )  # so that its mistake is told


def _cards(value: Any) -> dict[str, dict[str, Any]]:
    """Cards of one JSON value, and the system beside them."""
    data = mapping(value)
    cards = {key: mapping(inside) for key, inside in data.items() if _CARD.fullmatch(key)}
    pairs = any(map(_PAIR.fullmatch, map(str, mapping(data.get("system")))))
    return {**cards, "system": mapping(data.get("system"))} if cards or pairs else {}


def read(document: Document) -> Found:
    """One host with its GPUs."""
    listing = Listing()
    if document.json_start >= 0:
        for value in document.values:
            for key, inside in _cards(value).items():
                add_card(listing, key, inside, document.place)
    else:
        if len(_BANNER.findall(document.text)) > len(_FOOT.findall(document.text)):
            message = "no line End of ROCm SMI Log at its end; the file seems cut off"
            raise InstanceError(Problem(document.place, message))
        _add_text(listing, [line.strip() for line in document.text.splitlines()], document.place)
    return host_of(listing, document)


def add_card(listing: Listing, key: str, inside: dict[str, Any], place: str) -> None:
    """What the JSON tells of one card, or of the system beside them. Raises ``InstanceError``."""
    if card := _CARD.fullmatch(key):
        gpu = listing.gpu(int(card[1]), place)
        for name, value in inside.items():
            _tell(gpu, name, str(value), f"{place}: {key}")
        return
    for name, value in inside.items():
        if pair := _PAIR.fullmatch(name):
            a, b = int(pair[1]), int(pair[2])
            first, _ = listing.gpu(a, place), listing.gpu(b, place)
            if str(value) in _TYPES:
                first.linked[b] = _TYPES[str(value)]
        elif re.fullmatch(r"PID\d{1,10}", name):
            # name, number of GPUs, bytes of their memory; processes that use none are listed, too
            process = re.fullmatch(r".*, (\d{1,4}), (\d{1,15}), [^,]*, [^,]*", str(value))
            if process and int(process[2]):
                listing.processes = max(listing.processes, int(process[1]))


def _add_text(listing: Listing, lines: list[str], place: str) -> None:
    using = False
    everywhere: set[str] = set()
    named: dict[int, str] = {}
    for position, line in enumerate(lines):
        if using and re.fullmatch(r"\d{1,4}(?: \d{1,4})*", line):
            for index in line.split():
                listing.gpu(int(index), place).running = True
            continue
        using = _USING.fullmatch(line) is not None
        if found := _LINE.fullmatch(line):
            gpu = listing.gpu(int(found[1]), place)
            name, _, value = found[2].partition(": ")
            _tell(gpu, name, value, f"{place}: GPU[{found[1]}]")
        elif found := _ROW.fullmatch(line):
            gpu = listing.gpu(int(found[1]), place)
            device = found[2] or found[3]
            gpu.device = told(device) or gpu.device
            gpu.nameless |= not told(device)
            gpu.mode, gpu.part = told(found[4]) or gpu.mode, told(found[5]) or gpu.part
            gpu.share = int(found[6] or 0) / 100
        elif found := _NAMED.fullmatch(line):
            named |= {int(index): found[2] for index in found[1].split(",")}
        elif found := _MODELS.fullmatch(line):
            everywhere.add(found[1])
        elif "Link Type between two GPUs" in line:
            _matrix(listing, lines[position + 1 :], place)
    for number, gpu in listing.gpus.items():
        gpu.names |= {named[number]} if number in named else everywhere
    if beyond := sorted(set(named) - set(listing.gpus)):
        message = f"GPU {beyond[0]} is named and rocm-smi tells nothing of it"
        raise InstanceError(Problem(place, message))


def _tell(gpu: Gpu, name: str, value: str, place: str) -> None:
    """What one line, or one key of the JSON, tells of a GPU."""
    name, value = name.strip(), value.strip()
    if name.lower() in ("card series", "device name") and told(value):
        gpu.names.add(value)
    elif name in ("Device ID", "GPU ID"):
        gpu.device = told(value) or gpu.device
        gpu.nameless |= not told(value)
    elif name.lower() == "card model":  # up to ROCm 6.0 the number of the board
        gpu.device = gpu.device or told(value)
    elif name == "Compute Partition":
        gpu.mode = told(value) or gpu.mode
    elif name == "Partition ID":
        gpu.part = told(value) or gpu.part
    elif name == "PCI Bus":
        set_bus(gpu, value, place)
    elif name in ("VRAM Total Memory (B)", "VRAM Total Used Memory (B)") and told(value):
        if not value.isascii() or not value.isdecimal() or len(value) > 15:
            raise InstanceError(Problem(place, f"{name}: expected bytes, got {shown(value, 40)}"))
        if "Used" in name:
            gpu.used = float(value)
        else:
            gpu.memory = float(value)


def _matrix(listing: Listing, lines: list[str], place: str) -> None:
    """The matrix of link types that lines begin with. Raises ``InstanceError`` for one that is not whole."""
    head = lines[0].split() if lines else []
    numbers = [int(found[1]) for word in head if (found := re.fullmatch(r"GPU(\d{1,4})", word))]
    rows = [line.split() for line in lines[1 : len(numbers) + 1]]
    wanted = [f"GPU{number}" for number in numbers]
    whole = numbers and [row[0] if row else "" for row in rows] == wanted
    if not whole or any(len(row) != len(numbers) + 1 for row in rows):
        message = f"link types between GPUs: expected {len(numbers)} rows of {len(numbers)} types under the header"
        raise InstanceError(Problem(place, message))
    for a, row in zip(numbers, rows, strict=True):
        gpu = listing.gpu(a, place)
        if gpu.linked:
            message = "more than one matrix of link types; expected a file for each host"
            raise InstanceError(Problem(place, message))
        gpu.linked = {
            b: _TYPES[kind] for b, kind in zip(numbers, row[1:], strict=True) if kind in _TYPES
        }
