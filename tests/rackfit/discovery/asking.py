"""Asks about one small file: what a listing becomes, or why it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackfit.discovery.discover import Discovered, discover
from topology.errors import InstanceError


def found_in(folder: Path, name: str, text: str, **options: Any) -> Discovered:
    """What a file of that name and text becomes."""
    path = folder / name
    path.write_text(text)
    return discover([path], **options)


def refusal(folder: Path, name: str, text: str, **options: Any) -> str:
    """Why it is refused."""
    with pytest.raises(InstanceError) as stop:
        found_in(folder, name, text, **options)
    return str(stop.value)


def sizes(found: Discovered) -> list[int]:
    """Chips of each domain."""
    return [len(domain.chips) for domain in found.cluster.domains]
