"""Layers by machine on tiny questions: what the search proves is what trying every placement finds."""

from __future__ import annotations

import pytest

from solver.clock import Clock
from solver.flow.borders import Borders
from solver.flow.cover import Cover
from solver.flow.groups import kinds_of
from solver.flow.search import SAME, place_layers
from tests.solver.flow.enumerated_flows import best_of_all, tiny


def agree(seed: int) -> None:
    question = tiny(seed)
    best = best_of_all(question)
    found = place_layers(question, seed=seed)
    cover = Cover(kinds_of(question), question.model.layers, clock=Clock()).tighten()
    assert cover >= best * (1 - SAME), "the bound is below a placement"
    assert found.bound_tokens_per_s >= best * (1 - SAME), "the bound is below a placement"
    borders = Borders(question, kinds_of(question), clock=Clock())
    for share in (0.5, 0.9, 1 - SAME):
        assert not borders.exclude(best * share), "a flow is excluded that a placement passes"
    assert found.tokens_per_s == pytest.approx(best, rel=SAME)
    assert found.optimal


@pytest.mark.parametrize("seed", range(60))
def test_the_search_finds_and_proves_the_best_of_all_placements(seed: int) -> None:
    agree(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_the_search_finds_and_proves_the_best_of_all_placements_of_more_questions(
    seed: int,
) -> None:
    agree(seed)
