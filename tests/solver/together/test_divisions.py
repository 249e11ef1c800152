"""Several models on tiny clusters: the answer is the best of all divisions of the chips, the bound is never beaten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pytest

from costmodel.question.instance import Instance
from solver.clock import Clock
from solver.together.search import search_together
from tests.solver.enumeration import best_replicas
from tests.solver.together.enumerated_divisions import (
    divisions,
    least_usd,
    models_of,
    most_factor,
    on_one_cluster,
    served_on,
)
from topology.errors import NoFeasibleLayout, VerificationError

Tiny = Callable[[int, int, int, int], Instance]
Odd = Callable[[int], Instance]


def check(instances: Sequence[Instance], rng: np.random.Generator, pay: str) -> str | None:
    """Search and enumerate; fail unless they agree. Which answer both have; ``None``: no division serves all models.

    Rates are near what some division serves. How far KV travels depends on the fleet: the answer lies between the
    enumerations for the nearest and for the farthest chip, the bound holds for the nearest.
    """
    near = [served_on(one, best_replicas(one, near=True)) for one in instances]
    listed = divisions(instances[0], near)
    serving = [served for _, served in listed if min(served) > 0]
    if not serving:
        return None
    aim = serving[rng.integers(len(serving))]
    near_it = (0.3, 0.95) if rng.random() < 0.75 else (0.95, 1.2)
    rates = [float(rate * rng.uniform(*near_it)) for rate in aim]
    models = models_of(instances, rates, pay)
    least = least_usd(listed, rates)
    try:
        found = search_together(models, clock=Clock(120), gap=0.0)
    except NoFeasibleLayout:
        if least is None:
            return "infeasible"
        far = [served_on(one, best_replicas(one, near=False)) for one in instances]
        assert least_usd(divisions(instances[0], far), rates) is None
        return "between"
    assert least is not None
    assert not found.judged.violations
    assert all(evaluation.feasible for evaluation in found.judged.evaluations)
    used = [chip for layout in found.layouts for one in layout.replicas for chip in one.chips]
    assert len(used) == len(set(used))
    whole = pay == "whole"
    best = most_factor(listed, rates) if whole else least
    answer = found.judged.headroom if whole else found.judged.usd_per_hour
    if whole:
        assert found.bound >= best * (1 - 1e-6)
    else:
        assert found.bound <= best * (1 + 1e-9)
    if answer == pytest.approx(best, rel=1e-5):
        return "optimal"
    far = [served_on(one, best_replicas(one, near=False)) for one in instances]
    listed = divisions(instances[0], far)
    if whole:
        assert most_factor(listed, rates) * (1 - 1e-5) <= answer < best
    else:
        worst = least_usd(listed, rates)
        assert best < answer
        assert worst is not None
        assert answer <= worst * (1 + 1e-6)
    return "between"


def report(answers: Sequence[str]) -> Counter[str]:
    """Print what was compared; of answers nearly all are optimal."""
    count = Counter(answers)
    print(f"{len(answers)} questions: {dict(count)}")
    assert count["between"] <= 0.05 * len(answers)
    assert count["optimal"] >= 0.5 * len(answers) or len(answers) < 10
    return count


#: chips of one domain; layers and experts of two models
SIZES = [(4, (2, 0), (3, 0)), (4, (2, 2), (2, 0)), (6, (2, 0), (2, 0)), (8, (2, 0), (2, 0))]


def asked(pairs: Iterable[tuple[int, tuple[Instance, ...]]], number: int, pay: str) -> Counter[str]:
    """The first so many questions in which some division serves all models."""
    answers: list[str] = []
    for seed, instances in pairs:
        if len(answers) == number:
            break
        answer = check(instances, np.random.default_rng(seed), pay)
        answers += [answer] if answer is not None else []
    assert len(answers) == number
    return report(answers)


@pytest.mark.parametrize("pay", ["used", "whole"])
@pytest.mark.parametrize(("chips", "one", "other"), SIZES)
def test_two_models_on_a_domain(
    tiny: Tiny, chips: int, one: tuple[int, int], other: tuple[int, int], pay: str
) -> None:
    pairs = (
        (seed, on_one_cluster(tiny(seed, chips, *one), tiny(seed + 500, chips, *other)))
        for seed in range(3000, 3060)
    )
    asked(pairs, 1 if one[1] else 4, pay)


def odd_pairs(odd: Odd, seeds: range) -> Iterator[tuple[int, tuple[Instance, ...]]]:
    """Two models on unlike, mixed and degraded domains."""
    for seed in seeds:
        yield seed, on_one_cluster(odd(seed), odd(seed + 5000))


@pytest.mark.parametrize("pay", ["used", "whole"])
def test_two_models_on_odd_clusters(odd: Odd, pay: str) -> None:
    pairs = (pair for seed in (0, 9, 1020) for pair in odd_pairs(odd, range(seed, seed + 1)))
    asked(pairs, 3, pay)


@pytest.mark.slow
@pytest.mark.parametrize("pay", ["used", "whole"])
@pytest.mark.parametrize("part", range(4))
def test_two_models_on_many_odd_clusters(odd: Odd, pay: str, part: int) -> None:
    count = asked(odd_pairs(odd, range(1000 + 500 * part, 1500 + 500 * part)), 30, pay)
    assert pay == "whole" or count["infeasible"] >= 1


@pytest.mark.slow
def test_three_models_on_a_domain(tiny: Tiny) -> None:
    pairs = (
        (seed, on_one_cluster(*(tiny(seed + 500 * more, 6, 2, 0) for more in range(3))))
        for seed in range(3000, 3060)
    )
    asked(pairs, 10, "used")


def test_a_stopped_search_does_not_hide_a_bound_that_is_beaten(tiny: Tiny) -> None:
    models = models_of([tiny(seed, 2, 2, 0) for seed in (1, 1)], [1e-3, 1e-3], "used")
    clock = Clock(120)
    found = search_together(models, clock=clock, gap=0.0)
    rounds = clock.kept.__self__  # type: ignore[attr-defined]
    assert clock.kept().bound == pytest.approx(found.bound)
    rounds.bound = found.judged.usd_per_hour * 1.01
    with pytest.raises(VerificationError, match="better than the bound"):
        clock.kept()
