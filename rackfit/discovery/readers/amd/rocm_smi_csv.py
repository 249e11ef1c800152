"""``rocm-smi --csv`` with ``--showproductname --showmeminfo vram --showtopo``, ``--showallinfo`` and such, saved as HOST.csv.

The keys are those of its JSON: one row for each card, and a table of names and values of the system.
"""

from __future__ import annotations

import re

from rackfit.discovery.document import Document
from rackfit.discovery.found import Found
from rackfit.discovery.readers.amd.gpus import Listing, host_of
from rackfit.discovery.readers.amd.rocm_smi import add_card
from rackfit.discovery.readers.table import table_rows
from topology.errors import InstanceError, Problem
from topology.names import shown

TITLE = "rocm-smi --csv (the file named like its host)"

_HEAD = re.compile(r"(?m)^device,[^\r\n]{3,20000}\r?\ncard\d{1,4},")


def recognises(document: Document) -> bool:
    """Rows of cards below their header."""
    return document.json_start < 0 and _HEAD.search(document.text[:500_000]) is not None


def read(document: Document) -> Found:
    """One host with its GPUs."""
    listing = Listing()
    for row, place in table_rows(document.text, _is_head, document.place):
        if "device" not in row:
            add_card(listing, "system", {row["name"]: row["value"]}, place)
            continue
        card = row.pop("device")
        if not re.fullmatch(r"card\d{1,4}", card):
            message = f"expected a card such as card0, got {shown(card, 40)}"
            raise InstanceError(Problem(place, message))
        add_card(listing, card, dict(row), place)
    return host_of(listing, document)


def _is_head(cells: list[str]) -> bool:
    return cells == ["name", "value"] or (cells[:1] == ["device"] and len(cells) > 1)
