"""What a target cannot say of a layout."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limit:
    """Something of a layout that a target cannot say.

    ``approximable``: the target's ``approximate`` makes a layout without it.
    """

    place: str
    message: str
    approximable: bool

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"
