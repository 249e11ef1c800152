"""Rackfit against two baselines on the same scenarios, priced by the same evaluator.

(a) powers of two, one shape per role, identical replicas, no pipeline (what the best peer
searches); (b) tensor parallelism within a node, pipeline stages across nodes. A ratio is
Rackfit's cost over the baseline's: below 1 is cheaper. Ends with an error if one is above 1.

Usage: ``python -m benchmarks.baselines.solve [--only MODEL] [--limit SECONDS]``
"""

from __future__ import annotations

import argparse
import math
import sys

from benchmarks.baselines.identical import (
    Baseline,
    cheapest_identical,
    common_widths,
    tensor_in_node,
)
from costmodel.evaluate import Evaluation
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from solver.clock import Clock
from solver.search import search
from topology.errors import NoFeasibleLayout

#: model, cluster, TPOT target in ms; 4,000 tokens in, 1,000 out, TTFT 2 s
SCENARIOS = (
    ("deepseek-v3", "hgx-h200@2", 50),
    ("deepseek-v3", "hgx-b200", 50),
    ("deepseek-v3", "gb200-nvl72", 30),
    ("deepseek-v3", "gb300-nvl72", 30),
    ("deepseek-v3", "vr-nvl72", 20),
    ("kimi-k2", "gb200-nvl72", 30),
    ("kimi-k2", "hgx-b200@2", 50),
    ("qwen3-235b-a22b", "hgx-h200", 50),
    ("qwen3-235b-a22b", "gb300-nvl72", 20),
    ("qwen3-235b-a22b", "tpu-v5p-2x2x4", 80),
    ("gpt-oss-120b", "hgx-h200", 20),
    ("gpt-oss-120b", "tpu-v7-2x2x2", 30),
    ("llama-3.1-70b", "hgx-b200", 30),
    ("llama-3.1-70b", "tpu-v5p-2x2x2", 50),
    ("glm-4.5", "hgx-h200@2", 50),
)

#: relative gap of Rackfit's own answers: small beside the differences shown
GAP = 0.002


def instance_of(model: str, cluster: str, tpot_ms: float) -> Instance:
    """One scenario of the table."""
    question = {
        "model": model,
        "cluster": cluster,
        "workload": {"input_tokens": 4000, "output_tokens": 1000},
        "slo": {"ttft": 2.0, "tpot": tpot_ms / 1e3},
    }
    return resolve_instance(Scenario.model_validate(question))


def reasons(ours: Layout, evaluation: Evaluation, other: Baseline) -> str:
    """What Rackfit's layout does that the baseline's does not, in a few words."""
    theirs = other.layout
    if _ratio(evaluation, other) > 1 - 1e-4:
        return "nothing: the baseline's layout is as cheap"
    found = []
    idle = evaluation.chips_used - other.evaluation.chips_used
    if idle > 0:
        found.append(f"{idle} idle chips filled")
    if _roles(ours) != _roles(theirs):
        found.append(f"{_roles(ours)} for {_roles(theirs)}")
    odd = sorted({len(r.chips) for r in ours.replicas if len(r.chips) & (len(r.chips) - 1)})
    if odd:
        found.append(f"replicas of {', '.join(map(str, odd))} chips")
    mixed = _kinds(ours) - len({r.role for r in ours.replicas})
    if mixed > 0:
        found.append(f"{_kinds(ours)} shapes together")
    if any(r.shape.attention_dp > 1 for r in ours.replicas) and not any(
        r.shape.attention_dp > 1 for r in theirs.replicas
    ):
        found.append("attention ranks side by side")
    if any(r.shape.pp > 1 for r in ours.replicas) and all(r.shape.pp == 1 for r in theirs.replicas):
        found.append("pipeline stages")
    return "; ".join(found or ["other widths or another split of chips between the roles"])


def _ratio(evaluation: Evaluation, other: Baseline) -> float:
    """Rackfit's cost over the baseline's."""
    ours, theirs = evaluation.usd_per_m_output_tokens, other.evaluation.usd_per_m_output_tokens
    assert ours is not None
    assert theirs is not None
    return ours / theirs


def _roles(layout: Layout) -> str:
    return "+".join(sorted({replica.role for replica in layout.replicas}))


def _kinds(layout: Layout) -> int:
    """Different shapes in a layout, whatever their batch."""
    return len(
        {
            (r.role, r.shape.tp, r.shape.pp, r.shape.attention_dp, r.stages[0].slots())
            for r in layout.replicas
        }
    )


def main() -> None:
    """Print the table and the geometric means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="scenarios whose model or cluster has this")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each search")
    given = parser.parse_args()
    ratios: dict[str, list[float]] = {"a": [], "b": []}
    print(
        f"{'model':16} {'cluster':14} {'$/M out':>8} {'gap':>6}  {'':1} {'$/M out':>8} {'ratio':>6}  why"
    )
    for model, cluster, tpot_ms in SCENARIOS:
        if given.only not in f"{model} {cluster}":
            continue
        instance = instance_of(model, cluster, tpot_ms)
        try:
            found = search(instance, clock=Clock(given.limit), gap=GAP)
        except NoFeasibleLayout as failure:
            print(f"{model:16} {cluster:14} {failure}", flush=True)
            continue
        cost = found.evaluation.usd_per_m_output_tokens or math.nan
        head = f"{model:16} {cluster:14} {cost:8.4f} {found.certificate.gap:6.2%}"
        for name, allowed in (("a", common_widths), ("b", tensor_in_node)):
            other = cheapest_identical(instance, allowed, time_limit_s=given.limit)
            if other is None:
                print(f"{head}  {name} {'none':>8} {'-':>6}  it finds no layout", flush=True)
                continue
            theirs = other.evaluation.usd_per_m_output_tokens or math.nan
            ratio = _ratio(found.evaluation, other)
            ratios[name].append(ratio)
            why = reasons(found.layout, found.evaluation, other)
            mark = "" if other.complete else " (its search was cut short)"
            print(f"{head}  {name} {theirs:8.4f} {ratio:6.3f}  {why}{mark}", flush=True)
    for name, own in ratios.items():
        if own:
            mean = math.exp(sum(map(math.log, own)) / len(own))
            print(f"({name}) geometric mean of {len(own)} ratios: {mean:.3f}")
    above = [ratio for own in ratios.values() for ratio in own if not ratio <= 1 + 1e-9]
    if above:
        sys.exit(f"{len(above)} ratios are above 1: {max(above):.4f}")


if __name__ == "__main__":
    main()
