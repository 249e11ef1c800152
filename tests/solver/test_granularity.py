"""Chips taken as they are sold: answers equal the best of all layouts that the judge accepts, by enumeration."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import yaml

from costmodel.evaluate import evaluate
from costmodel.question.instance import Instance, resolve_instance
from solver.clock import Clock
from solver.search import search
from tests.solver.test_exhaustive import check, report
from tests.solver.tori.enumerator import Enumerator
from tests.solver.tori.questions import draw
from topology import load_cluster
from topology.errors import InstanceError, NoFeasibleLayout

Odd = Callable[[int], Instance]
Tiny = Callable[[int, int, int, int], Instance]
Shape = tuple[int, ...]

#: shapes of slices of each small torus, each of which divides the next
CHAINS: dict[Shape, list[Shape]] = {
    (2, 2): [(1, 1), (1, 2), (2, 2)],
    (2, 3): [(1, 1), (1, 3), (2, 3)],
    (2, 4): [(1, 1), (1, 2), (2, 2), (2, 4)],
    (3, 3): [(1, 1), (1, 3), (3, 3)],
    (2, 2, 2): [(1, 1, 1), (1, 1, 2), (1, 2, 2), (2, 2, 2)],
    (1, 5): [(1, 1), (1, 5)],
}


def in_trays(instance: Instance, unit: int) -> Instance:
    """The question on the same chips, sold so many at a time."""
    path = Path(instance.scenario.cluster)
    cluster = yaml.safe_load(path.read_text())
    for domain in cluster["domains"]:
        domain["granularity"] = {"tray": unit}
    sold = path.with_name(f"trays-{path.name}")
    sold.write_text(yaml.safe_dump({**cluster, "sold_as": "tray"}))
    scenario = instance.scenario.model_copy(update={"cluster": str(sold)})
    return replace(instance, scenario=scenario, cluster=load_cluster(sold))


def test_whole_trays_equal_enumeration(tiny: Tiny) -> None:
    sizes = [(4, 3, 0), (4, 2, 2), (6, 2, 0)]
    report([check(in_trays(tiny(seed, *size), 2)) for size in sizes for seed in range(1000, 1003)])


def test_trays_with_failed_chips_equal_enumeration(odd: Odd) -> None:
    outcomes = []
    for seed in range(30):
        instance = in_trays(odd(seed), 2)
        if instance.cluster.sold and len(outcomes) < 6:
            outcomes.append(check(instance))
    assert len(outcomes) == 6


def nested(low: Shape, sides: Shape, chain: list[Shape]) -> Iterator[frozenset[Shape]]:
    """The box from ``low`` on, where it is on the chain, and those that it is cut into, down the chain."""
    if sides in chain:
        yield frozenset(product(*(range(a, a + n) for a, n in zip(low, sides, strict=True))))
    smaller = [
        shape
        for shape in chain
        if shape < sides and all(a <= b for a, b in zip(shape, sides, strict=True))
    ]
    if smaller:
        part = smaller[-1]
        steps = [range(a, a + n, m) for a, n, m in zip(low, sides, part, strict=True)]
        for corner in product(*steps):
            yield from nested(corner, part, chain)


def sold_sets(shape: Shape, chain: list[Shape]) -> set[frozenset[str]]:
    """Ids of the chips of every slice of a torus."""
    number = {site: at for at, site in enumerate(product(*(range(side) for side in shape)))}
    boxes = nested((0,) * len(shape), shape, chain)
    return {frozenset(f"r0g{number[site]}" for site in box) for box in boxes}


def against_slices(seed: int, folder: Path) -> float | None:
    """The answer over the best fleet on any slices; ``None`` where nothing fits on any."""
    plain = draw(seed, folder)
    path = Path(plain.scenario.cluster)
    cluster = yaml.safe_load(path.read_text())
    fabric = cluster["domains"][0]["fabric"]
    shape, dice = tuple(fabric["shape"]), random.Random(seed)
    chain = [one for one in CHAINS[shape] if one == shape or dice.random() < 0.7]
    links = [name.removeprefix("r0").split("--r0") for name in cluster["failed"] if "--" in name]
    cluster["domains"][0]["granularity"] = {"slice": [list(one) for one in chain]}
    path.write_text(yaml.safe_dump(cluster))
    asked = plain.scenario.model_copy(update={"granularity": "slice"})
    if not load_cluster(path, granularity="slice").sold:
        with pytest.raises(InstanceError, match="no unit or slice"):
            resolve_instance(asked)
        return None
    instance = resolve_instance(asked)
    sets = {
        chips
        for chips in sold_sets(shape, chain)
        if not any({f"r0{end}" for end in link} <= chips for link in links)
    }
    try:
        found = search(instance, clock=Clock(60))
        assert found.evaluation.feasible
        answer, bound = (
            found.evaluation.usd_per_m_output_tokens,
            found.certificate.bound_usd_per_m_output_tokens,
        )
        assert answer is not None
        assert {frozenset(replica.chips) for replica in found.layout.replicas} <= sets
    except NoFeasibleLayout as error:
        answer, bound = float("inf"), float("inf") if error.proven else 0.0
    best = float("inf")
    for layout in Enumerator(instance, sets).fleets():
        judged = evaluate(instance, layout)
        if judged.feasible and judged.usd_per_m_output_tokens is not None:
            best = min(best, judged.usd_per_m_output_tokens)
    assert bound <= best * (1 + 1e-9), f"seed {seed}: the bound is beaten"
    if best == float("inf"):
        return None
    assert answer < float("inf"), f"seed {seed}: nothing fits, where something does"
    return answer / best


@pytest.mark.parametrize("seed", range(12))
def test_slices_equal_enumeration(seed: int, tmp_path: Path) -> None:
    ratio = against_slices(seed, tmp_path)
    assert ratio is None or ratio <= 1 + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_trays_equal_enumeration_on_many(tiny: Tiny, odd: Odd, part: int) -> None:
    """Three hundred on whole racks of trays, and those of odd clusters that have one."""
    seeds = range(1000 + 20 * part, 1020 + 20 * part)
    sizes = [(4, 3, 0), (4, 2, 2), (6, 2, 0)]
    report([check(in_trays(tiny(seed, *size), 2)) for size in sizes for seed in seeds])
    for seed in range(200 + 40 * part, 240 + 40 * part):
        instance = in_trays(odd(seed), 2)
        if instance.cluster.sold:
            check(instance)


@pytest.mark.slow
def test_slices_equal_enumeration_on_many(tmp_path: Path) -> None:
    ratios = [against_slices(seed, tmp_path) for seed in range(300)]
    fits = [ratio for ratio in ratios if ratio is not None]
    print(
        f"{len(fits)} of {len(ratios)} have an answer; the dearest is {max(fits):.6f} of the best"
    )
    assert len(fits) >= 60
    assert max(fits) <= 1 + 1e-6
