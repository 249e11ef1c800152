"""Searches for traffic on the fewest draws that they may replay: for what holds of any layout that they find."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from solver.traffic import asked


@contextmanager
def few_draws() -> Iterator[None]:
    """Layouts are chosen by two draws beside the requests as they are, and confirmed on four: seven replays, not up to 21."""
    with pytest.MonkeyPatch.context() as few:
        few.setattr(asked, "_TOGETHER", 0)
        few.setattr(asked, "_TOGETHER_FRESH", 0)
        yield
