"""What came of a question, and how two documents differ."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from topology.errors import VerificationError

#: relative rounding of one figure worked out twice
ROUNDING = 1e-9


@dataclass
class Outcome:
    """What came of a question. ``binding``: its answer costs more than with unlimited NICs.

    ``binding`` is ``proven`` where the bound says so, ``found`` where only the answers differ by more than
    the gap.
    """

    seed: int
    answer: str = ""
    cost: float | None = None
    bound: float | None = None
    gap: float | None = None
    solve_s: float = 0.0
    wall_s: float = 0.0
    binding: str = ""
    relations: int = 0
    failures: list[dict[str, str]] = field(default_factory=list)

    def fail(self, kind: str, detail: str) -> None:
        """Note a fault."""
        self.failures.append({"kind": kind, "detail": detail[:600]})

    def as_dict(self) -> dict[str, Any]:
        """Plain data, a line of the hunt's file."""
        return asdict(self)

    @contextmanager
    def guarded(self, step: str) -> Iterator[None]:
        """Note whatever is raised inside as a fault of a step."""
        try:
            yield
        except Exception as error:
            kind = "exit 4" if isinstance(error, VerificationError) else "traceback"
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(frame.filename).name}:{frame.lineno}"
            self.fail(kind, f"{step}: {type(error).__name__}: {error} ({place})")


def differing(then: Any, now: Any, place: str = "") -> str:
    """The first place where two documents differ by more than rounding; empty if none."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in {**then, **now}:
            if found := differing(then.get(key), now.get(key), f"{place}.{key}"):
                return found
        return ""
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for index, (a, b) in enumerate(zip(then, now, strict=True)):
            if found := differing(a, b, f"{place}[{index}]"):
                return found
        return ""
    numbers = isinstance(then, int | float) and isinstance(now, int | float)
    same = math.isclose(then, now, rel_tol=ROUNDING) if numbers else then == now
    return "" if same else f"{place.lstrip('.')}: {then} -> {now}"
