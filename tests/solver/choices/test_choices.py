"""Options as choices: the cheapest combination of values, under the least of their bounds, as enumeration finds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costmodel.evaluate import evaluate
from costmodel.models.spec import Attention, DenseFFN, ModelSpec, MoE, Sublayer, Weights
from costmodel.question.choices import resolved
from costmodel.question.choices.options import Choices, Values
from costmodel.question.choices.resolved import alternatives
from costmodel.question.instance import Instance
from costmodel.question.scenario import Scenario
from solver.clock import Clock
from solver.search import search
from solver.verify import usd_per_m_output
from tests.conftest import make_tiny, with_drafts
from tests.solver.enumerated_fleets import least_cost
from tests.solver.enumeration import Best, best_replicas
from tests.solver.place.enumerated_places import enumerate_best, with_tiers
from topology.errors import NoFeasibleLayout

Make = Callable[[Path, int], Instance]

#: chips, layers, experts
SIZES = [(2, 3, 0), (3, 2, 2), (2, 2, 4)]


def choosing(instance: Instance, **values: Any) -> Instance:
    """The same question with choices."""
    scenario = instance.scenario.model_copy(update={"choices": Choices(**values)})
    return replace(instance, scenario=scenario)


def drafting(folder: Path, seed: int) -> Instance:
    plain = make_tiny(folder, seed, *SIZES[seed % 3])
    return choosing(drafting_of(plain, seed), drafts=(0, 1, 2))


def drafting_of(plain: Instance, seed: int) -> Instance:
    """The question with one draft, of which a second would be accepted less often."""
    rng = np.random.default_rng(seed)
    curve = sorted(rng.uniform(0.2, 0.95, 2).tolist(), reverse=True)
    whole = with_drafts(plain, 1, curve[0])
    drafts = whole.scenario.speculative
    assert drafts is not None
    drafts = drafts.model_copy(update={"acceptance": tuple(curve)})
    scenario = whole.scenario.model_copy(update={"speculative": drafts})
    return replace(whole, scenario=scenario)


def overlapping(folder: Path, seed: int) -> Instance:
    """Experts on two chips or three."""
    plain = make_tiny(folder, seed, *SIZES[1 + seed % 2])
    return choosing(exchanging(plain, seed), overlap=(False, True))


def exchanging(plain: Instance, seed: int) -> Instance:
    """The question with exchanges that are fast or slow, so that to hide them pays or not."""
    rng = np.random.default_rng(seed)
    changed = {"all_to_all": float(rng.uniform(0.02, 0.3)), "layer_overhead_s": 0.0}
    own = plain.profile.default.model_copy(update=changed)
    profile = plain.profile.model_copy(update={"default": own})
    return replace(plain, profile=profile)


def chunked(folder: Path, seed: int) -> Instance:
    return choosing(make_tiny(folder, seed, *SIZES[seed % 3]), chunk=(8, 24, 64))


def with_precisions(folder: Path, seed: int) -> Instance:
    return choosing(make_tiny(folder, seed, *SIZES[seed % 3]), kv_dtype=("bf16", "fp8"))


def with_weights(folder: Path, seed: int) -> Instance:
    return choosing(make_tiny(folder, seed, *SIZES[seed % 3]), weight_dtype=("bf16", "fp8"))


#: each freedom alone
FREEDOMS: dict[str, Make] = {
    "drafts": drafting, "overlap": overlapping, "chunk": chunked, "kv_dtype": with_precisions,
    "weight_dtype": with_weights,
}  # fmt: skip


def narrowed(model: ModelSpec, weight_dtype: str | None, kv_dtype: str | None) -> ModelSpec:
    """A tiny model in other precisions: half the bytes of its matrices for fp8, multiplied as they are."""

    def lighter(weights: tuple[Weights, ...]) -> tuple[Weights, ...]:
        return tuple(replace(one, num_bytes=one.num_bytes / 2) for one in weights)

    def light(part: Sublayer) -> Sublayer:
        if isinstance(part, MoE):
            return replace(part, expert_bytes=part.expert_bytes / 2, router=lighter(part.router))
        assert isinstance(part, Attention | DenseFFN)
        return replace(part, weights=lighter(part.weights))

    layers = model.layers
    if weight_dtype == "fp8":
        layers = tuple(
            replace(layer, sublayers=tuple(light(part) for part in layer.sublayers))
            for layer in layers
        )
    return replace(model, layers=layers, kv_dtype=kv_dtype or model.kv_dtype)


def check(
    instance: Instance,
    monkeypatch: pytest.MonkeyPatch,
    more: Callable[[Instance], list[Best]] = lambda _: [],
) -> tuple[str, Values | None]:
    """Solve and enumerate every combination; fail unless they agree. How they did, and what was chosen.

    ``more``: replicas of a question beside those of one group of chips.
    """

    def model_of(scenario: Scenario) -> ModelSpec:
        return narrowed(instance.model, scenario.weight_dtype, scenario.kv_dtype)

    monkeypatch.setattr(resolved, "model_of", model_of)
    least: list[float] = []
    most: list[float] = []
    for _, question in alternatives(instance):
        scale = usd_per_m_output(question)
        for near, found in ((True, least), (False, most)):
            cost = least_cost(question, best_replicas(question, near=near) + more(question))
            found.append(float("inf") if cost is None else cost * scale)
    try:
        result = search(instance, clock=Clock(120), gap=0.0)
    except NoFeasibleLayout:
        assert min(most) == float("inf")
        return "infeasible", None
    assert result.instance is not None
    assert result.instance.scenario.choices is None
    judged = evaluate(result.instance, result.layout)
    assert judged.feasible
    cost = judged.usd_per_m_output_tokens
    assert cost is not None
    assert result.certificate.bound_usd_per_m_output_tokens <= min(least) * (1 + 1e-9)
    for own, chosen in zip(least, result.choices, strict=True):
        assert chosen.bound_usd_per_m_output_tokens <= own * (1 + 1e-9)
        found_cost = chosen.usd_per_m_output_tokens
        assert found_cost is None or found_cost >= own * (1 - 1e-6)
    best = min(result.choices, key=lambda one: one.usd_per_m_output_tokens or float("inf"))
    if cost == pytest.approx(min(least), rel=1e-6):
        return "optimal", best.values
    assert min(least) <= cost <= min(most) * (1 + 1e-6)
    return "between", best.values


def check_tiers(instance: Instance) -> tuple[str, Values | None]:
    """Solve and enumerate every combination of a question whose tiers are a choice; fail unless they agree.

    How they did, and what was chosen. Where several attention ranks keep KV of their own, the search gives each as much room: the answer is then ``between``.
    """
    rates = [enumerate_best(question, one_plan=True) for _, question in alternatives(instance)]
    try:
        result = search(instance, clock=Clock(120), gap=0.0)
    except NoFeasibleLayout:
        assert max(rates) == 0.0
        return "infeasible", None
    cost = result.evaluation.usd_per_m_output_tokens
    assert cost is not None
    rate = result.evaluation.requests_per_s
    bound = result.certificate.bound_usd_per_m_output_tokens
    assert bound <= cost * min(1.0, rate / max(rates)) * (1 + 1e-9)
    best = min(result.choices, key=lambda one: one.usd_per_m_output_tokens or float("inf"))
    if rate == pytest.approx(max(rates), rel=1e-6):
        return "optimal", best.values
    assert rate < max(rates)
    return "between", best.values


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_the_best_of_all_values_equals_enumeration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, freedom: str
) -> None:
    for seed in (3, 4):
        assert check(FREEDOMS[freedom](tmp_path, seed), monkeypatch)[0] != "between"


@pytest.mark.slow
@pytest.mark.parametrize("freedom", FREEDOMS)
def test_the_best_of_all_values_equals_enumeration_on_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, freedom: str
) -> None:
    """Three hundred each; no value is always best."""
    answers: Counter[str] = Counter()
    chosen: Counter[str] = Counter()
    for seed in range(300):
        answer, values = check(FREEDOMS[freedom](tmp_path, seed), monkeypatch)
        answers[answer] += 1
        chosen[str(values)] += 1
    print(freedom, dict(answers), dict(chosen))
    assert answers["between"] <= 6
    assert answers["optimal"] >= 150


@pytest.mark.parametrize(
    "seed", [1, *[pytest.param(s, marks=pytest.mark.slow) for s in range(2, 302)]]
)
def test_the_best_tiers_equal_enumeration(tmp_path: Path, seed: int) -> None:
    plain = with_tiers(make_tiny(tmp_path, seed, 2 + seed % 2, 2, 0), seed)
    instance = choosing(plain, tiers=((), ("host",), ("host", "flash")))
    assert check_tiers(instance)[0] != "between"
