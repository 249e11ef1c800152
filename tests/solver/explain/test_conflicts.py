"""Planted causes are named, and the nearest change solves while 1 % less does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from costmodel.evaluate import evaluate
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.cli.app import build_app, exit_code
from solver.clock import Clock
from solver.explain.conflicts import Explanation, explain_conflict
from solver.explain.relax import limits_of, with_hbm
from solver.search import search
from topology.errors import NoFeasibleLayout, RackfitError

LONG = {"input_tokens": 120_000, "output_tokens": 1000}
#: shapes kept few, so that many solves take little time
NARROW = {"max_pipeline_stages": 2, "max_domains_per_replica": 2}
CHAT = {"input_tokens": 2000, "output_tokens": 500}

#: name: model, what is asked, the smallest conflicting sets
PLANTED: dict[str, tuple[str, dict[str, Any], list[set[str]]]] = {
    "tpot": ("llama-3.1-8b", {"slo": {"tpot": 1e-3, "ttft": 1.0}}, [{"tpot"}]),
    "tpot of a larger model": ("llama-3.1-70b", {"slo": {"tpot": 5e-3}}, [{"tpot"}]),
    "ttft": ("llama-3.1-8b", {"slo": {"ttft": 0.02}}, [{"ttft", "context"}]),
    "ttft below any pass": ("llama-3.1-70b", {"slo": {"ttft": 1e-3}}, [{"ttft"}]),
    "tpot and ttft": (
        "llama-3.1-8b", {"slo": {"tpot": 1e-3, "ttft": 1e-3}}, [{"tpot"}, {"ttft"}],
    ),
    "hbm": ("llama-3.1-405b", {}, [{"hbm", "chips"}]),
    "hbm and tpot": ("llama-3.1-405b", {"slo": {"tpot": 5e-3}}, [{"tpot"}, {"hbm", "chips"}]),
    "rate": (
        "llama-3.1-8b", {"rate": 400.0, "slo": {"tpot": 0.03}}, [{"rate", "chips", "context"}],
    ),
    "batch": (
        "llama-3.1-8b", {"rate": 60.0, "limits": {**NARROW, "max_sequences_per_rank": 1}},
        [{"rate", "chips", "context", "batch"}],
    ),
    "context": (
        "llama-3.1-8b", {"workload": LONG, "slo": {"ttft": 2.0}, "limits": {}}, [{"ttft", "chips", "context"}],
    ),
}  # fmt: skip

#: causes of a kind that a quicker one stands for: they run with the long checks
LASTING = {"batch", "hbm and tpot", "tpot of a larger model", "context", "ttft"}


def asked(model: str, given: dict[str, Any]) -> Instance:
    """The instance of one planted cause: on one HGX H100 node unless it says otherwise."""
    return resolve_instance(
        Scenario.model_validate(
            {"cluster": "hgx-h100", "workload": CHAT, "limits": NARROW, **given, "model": model}
        )
    )


def solves(instance: Instance) -> bool:
    """Whether a layout is found that the evaluator accepts."""
    try:
        found = search(instance, clock=Clock(60), gap=1e6)
    except NoFeasibleLayout:
        return False
    assert evaluate(instance, found.layout).feasible
    return True


def changed(instance: Instance, why: Explanation, repair: int, last: str) -> Instance:
    """The instance after a repair, its last change at ``value`` or ``fails_at``."""
    *earlier, final = why.repairs[repair]
    for change in earlier:
        instance = change.limit.with_value(instance, change.value)
    return final.limit.with_value(instance, getattr(final, last))


@pytest.mark.parametrize(
    "cause",
    [pytest.param(cause, marks=[pytest.mark.slow] * (cause in LASTING)) for cause in PLANTED],
)
def test_planted_cause_is_named_and_its_nearest_change_solves(cause: str) -> None:
    model, given, expected = PLANTED[cause]
    instance = asked(model, given)
    why = explain_conflict(instance, clock=Clock(120))
    assert why is not None
    assert why.proven
    assert [{limit.key for limit in limits} for limits in why.conflicts] == expected
    assert why.repairs
    if len(expected) == 1:  # each limit of the only conflict repairs it alone
        assert {change.limit.key for (change,) in why.repairs} == expected[0]
    for number, repair in enumerate(why.repairs):
        assert solves(changed(instance, why, number, "value"))
        assert not solves(changed(instance, why, number, "fails_at"))
        for change in repair:
            step = abs(change.value - change.fails_at)
            allowed = 0.0100001 * max(change.value, change.fails_at)
            assert 0 < step <= (max(1.0, allowed) if change.limit.whole else allowed)


def test_what_fits_is_not_explained_away() -> None:
    assert explain_conflict(asked("llama-3.1-8b", {}), clock=Clock()) is None


def test_tiny_instances_of_mixtures_are_explained(
    tiny: Callable[[int, int, int, int], Instance],
) -> None:
    explained = 0
    for seed in range(1000, 1005):
        instance = tiny(seed, 2, 2, 4)
        tight = {limit.key: limit for limit in limits_of(instance, None)}["tpot"]
        instance = tight.with_value(instance, tight.asked / 10)
        why = explain_conflict(instance, clock=Clock(60))
        assert (why is None) == solves(instance)
        if why is None:
            continue
        explained += 1
        assert why.conflicts
        for number in range(len(why.repairs)):
            assert solves(changed(instance, why, number, "value"))
            assert not solves(changed(instance, why, number, "fails_at"))
    assert explained >= 2


def test_dropping_a_limit_changes_nothing_else() -> None:
    instance = asked("llama-3.1-8b", {"rate": 5.0, "slo": {"tpot": 0.05, "ttft": 1.0}})
    limits = {limit.key: limit for limit in limits_of(instance, None)}
    assert set(limits) == {"tpot", "ttft", "rate", "hbm", "chips", "context", "batch"}
    free = limits["tpot"].with_value(instance, 1.0)
    assert free.slo.tpot == 1.0
    assert free.slo.ttft == 1.0
    assert limits["rate"].dropped(instance).scenario.rate is None
    assert limits["context"].with_value(instance, 250).workload.input_tokens == 200
    assert len(limits["chips"].with_value(instance, 3).cluster.chips) == 24
    more = limits["chips"].with_value(limits["hbm"].with_value(instance, 1e12), 2)
    assert {placed.chip.hbm_bytes for placed in more.cluster.chips} == {1e12}


def test_more_chips_are_those_of_the_question() -> None:
    """What a question changes of its cluster holds on more copies of it, too; what is broken or taken stays so."""
    more = {
        "chip": {"hbm_bytes_per_s": "-60%"},
        "failed": ["r0g1"],
        "taken": ["r1"],
        "scale_out": {"oversubscription": 4},
    }
    instance = asked("llama-3.1-8b", {**more, "cluster": "hgx-h100@2"})
    (chips,) = (limit for limit in limits_of(instance, None) if limit.key == "chips")
    larger = chips.with_value(instance, 3).cluster
    assert {placed.chip for placed in larger.chips} == {
        placed.chip for placed in instance.cluster.chips
    }
    assert [len(domain.usable) for domain in larger.domains] == [7, 0, 8]
    assert larger.network is not None
    assert larger.network.spec.oversubscription == 4
    assert chips.show(3.0) == "15 chips (hgx-h100@3)"


def test_more_hbm_keeps_failures_and_prices() -> None:
    cluster = asked("llama-3.1-8b", {}).cluster
    larger = with_hbm(cluster, 2 * cluster.chips[0].chip.hbm_bytes)
    assert larger.chips[0].chip.hbm_bytes == 2 * cluster.chips[0].chip.hbm_bytes
    assert larger.chips[0].chip.usd_per_hour == cluster.chips[0].chip.usd_per_hour
    assert [placed.id for placed in larger.usable] == [placed.id for placed in cluster.usable]


def rackfit(*args: str) -> tuple[int, str]:
    """Exit code and stdout of one command."""
    result = CliRunner().invoke(build_app(), list(args))
    if isinstance(result.exception, RackfitError):
        return exit_code(result.exception), result.stdout
    return result.exit_code, result.stdout


def test_command_explains_in_words_and_as_json() -> None:
    flags = ["explain", "--model", "llama-3.1-8b", "--cluster", "hgx-h100", "--tpot", "1 ms"]
    code, text = rackfit(*flags)
    assert code == 0
    assert "Smallest conflicting set of limits: TPOT = 1 ms" in text
    assert "does not solve" in text
    code, text = rackfit(*flags, "--json")
    assert code == 0
    answer = json.loads(text)["explanation"]
    assert answer["fits"] is False
    assert answer["conflicts"] == [["tpot"]]
    ((change,),) = answer["repairs"]
    assert change["solves_at"] * 0.985 < change["fails_at"] < change["solves_at"]


def test_command_says_what_binds_when_something_fits() -> None:
    flags = ["explain", "--model", "llama-3.1-8b", "--cluster", "hgx-h100", "--tpot", "30 ms"]
    code, text = rackfit(*flags, "--json")
    assert code == 0
    answer = json.loads(text)["explanation"]
    assert answer["fits"] is True
    binding = {use["limit"] for use in answer["limits"] if use["binds"]}
    assert {"tpot", "chips"} <= binding
    code, text = rackfit(*flags)
    assert code == 0
    assert "a layout fits" in text
    assert "TPOT" in text


def test_command_refuses_bad_input() -> None:
    assert rackfit("explain", "--model", "nope", "--cluster", "hgx-h100")[0] == 2
    flags = ["--model", "llama-3.1-8b", "--cluster", "hgx-h100"]
    assert rackfit("explain", *flags, "--time-limit", "-1")[0] == 2
