"""What must hold whatever the numbers: more hardware or looser targets never cost more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from solver.clock import Clock
from solver.search import search
from topology import load_cluster
from topology.errors import NoFeasibleLayout

Tiny = Callable[[int, int, int, int], Instance]
SEEDS = range(2000, 2008)


def cost(instance: Instance) -> float:
    """Proven optimum in dollars per million output tokens; infinite if nothing fits."""
    try:
        found = search(instance, clock=Clock(60), gap=0.0)
    except NoFeasibleLayout:
        return float("inf")
    return float(found.evaluation.usd_per_m_output_tokens or "nan")


def with_chip(instance: Instance, tmp_path: Path, **changes: float) -> Instance:
    """The same instance on chips with some figures multiplied."""
    cluster_file = Path(instance.scenario.cluster)
    cluster = yaml.safe_load(cluster_file.read_text())
    row = cluster["domains"][0]["chips"][0]
    chip = yaml.safe_load(Path(row["chip"]).read_text())
    for key, factor in changes.items():
        if key == "flops_per_s":
            chip[key] = {dtype: rate * factor for dtype, rate in chip[key].items()}
        else:
            chip[key] *= factor
    better = tmp_path / f"better-{chip['name']}.yaml"
    better.write_text(yaml.safe_dump(chip))
    row["chip"] = str(better)
    file = tmp_path / f"cluster-{chip['name']}.yaml"
    file.write_text(yaml.safe_dump(cluster))
    return replace(instance, cluster=load_cluster(file))


def roomy(instance: Instance, **slo: float) -> Instance:
    """The same instance with targets changed and no small cap on the batch."""
    limits = instance.limits.model_copy(update={"max_sequences_per_rank": 512})
    targets = instance.slo.model_copy(update=slo)
    scenario = instance.scenario.model_copy(update={"limits": limits, "slo": targets})
    return replace(instance, scenario=scenario)


@pytest.mark.parametrize(
    "changes",
    [
        {"hbm_bytes": 1.5},
        {"hbm_bytes_per_s": 1.3},
        {"scale_up_bytes_per_s": 2.0},
        {"flops_per_s": 1.4},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_better_chips_never_cost_more(
    tiny: Tiny, tmp_path: Path, changes: dict[str, float]
) -> None:
    better = 0
    for seed in SEEDS:
        instance = roomy(tiny(seed, 3, 2, 2 if seed % 2 else 0))
        before, after = cost(instance), cost(with_chip(instance, tmp_path, **changes))
        assert after <= before * (1 + 1e-6)
        better += after < before
    assert better > 0


def test_looser_targets_never_cost_more(tiny: Tiny) -> None:
    better = 0
    for seed in SEEDS:
        instance = tiny(seed, 3, 2, 2 if seed % 2 else 0)
        slo = instance.slo
        assert slo.tpot is not None
        assert slo.ttft is not None
        looser = roomy(instance, tpot=slo.tpot * 1.5, ttft=slo.ttft * 1.5)
        before, after = cost(roomy(instance)), cost(looser)
        assert after <= before * (1 + 1e-6)
        better += after < before
    assert better > 0


def renamed(layout: Layout, names: dict[str, str]) -> Layout:
    """The same layout with its chips exchanged."""
    text = layout.model_dump_json()
    data = yaml.safe_load(text)
    for replica in data["replicas"]:
        for stage in replica["stages"]:
            stage["chips"] = [names[chip] for chip in stage["chips"]]
        for share in replica["kv"]:
            share["chip"] = names[share["chip"]]
    return Layout.model_validate(data)


def test_identical_chips_may_be_exchanged(tiny: Tiny) -> None:
    rng = np.random.default_rng(7)
    compared = 0
    for seed in SEEDS:
        instance = tiny(seed, 4, 2, 3 if seed % 2 else 0)
        try:
            found = search(instance, clock=Clock(60), gap=0.0)
        except NoFeasibleLayout:
            continue
        chips = [placed.id for placed in instance.cluster.chips]
        names = dict(zip(chips, rng.permutation(chips).tolist(), strict=True))
        other = evaluate(instance, renamed(found.layout, names))
        assert other.violations == ()
        assert other.usd_per_m_output_tokens == pytest.approx(
            found.evaluation.usd_per_m_output_tokens, rel=1e-12
        )
        compared += 1
    assert compared > 3


def test_json_round_trip_and_same_seed(tiny: Tiny) -> None:
    instance = tiny(2003, 3, 2, 2)
    first = search(instance, clock=Clock(60), gap=0.0, seed=3)
    again = search(instance, clock=Clock(60), gap=0.0, seed=3)
    assert first.layout == again.layout
    assert Layout.model_validate_json(first.layout.model_dump_json()) == first.layout
