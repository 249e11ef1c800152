"""What a target has that can say every layout: no limits, nothing to approximate, nothing to note.

A target module imports what is true of it, and has ``NAME``, ``SUMMARY`` and ``render`` of its own.
"""

from __future__ import annotations

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from rackfit.exporters.launch.deployment import Deployment
from rackfit.exporters.launch.limit import Limit

__all__ = ["approximate", "limits", "notes"]


def limits(deployment: Deployment) -> list[Limit]:
    """None."""
    return []


def approximate(instance: Instance, layout: Layout) -> Layout:
    """The layout itself."""
    return layout


def notes(deployment: Deployment) -> list[str]:
    """None."""
    return []
