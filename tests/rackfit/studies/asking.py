"""Asks one set of a study's axes, so that a table of the blackboard needs no search."""

from __future__ import annotations

from typing import Any

from rackfit.studies.base import Options, Row, solved
from rackfit.studies.registry import find_study
from rackfit.studies.run import StudyResult, study


def ask(
    name: str, over: dict[str, list[Any]], options: Options | None = None, **base: Any
) -> StudyResult:
    """A study over the sets of axes that ``over`` names, the others left out."""
    found = find_study(name)
    scenario = {**found.default, **base}
    named = found.axes({**scenario, **found.fixed})
    blocks = [named] if isinstance(named, dict) else named
    left_out = {
        key: []
        for block in blocks
        if not set(block) & set(over)
        for key in block
        if key not in over
    }
    return study(name, scenario, over={**left_out, **over}, options=options or Options(gap=0.05))


def rows(name: str, over: dict[str, list[Any]], **base: Any) -> list[Row]:
    """The table; every point must have an answer."""
    result = ask(name, over, **base)
    assert not result.failed, result.failed[0]["error"]
    return solved(result.rows)
