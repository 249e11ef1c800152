"""What whole units run for a model: names, power limits, copies, and layouts that count for what replays say."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from costmodel.evaluate import evaluate
from costmodel.plan.question import PlanModel, PlanQuestion, PlanUnits
from costmodel.question.instance import Instance
from costmodel.question.traffic.load import load_traffic
from costmodel.question.workload import Slo, Workload
from costmodel.replay.replay import Course, replay
from costmodel.replay.targets import Targets, judged
from solver.answer import SearchResult
from solver.clock import Clock
from solver.plan import for_traffic
from solver.plan import units as under_test
from solver.plan.bounds import most
from solver.plan.bounds.few import most_of_few
from solver.plan.day import plan_day
from solver.plan.groups import Start, chips_off, copies, on_units
from solver.plan.offers import _together
from solver.plan.units import Offer, offer
from solver.search import search
from topology import load_cluster
from topology.errors import InstanceError, NoFeasibleLayout, NoLayoutInTime

KIND = "hgx-h100"


def test_a_power_limit_leaves_the_last_chips_of_each_unit_off() -> None:
    own = PlanUnits(cluster=KIND, count=2, power_cap=4000.0)
    assert chips_off(own, 1.3) == (4, pytest.approx(4 * 700 * 1.3))
    assert chips_off(own.model_copy(update={"power_cap": None}), 1.0) == (0, 5600.0)
    assert on_units(KIND, 2, 1) == (f"{KIND}@2", ("r0g7", "r1g7"))
    with pytest.raises(InstanceError, match="a chip draws 910 W, the limit is 500 W"):
        chips_off(own.model_copy(update={"power_cap": 500.0}), 1.3)


def test_copies_stand_on_units_of_their_own_and_carry_as_much_each() -> None:
    model = PlanModel(model="llama-3.1-8b", requests_per_s=(1.0,))
    units = PlanUnits(cluster=KIND, count=1)
    found = offer(model, units, 2, Start("flash", 30.0), clock=Clock(), gap=0.01, seed=0)
    (one,) = found.layouts
    assert one.requests_per_s <= found.most_requests_per_s * (1 + 1e-9)
    assert one.start_s > 30.0
    assert one.requests_per_s <= found.most_of_few[1] <= found.most_requests_per_s * (1 + 1e-9)
    assert found.most_of_few[0] == 0.0
    instance, layout = copies(one, 3, KIND, 2)
    judged_all = evaluate(instance, layout)
    assert judged_all.feasible
    assert judged_all.requests_per_s == pytest.approx(3 * one.requests_per_s)
    used = {chip for replica in layout.replicas for chip in replica.chips}
    assert len(used) == 18
    assert not used & {"r0g6", "r1g7", "r2g6"}


def test_units_on_which_no_layout_was_found_may_carry_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only where a bound says that nothing fits do they carry nothing in the bound of a plan."""
    model = PlanModel(model="llama-3.1-8b", requests_per_s=(30.0,))
    units = tuple(PlanUnits(cluster=kind, count=2) for kind in (KIND, "rtx4090"))
    asked = PlanQuestion(name="p", models=(model,), units=units)
    plain = plan_day(asked, clock=Clock())
    found = most.search

    def on(instance: Instance, **how: Any) -> SearchResult:
        if instance.cluster.name.startswith("rtx4090"):
            raise NoFeasibleLayout("none was found", proven=proven)
        return found(instance, **how)

    monkeypatch.setattr(most, "search", on)
    monkeypatch.setattr(under_test, "search", on)
    small = {}
    for proven in (True, False):
        one = plan_day(asked, clock=Clock())
        assert [column.name for column in one.hours.columns] == [f"llama-3.1-8b on 1 x {KIND}"]
        small[proven] = one.bound_usd
    cheap = load_cluster("rtx4090")
    assert small[False] == pytest.approx(sum(one.chip.usd_per_hour for one in cheap.chips))
    assert small[False] <= plain.bound_usd < small[True]


def with_trace(
    folder: Path, model: str, rows: Iterable[str], ttft: float, tpot: float
) -> PlanModel:
    """A model with such rows of a trace as traffic, and targets in seconds."""
    path = folder / "trace.csv"
    path.write_text("\n".join(("t_s,input_tokens,output_tokens", *rows)) + "\n")
    words = {
        "model": model,
        "traffic": str(path),
        "slo": {"ttft": ttft, "tpot": tpot},
        "requests_per_s": [1.0],
    }
    return PlanModel.model_validate(words)


def long_prompts(requests: int, answer: int) -> Iterator[str]:
    """Rows of a trace with a few prompts of up to 40,000 tokens; answers have ``answer`` at most."""
    rng = random.Random(10)
    for turn in range(requests):
        prompt = min(40_000, int(rng.lognormvariate(7, 1.2)) + 5)
        yield f"{turn / 7:.2f},{prompt},{min(answer, int(rng.lognormvariate(5, 1)) + 2)}"


def test_traffic_counts_at_the_rate_at_which_replays_meet_the_percentiles(tmp_path: Path) -> None:
    rng = random.Random(1)
    rows = (
        f"{t // 3 / 10:.1f},{rng.choice((400, 900, 4100))},{rng.randint(5, 120)}"
        for t in range(1000)
    )
    model = with_trace(tmp_path, "llama-3.1-8b", rows, 0.3, 0.02)
    units = PlanUnits(cluster=KIND, count=1)
    found = offer(model, units, 4, Start("flash", 0.0), clock=Clock(), gap=0.02, seed=0)
    (one,) = found.layouts
    assert 0 < one.requests_per_s < one.steady_requests_per_s
    assert one.requests_per_s <= found.most_requests_per_s
    assert model.traffic is not None
    requests = load_traffic(model.traffic, rate=one.requests_per_s, seed=0).whole_prompts()
    met = replay(one.instance, one.layout, requests, Course.of(one.instance))
    assert judged(met, Targets(0.3, 0.02)).meets


def test_where_long_prompts_are_late_alone_layouts_compute_prompts_quickly(tmp_path: Path) -> None:
    rng, t = random.Random(1), 0.0
    rows = []
    for _ in range(2000):
        t += rng.expovariate(1.0)
        rows.append(f"{t:.3f},{20_000 if rng.random() < 0.03 else 300},200")
    model = with_trace(tmp_path, "llama-3.1-8b", rows, 0.25, 0.02)
    units = PlanUnits(cluster="hgx-h200", count=1)
    found = offer(model, units, 0, Start("flash", 0.0), clock=Clock(), gap=0.02, seed=0)
    # of what suits the mean prompt, nothing computes 20,000 tokens in 250 ms
    (one,) = found.layouts
    assert 0 < one.requests_per_s < one.steady_requests_per_s


def test_no_bound_is_said_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_bound(*words: object, **more: object) -> object:
        found = search(*words, **more)  # type: ignore[arg-type]
        proof = replace(found.certificate, bound_usd_per_m_output_tokens=0.0)
        return replace(found, certificate=proof)

    monkeypatch.setattr(most, "search", without_bound)
    model = PlanModel(model="llama-3.1-8b", requests_per_s=(1.0,))
    with pytest.raises(NoLayoutInTime, match="before a bound"):
        offer(
            model, PlanUnits(cluster=KIND, count=1), 0, Start("flash", 0.0),
            clock=Clock(), gap=0.05, seed=0,
        )  # fmt: skip


def test_a_group_that_can_carry_no_more_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    one_layout = under_test.layout_on

    def counted(model: PlanModel, units: PlanUnits, group: int, *words: Any, **more: Any) -> Any:
        asked.append(group)
        return one_layout(model, units, group, *words, **more)

    monkeypatch.setattr(under_test, "layout_on", counted)
    model = PlanModel(model="llama-3.1-8b", slo=Slo(ttft=2.0, tpot=0.05), requests_per_s=(1.0,))
    units = PlanUnits(cluster="hgx-h200", count=16)
    found = offer(model, units, 0, Start("host", 0.0), clock=Clock(), gap=0.02, seed=0)
    (one,) = found.layouts
    # two units carry at most 2 % more each than one does: the bound says so
    assert found.most_requests_per_s <= one.requests_per_s * under_test.MORE
    assert asked == [1]


def test_no_unit_is_said_to_carry_less_than_a_group_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a search of all units leaves out, groups of a few may run."""
    monkeypatch.setattr(under_test, "most_of_a_unit", lambda *words: (1.0, ()))
    model = PlanModel(model="llama-3.1-8b", requests_per_s=(1.0,))
    units = PlanUnits(cluster=KIND, count=1)
    found = offer(model, units, 0, Start("flash", 0.0), clock=Clock(), gap=0.01, seed=0)
    (one,) = found.layouts
    assert found.most_requests_per_s == one.requests_per_s > 1.0


def test_few_units_are_not_said_to_carry_less_than_groups_of_them_do() -> None:
    """Two nodes run a model in pipeline stages, which bounds look at where nothing else fits: more than they carry was an internal error."""
    model = PlanModel(
        model="llama-3.1-405b", workload=Workload(input_tokens=2000, output_tokens=500),
        slo=Slo(ttft=10.0, tpot=0.1), requests_per_s=(1.0, 2.0),
    )  # fmt: skip
    for count in (2, 3):
        units = (PlanUnits(cluster=KIND, count=count),)
        asked = PlanQuestion(name="p", models=(model,), units=units)
        found = plan_day(asked, clock=Clock())
        assert found.planned.judged.hours[0].serving == (2,)
        assert 0.0 < found.bound_usd <= found.planned.judged.usd
    (own,) = found.offers.values()
    (pair,) = (one for one in own.layouts if one.group == 2)
    assert pair.layout.replicas[0].shape.pp == 2
    assert own.most_of_few[1] == 0.0
    assert own.most_of_few[2] >= pair.requests_per_s


def test_many_units_are_bounded_without_a_search_of_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chips: list[int] = []

    def counted(instance: Instance, **more: Any) -> Any:
        chips.append(len(instance.cluster.usable))
        return search(instance, **more)

    monkeypatch.setattr(under_test, "search", counted)
    model = PlanModel(model="llama-3.1-8b", slo=Slo(ttft=2.0, tpot=0.05), requests_per_s=(1.0,))
    units = PlanUnits(cluster="hgx-h200", count=350)
    found = offer(model, units, 0, Start("host", 0.0), clock=Clock(), gap=0.02, seed=0)
    (one,) = found.layouts
    assert chips == [8]
    assert one.requests_per_s <= found.most_requests_per_s <= one.requests_per_s * under_test.MORE


def test_searches_of_a_model_are_made_by_one_process_where_there_are_enough() -> None:
    units = [PlanUnits(cluster=kind, count=1) for kind in (KIND, "hgx-h200", "hgx-b200")]
    models = [
        PlanModel(model="llama-3.1-8b", name=f"m{number}", requests_per_s=(1.0,))
        for number in range(4)
    ]
    searches = [(model, one, 0) for model in models for one in units]
    assert _together(searches, 1) == [searches[at : at + 3] for at in range(0, 12, 3)]
    # the last model of a few would keep one process at work alone
    assert _together(searches, 2) == [[one] for one in searches]


def test_few_units_that_do_not_hold_a_model_carry_nothing() -> None:
    model = PlanModel(model="deepseek-v3", requests_per_s=(1.0,))
    found, _ = most_of_few(model, PlanUnits(cluster=KIND, count=3), 0, Clock(), 0)
    assert found[:2] == (0.0, 0.0)
    assert 0.0 < found[2] < found[3]


def test_where_mixed_replicas_are_late_between_long_prompts_pools_apart_are_tried(
    tmp_path: Path,
) -> None:
    model = with_trace(tmp_path, "deepseek-v3", long_prompts(300, 4_000), 20.0, 0.05)
    units = PlanUnits(cluster="hgx-b200", count=1)
    found = offer(model, units, 0, Start("flash", 0.0), clock=Clock(), gap=0.02, seed=0)
    (one,) = found.layouts
    assert {replica.role for replica in one.layout.replicas} == {"prefill", "decode"}
    assert 0.5 * one.steady_requests_per_s < one.requests_per_s <= found.most_requests_per_s


def test_a_pass_takes_as_many_prompt_tokens_as_serve_most_and_bounds_hold_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = with_trace(tmp_path, "llama-3.1-8b", long_prompts(400, 400), 0.3, 0.03)
    units = PlanUnits(cluster="hgx-h100", count=1)

    def offered() -> Offer:
        return offer(model, units, 0, Start("flash", 0.0), clock=Clock(), gap=0.02, seed=0)

    found = offered()
    (one,) = found.layouts
    assert one.instance.scenario.limits.prefill_chunk_tokens == 512
    assert found.covers[-1].startswith("passes of at most 8,192, 4,096, 2,048 or 512 prompt tokens")
    alone = {}
    for chunk in (8192, 4096, 2048, 512):
        for module in (for_traffic, most):
            monkeypatch.setattr(module, "chunks_of", lambda *_, chunk=chunk: (chunk,))
        alone[chunk] = offered()
    assert alone[8192].layouts == ()  # one long prompt is late behind another
    (quick,) = alone[512].layouts
    # beside others the halvings begin at what these carry: they end within the last of them
    step = (1 - for_traffic._LEAST) * quick.steady_requests_per_s / 2**for_traffic._HALVINGS
    assert abs(one.requests_per_s - quick.requests_per_s) <= step
    assert found.most_requests_per_s == max(own.most_requests_per_s for own in alone.values())
