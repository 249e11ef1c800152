"""Freedoms together: random mixes of choices and whole trays, as enumeration of every combination finds them."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costmodel.models.spec import ModelSpec
from costmodel.question.choices import resolved
from costmodel.question.instance import Instance
from costmodel.question.scenario import Scenario
from tests.conftest import make_tiny
from tests.solver.apart.test_enumeration import apart
from tests.solver.choices.test_choices import (
    SIZES,
    check,
    check_tiers,
    choosing,
    drafting_of,
    exchanging,
    narrowed,
)
from tests.solver.enumerated_apart import apart_replicas
from tests.solver.place.enumerated_places import with_tiers
from tests.solver.test_granularity import in_trays

#: values of each choice; whole trays are no choice but another rule of the same question
VALUES: dict[str, Any] = {
    "drafts": (0, 1, 2), "overlap": (False, True), "chunk": (8, 64), "kv_dtype": ("bf16", "fp8"),
    "weight_dtype": ("bf16", "fp8"),
}  # fmt: skip
TRAYS = "trays"
PAIRS = list(combinations([*VALUES, TRAYS], 2))
#: chips, layers, experts where chips come in trays of two
OF_TRAYS = [(4, 2, 0), (4, 2, 2)]


def mix(seed: int) -> tuple[str, ...]:
    """Each pair in turn, every third time with one more freedom."""
    rng = np.random.default_rng(seed)
    pair = PAIRS[seed % len(PAIRS)]
    rest = [name for name in (*VALUES, TRAYS) if name not in pair]
    return (*pair, rest[int(rng.integers(len(rest)))]) if seed // len(PAIRS) % 3 == 2 else pair


def mixed(folder: Path, seed: int, names: tuple[str, ...]) -> Instance:
    """A tiny question with these freedoms."""
    sizes = OF_TRAYS if TRAYS in names else SIZES
    instance = make_tiny(folder, seed, *sizes[seed % len(sizes)])
    if "overlap" in names:
        instance = exchanging(instance, seed)
    if "drafts" in names:
        instance = drafting_of(instance, seed)
    if TRAYS in names:
        instance = in_trays(instance, 2)
    return choosing(instance, **{name: VALUES[name] for name in names if name != TRAYS})


@pytest.mark.parametrize("seed", [3, 14, 40])
def test_a_mix_equals_enumeration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    assert check(mixed(tmp_path, seed, mix(seed)), monkeypatch)[0] != "between"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_mixes_equal_enumeration_on_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    """A thousand and twenty in all, in which every pair of freedoms occurs 68 times and more."""
    answers: Counter[str] = Counter()
    met: Counter[tuple[str, str]] = Counter()
    for seed in range(102 * part, 102 * part + 102):
        names = mix(seed)
        met.update(combinations(sorted(names), 2))
        answers[check(mixed(tmp_path, seed, names), monkeypatch)[0]] += 1
    print(part, dict(answers), dict(met))
    assert len(met) == len(PAIRS)
    assert answers["optimal"] >= 51
    assert answers["between"] <= 3


#: choices that combine with attention and experts apart
BESIDE_APART = ("chunk", "kv_dtype", "weight_dtype")


def split(folder: Path, seed: int, names: tuple[str, ...]) -> Instance:
    """A tiny question whose experts may be apart, with these choices."""
    instance = apart(make_tiny(folder, seed, 3, 2, 2), seed)
    return choosing(instance, **{name: VALUES[name] for name in names})


def test_a_choice_with_experts_apart_equals_enumeration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = split(tmp_path, 2, ("weight_dtype",))
    assert check(question, monkeypatch, apart_replicas)[0] != "between"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_choices_with_experts_apart_equal_enumeration_on_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    answers: Counter[str] = Counter()
    pairs = list(combinations(BESIDE_APART, 2))
    for seed in range(40 * part, 40 * part + 40):
        names = (BESIDE_APART[seed % 3],) if seed % 4 < 2 else pairs[seed % 3]
        answers[check(split(tmp_path, seed, names), monkeypatch, apart_replicas)[0]] += 1
    print(part, dict(answers))
    assert answers["optimal"] >= 20
    assert answers["between"] <= 1


#: tiers that are a choice
TIERS: Any = ((), ("host",), ("host", "flash"))


@pytest.mark.parametrize(
    "seed", [1, *[pytest.param(s, marks=pytest.mark.slow) for s in range(2, 122)]]
)
def test_tiers_with_another_choice_equal_enumeration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    other = BESIDE_APART[seed % 3]
    plain = with_tiers(make_tiny(tmp_path, seed, 2, 2, 0), seed)

    def model_of(scenario: Scenario) -> ModelSpec:
        return narrowed(plain.model, scenario.weight_dtype, scenario.kv_dtype)

    monkeypatch.setattr(resolved, "model_of", model_of)
    instance = choosing(plain, tiers=TIERS, **{other: VALUES[other]})
    assert check_tiers(instance)[0] != "between"


def keeping(folder: Path, seed: int, beside: str) -> Instance:
    """A tiny question whose KV may lie in tiers, where chips come in trays or passes may, or must, run in two halves."""
    if beside == TRAYS:
        sold = in_trays(make_tiny(folder, seed, 4, 2, 2 * (seed % 8 == 4)), 2)
        return choosing(with_tiers(sold, seed), tiers=TIERS)
    plain = exchanging(make_tiny(folder, seed, 2 + seed % 2, 2, 2), seed)
    halves = VALUES["overlap"] if seed // 2 % 2 else (True,)
    return choosing(with_tiers(plain, seed), tiers=TIERS[:2], overlap=halves)


@pytest.mark.parametrize(("beside", "seed"), [(TRAYS, 1), ("overlap", 2)])
def test_tiers_in_trays_or_in_halves_equal_enumeration(
    tmp_path: Path, beside: str, seed: int
) -> None:
    assert check_tiers(keeping(tmp_path, seed, beside))[0] != "between"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("beside", [TRAYS, "overlap"])
def test_tiers_in_trays_or_in_halves_equal_enumeration_on_many(
    tmp_path: Path, beside: str, part: int
) -> None:
    """Sixty-four each."""
    answers: Counter[str] = Counter()
    chosen: Counter[str] = Counter()
    for seed in range(8 * part, 8 * part + 8):
        answer, values = check_tiers(keeping(tmp_path, seed, beside))
        answers[answer] += 1
        chosen[str(values)] += 1
    print(beside, part, dict(answers), dict(chosen))
    assert answers["optimal"] >= 1
    assert answers["between"] == 0
