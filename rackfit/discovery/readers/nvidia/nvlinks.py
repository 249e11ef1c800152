"""Links of each GPU that are alive, as ``nvidia-smi nvlink -s`` prints them, by itself or among other output."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from topology.errors import InstanceError, Problem

_GPU = re.compile(r"GPU (\d{1,3}): (\S.{0,100}?) \(UUID: .{0,60}\)?")
_LINK = re.compile(r"Link (\d{1,3}): (?:(\d{1,4}(?:\.\d{1,4})?) GB/s|<?inactive>?)", re.IGNORECASE)


@dataclass
class Counted:
    """Names, links that are alive and links in all, by the GPU's number; ``slow`` are GPUs with links of unlike rates."""

    names: dict[int, str] = field(default_factory=dict)
    alive: dict[int, int] = field(default_factory=dict)
    links: dict[int, int] = field(default_factory=dict)
    slow: list[int] = field(default_factory=list)


def count_links(lines: Iterable[str], place: str) -> Counted:
    """What lines tell, GPUs without any line of a link left out. Raises ``InstanceError`` where a link stands twice."""
    found = Counted()
    here: int | None = None
    seen: dict[int, dict[int, float]] = {}
    for line in map(str.strip, lines):
        if gpu := _GPU.fullmatch(line):
            here = int(gpu[1])
            found.names[here] = gpu[2]
        elif here is not None and "all links are inactive" in line.lower():
            seen.setdefault(here, {})
        elif here is not None and (link := _LINK.fullmatch(line)):
            number = int(link[1])
            if number in seen.setdefault(here, {}):
                message = f"link {number} of GPU {here} stands twice; expected a file for each host"
                raise InstanceError(Problem(place, message))
            seen[here][number] = float(link[2] or 0.0)
    for number, rates in seen.items():
        found.links[number] = len(rates)
        live = [rate for rate in rates.values() if rate > 0]
        found.alive[number] = len(live)
        if len(set(live)) > 1:
            found.slow.append(number)
    return found


def has_links(text: str) -> bool:
    """Whether a text has a line of a link below one of a GPU."""
    return (
        re.search(r"(?m)^[ \t]{0,80}GPU \d{1,3}: .{1,200}\n[ \t]{0,80}Link \d{1,3}: ", text)
        is not None
    )
