"""The roofline and the expert load of a report agree with what the evaluator priced."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import yaml

from costmodel.evaluate import evaluate
from costmodel.question.instance import resolve_instance
from costmodel.replica.replica import stage_terms
from rackfit.api import solve
from rackfit.documents.replica_groups import replica_groups
from rackfit.documents.result import Result
from rackfit.figures.drawing import chart_spec
from rackfit.figures.expert_load_plot import expert_loads
from rackfit.figures.live import specs_of
from rackfit.figures.roofline_plot import chip_of, roofline_chart, roofline_points, rooflines
from rackfit.figures.stage_load import stage_load


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    path = tmp_path_factory.mktemp("roofline") / "scenario.yaml"
    data = {"model": "qwen3-30b-a3b", "cluster": "hgx-h100", "workload": "chat"}
    path.write_text(yaml.safe_dump(data | {"slo": {"tpot": 0.03}}))
    return solve(str(path), gap=0.1)


def test_no_operation_is_above_its_roof(result: Result) -> None:
    for replica in result.layout.replicas:
        stage = stage_terms(result.instance, result.layout, replica)[0]
        chip = chip_of(result.instance, stage)
        efficiency = result.instance.profile.for_chip(chip.name)
        for name in stage.passes:
            points = roofline_points(result.instance, stage, name)
            assert points
            for point in points:
                peak = chip.peak_flops_per_s(point.dtype) * efficiency.arithmetic(point.dtype)
                assert point.flops_per_s <= peak * (1 + 1e-9)
                assert point.flops_per_s <= point.intensity * chip.hbm_bytes_per_s * (1 + 1e-9)


def test_terms_add_up_to_the_parts_of_a_pass(result: Result) -> None:
    """A pure decode or prefill replica runs one pass per round."""
    for replica, price in zip(
        result.layout.replicas, result.evaluation.priced.replicas, strict=True
    ):
        if replica.role == "mixed":
            continue
        stage = stage_terms(result.instance, result.layout, replica)[0]
        points = {p.part: p for p in roofline_points(result.instance, stage, replica.role)}
        for part in ("attention_projections", "head"):
            if part in points:
                # weights of norms are read but multiply nothing: they are on no roofline
                assert points[part].seconds == pytest.approx(price.stages[0].parts[part], rel=1e-3)


def test_the_plot_has_a_dot_for_each_row(result: Result) -> None:
    first = stage_terms(result.instance, result.layout, result.layout.replicas[0])[0]
    points = roofline_points(result.instance, first, next(iter(first.passes)))
    chart = roofline_chart(result.instance, first, points, "t")
    rows = chart_spec(chart)["datasets"]["rows"]
    dots = [(row["x"], row["y"]) for row in rows if row["look"] == "dots"]
    assert dots == [(point.intensity, point.flops_per_s / 1e12) for point in points]


def test_an_operation_has_one_colour_in_all_rooflines_of_a_report(result: Result) -> None:
    """Colours go by the order of the names: it was that of the times, which differs between passes."""
    groups = replica_groups(result.layout, result.evaluation)
    specs = [spec for _, spec in specs_of(rooflines(result.instance, result.layout, groups))]
    assert len(specs) >= 2
    orders = []
    for spec in specs:
        domains = re.findall(r'"domain": (\[[^]]*\])', json.dumps(spec["layer"]))
        assert len(set(domains)) == 1
        orders.append(json.loads(domains[0]))
        assert {row["series"] for row in spec["datasets"]["rows"]} <= set(orders[-1])
    assert all(order == orders[0] for order in orders)


def test_sections_name_every_operation(result: Result) -> None:
    groups = replica_groups(result.layout, result.evaluation)
    text = rooflines(result.instance, result.layout, groups)
    for part in ("attention projections", "routed experts", "head"):
        assert f"<td>{part}</td>" in text


def test_expert_load_is_that_of_the_evaluation(result: Result) -> None:
    """Under a profile that adds nothing for the few tokens of one pass."""
    asked = result.instance.scenario.model_copy(update={"profile": "physics"})
    plain = resolve_instance(asked)
    judged = evaluate(plain, result.layout)
    seen = 0
    for replica, price in zip(result.layout.replicas, judged.priced.replicas, strict=True):
        for stage, stage_price in zip(replica.stages, price.stages, strict=True):
            found = stage_load(plain, result.layout, stage)
            if stage.cut:
                assert (found, stage_price.imbalance) == (None, pytest.approx(1.0))
                seen += 1
                continue
            assert found is not None
            assert np.allclose(found.load.mean(axis=1), 1.0)
            assert found.load.max(axis=1).mean() == pytest.approx(stage_price.imbalance)
            seen += 1
    assert seen
    groups = replica_groups(result.layout, result.evaluation)
    if any(len(one.chips) > 1 and not one.cuts_experts for one, _, _ in groups):
        assert "Busiest chip of each layer" in expert_loads(result.instance, result.layout, groups)
