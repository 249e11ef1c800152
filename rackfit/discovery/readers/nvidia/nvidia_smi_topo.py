"""``nvidia-smi topo -m``, saved as HOST.txt: how many NVLinks lead from each GPU to each other one.

The same file may hold what tells the kind of GPU, its memory and its use: see :mod:`rackfit.discovery.readers.nvidia.console`.
"""

from __future__ import annotations

import re

from rackfit.discovery.document import Document
from rackfit.discovery.found import Found, Host
from rackfit.discovery.products import DISPLAY
from rackfit.discovery.readers.nvidia.console import read_console
from rackfit.discovery.readers.nvidia.nvlinks import count_links
from topology.errors import InstanceError, Problem
from topology.names import shown

TITLE = "nvidia-smi topo -m (the file named like its host)"

#: colours, also those that lost their first character
_COLOUR = re.compile(r"\x1b?\[[0-9;]{1,20}m|\x1b\[m")
_PATH = re.compile(r"NV\d{1,3}|PIX|PXB|PHB|NODE|SYS|X|SOC")
_GPU = re.compile(r"GPU(\d{1,3})")


def recognises(document: Document) -> bool:
    """The row of GPU0, which begins with its way to itself."""
    lines = [_COLOUR.sub("", line) for line in document.text[:50_000].splitlines()]
    rows = [line.split() for line in lines if line.strip().startswith("GPU0")]
    return any("X" in row[1:2] for row in rows)


def read(document: Document) -> Found:
    """One host with the matrix of its NVLinks."""
    found = Found()
    host = found.host(document.stem, document.place)
    lines = [_COLOUR.sub("", raw).strip() for raw in document.text.splitlines()]
    rows = _rows(lines, document.place)
    linked = any(path.startswith("NV") for row in rows.values() for path in row)
    legend = {line.partition(" ")[0] for line in lines if " = " in line}
    if "PIX" in legend and "NV#" not in legend and not linked:
        message = "paths of PCIe alone, as topo -mp prints them; expected nvidia-smi topo -m"
        raise InstanceError(Problem(document.place, message))
    told = read_console(lines)
    names = {number: told.name(number) for number in told.names}
    displays = {number for number, name in names.items() if DISPLAY in name}
    kept = [number for number in sorted(rows) if number not in displays]
    for position, number in enumerate(kept):
        paths = [rows[number][other] for other in kept if other != number]
        host.links[position] = tuple(int(path[2:]) if path[:2] == "NV" else 0 for path in paths)
        if number in told.split:
            host.taken[position] = "split by MIG"
        elif number in told.used:
            host.taken[position] = "in use"
    host.chips = len(kept)
    counted = count_links(lines, document.place).alive
    host.nvlinks = {
        place: counted[number] for place, number in enumerate(kept) if number in counted
    }
    found.notes += [
        f"{host.name} GPU {number}: left out, {names[number]} serves screens"
        for number in sorted(displays)
    ]
    gpus = {number: name for number, name in names.items() if number not in displays}
    if len(products := set(gpus.values())) > 1 or any("," in name for name in products):
        message = f"several kinds of GPU in one host: {shown(', '.join(sorted(products)), 120)}"
        raise InstanceError(Problem(document.place, message))
    host.product = next(iter(products), None)
    host.hbm_bytes = next((told.memory[number] for number in gpus if number in told.memory), None)
    _cut_off(found, host)
    if beyond := sorted(set(names) - set(rows)):
        message = f"GPU {beyond[0]} is named and has no row in the matrix of {len(rows)}"
        raise InstanceError(Problem(document.place, message))
    return found


def _rows(lines: list[str], place: str) -> dict[int, list[str]]:
    """Paths from each GPU to each. Raises ``InstanceError`` for a matrix that is not whole and for a second one."""
    rows: dict[int, list[str]] = {}
    heads: list[int] = []
    again = 0
    for line in lines:
        words = line.split()
        number = _GPU.fullmatch(words[0]) if words else None
        if number and len(words) > 1 and _PATH.fullmatch(words[1]):
            again += int(number[1]) in rows
            rows.setdefault(int(number[1]), words[1:])
        elif number and number[1] == "0" and (words[1:2] == ["GPU1"] or "Affinity" in words):
            heads.append(sum(_GPU.fullmatch(word) is not None for word in words))
    if again or len(heads) > 1:
        raise InstanceError(Problem(place, "more than one matrix; expected a file for each host"))
    if not rows:
        raise InstanceError(Problem(place, "no whole row of a GPU; expected GPU0 X NV18 and so on"))
    if sorted(rows) != list(range(len(rows))):
        message = f"rows of GPUs {', '.join(map(str, sorted(rows)[:20]))}; some are missing"
        raise InstanceError(Problem(place, message))
    if heads and heads[0] != len(rows):
        message = f"rows of {len(rows)} GPUs under a header of {heads[0]}; some are missing"
        raise InstanceError(Problem(place, message))
    for position, words in rows.items():
        paths = words[: len(rows)]
        bad = [word for word in paths if not _PATH.fullmatch(word)]
        if len(paths) < len(rows) or bad or paths[position] != "X":
            message = f"expected {len(rows)} paths, got {shown(' '.join(words[:20]), 120)}"
            raise InstanceError(Problem(f"{place}: GPU{position}", message))
    return rows


def _cut_off(found: Found, host: Host) -> None:
    """The memory stands for what the table of ``nvidia-smi`` cuts off a name."""
    if host.product and host.product.endswith("..."):
        size = f" {round(host.hbm_bytes / 2**30)}GB" if host.hbm_bytes else ""
        found.assumed.append(
            f"{host.name}: the name {host.product} is cut off; taken by what is left of it and its memory"
        )
        host.product = host.product.rstrip(". -") + size
