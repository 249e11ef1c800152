"""``nvidia-smi topo -m``, saved as HOST.txt: how many NVLinks lead from each GPU to each other one.

The same file may hold what tells the kind of GPU: ``nvidia-smi -L``, the table of ``nvidia-smi``, or the report of
PyTorch's and vLLM's ``collect_env``.
"""

from __future__ import annotations

import re

from rackfit.discovery.document import Document
from rackfit.discovery.found import Found
from topology.errors import InstanceError, Problem
from topology.names import shown

TITLE = "nvidia-smi topo -m (the file named like its host)"

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
_PATH = re.compile(r"NV\d{1,3}|PIX|PXB|PHB|NODE|SYS|X|SOC")
#: a GPU in the list of ``nvidia-smi -L`` or of ``collect_env``, and in the table of ``nvidia-smi``
_NAMED = re.compile(
    r"GPU \d{1,3}: (NVIDIA [^()|]{1,80}?)\s*(?:\(UUID.*)?|\|\s+\d{1,3}\s+(NVIDIA [^|]{1,80}?)\s+(?:On|Off)\s*\|.*"
)


def recognises(document: Document) -> bool:
    """A line of column names that begins with GPU0, and the row of GPU0."""
    lines = [_COLOUR.sub("", line) for line in document.text[:50_000].splitlines()]
    rows = [line.split() for line in lines if line.strip().startswith("GPU0")]
    return any("X" in row[1:2] for row in rows)


def read(document: Document) -> Found:
    """One host with the matrix of its NVLinks."""
    found = Found()
    host = found.host(document.stem, document.place)
    rows: dict[int, list[str]] = {}
    products: set[str] = set()
    for raw in document.text.splitlines():
        line = _COLOUR.sub("", raw).strip()
        named = _NAMED.fullmatch(line)
        products |= {named[1] or named[2]} if named else set()
        words = line.split()
        number = re.fullmatch(r"GPU(\d{1,3})", words[0]) if words else None
        if number and len(words) > 1 and _PATH.fullmatch(words[1]):
            rows.setdefault(int(number[1]), words[1:])
    if sorted(rows) != list(range(len(rows))):
        message = f"rows of GPUs {', '.join(map(str, sorted(rows)[:20]))}; some are missing"
        raise InstanceError(Problem(document.place, message))
    for position, words in rows.items():
        paths = words[: len(rows)]
        bad = [word for word in paths if not _PATH.fullmatch(word)]
        if len(paths) < len(rows) or bad or paths[position] != "X":
            message = f"expected {len(rows)} paths, got {shown(' '.join(words[:20]), 120)}"
            raise InstanceError(Problem(f"{document.place}: GPU{position}", message))
        pairs = paths[:position] + paths[position + 1 :]
        host.links[position] = tuple(int(path[2:]) if path[:2] == "NV" else 0 for path in pairs)
    host.chips = len(rows)
    if len(products) > 1:
        message = f"several kinds of GPU in one host: {shown(', '.join(sorted(products)), 120)}"
        raise InstanceError(Problem(document.place, message))
    host.product = next(iter(products), None)
    return found
