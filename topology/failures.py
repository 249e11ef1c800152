"""Names of what has failed or is taken, matched against what a cluster has.

``r0g3`` a chip, ``r0`` all chips of a domain, ``r0sw1`` a switch, ``r0g3--r0sw1`` a link,
``r0g3.nic`` a NIC, ``leaf0`` and ``spine2`` of the scale-out; ``*``, ``?`` and ``[0-3]`` match as
in file names. Knows names only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

_INSIDE = re.compile(r"(r[\d*?\[\]!-]+?)((?:[gst*?].*)?)")


def split(
    patterns: Iterable[str], num_domains: int
) -> tuple[list[list[str]], list[str], list[str]]:
    """Local patterns by domain, patterns of the scale-out, and patterns that name nothing."""
    inside: list[list[str]] = [[] for _ in range(num_domains)]
    outside: list[str] = []
    wrong: list[str] = []
    for pattern in patterns:
        if ".nic" in pattern or "leaf" in pattern or "spine" in pattern:
            outside.append(pattern)
            continue
        parts = _INSIDE.fullmatch(pattern)
        found = _domains(parts[1], num_domains) if parts else []
        local = re.sub(r"--r\d+", "--", parts[2]) if parts else ""
        for domain in found:
            inside[domain].append(local or "g*")
        if not found:
            wrong.append(pattern)
    return inside, outside, wrong


def _domains(head: str, num_domains: int) -> list[int]:
    if head[1:].isdecimal():
        number = int(head[1:10])
        return [number] if number < num_domains and len(head) < 10 else []
    return [domain for domain in range(num_domains) if fnmatchcase(f"r{domain}", head)]


def matching(pattern: str, names: Sequence[str]) -> list[str]:
    """Names that a pattern matches; a link may be written from either end."""
    turned = "--".join(reversed(pattern.split("--")))
    exact = [name for name in names if fnmatchcase(name, pattern) or fnmatchcase(name, turned)]
    if "--" in pattern:
        return exact
    return [name for name in exact if "--" not in name]


def taken_chips(
    patterns: Iterable[str], ids: Sequence[Sequence[str]]
) -> tuple[set[str], list[str]]:
    """Ids that patterns of chips or whole domains match, and the patterns that match none."""
    taken: set[str] = set()
    wrong = []
    for pattern in patterns:
        domains = _domains(pattern, len(ids)) if re.fullmatch(r"r\d+", pattern) else []
        found = {name for domain in domains for name in ids[domain]}
        if not domains:
            found = {name for names in ids for name in names if fnmatchcase(name, pattern)}
        taken |= found
        if not found:
            wrong.append(pattern)
    return taken, wrong
