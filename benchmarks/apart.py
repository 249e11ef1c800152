"""Attention and experts apart beside today's best: each question solved without, with either way, and only so.

    python -m benchmarks.apart [--page] [--only CLUSTER]

``--page`` writes the table into docs/apart.md. Costs are dollars per million output tokens, all healthy chips paid; every
answer is judged anew by the evaluator, every gap is proven.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any, Literal

from benchmarks.granularity import said
from costmodel.layout.layout import Replica
from costmodel.question.instance import Instance, Scenario, resolve_instance
from solver.clock import Clock
from solver.search import SearchResult, search
from topology.errors import NoFeasibleLayout

PAGE = Path(__file__).parents[1] / "docs" / "apart.md"
BEGIN, END = "<!-- apart:begin -->\n", "<!-- apart:end -->\n"

#: cluster, model and seconds to the next token
QUESTIONS = [
    ("gb200-nvl72", "deepseek-v3", 0.03),
    ("gb200-nvl72", "qwen3-235b-a22b-fp8", 0.03),
    ("gb200-vr-nvl72", "deepseek-v3", 0.03),
    ("gb200-vr-nvl72", "qwen3-235b-a22b-fp8", 0.03),
    ("hgx-h800-h20@2", "deepseek-v3", 0.05),
    ("hgx-h800-h20", "qwen3-235b-a22b-fp8", 0.05),
]
PROFILES = ("calibrated", "physics")
WORKLOAD: dict[str, Any] = {"input_tokens": 4000, "output_tokens": 1000}
HEAD = [
    "| cluster | model, TPOT | profile | one group | either way | only apart | either way saves | apart, decode |",
    "|---|---|---|---|---|---|---|---|",
]


def asked(cluster: str, model: str, tpot: float, profile: str) -> Scenario:
    """The question, before it says anything of experts apart."""
    return Scenario.model_validate(
        {
            "model": model, "cluster": cluster, "workload": WORKLOAD, "profile": profile,
            "slo": {"tpot": tpot, "ttft": 3.0},
        }
    )  # fmt: skip


def solved(
    scenario: Scenario, apart: bool | Literal["only"]
) -> tuple[Instance, SearchResult | None]:
    """The answer, ``None`` where nothing fits."""
    instance = resolve_instance(scenario.model_copy(update={"apart": apart}))
    try:
        return instance, search(instance, clock=Clock(120))
    except NoFeasibleLayout:
        return instance, None


def saves(found: SearchResult | None, plain: SearchResult | None) -> str:
    """Share of today's best cost that is saved, and the least and most that both certificates allow."""
    if found is None or plain is None:
        return ""
    ours, theirs = (one.evaluation.usd_per_m_output_tokens for one in (found, plain))
    bounds = [one.certificate.bound_usd_per_m_output_tokens for one in (found, plain)]
    assert ours is not None
    assert theirs is not None
    least, most = max(0.0, 1 - ours / bounds[1]), max(0.0, 1 - bounds[0] / theirs)
    return f"{max(0.0, 1 - ours / theirs):.1%} (proven: {least:.1%} to {most:.1%})"


def groups(instance: Instance, found: SearchResult | None) -> str:
    """Replicas with experts apart: chips of attention and of experts, microbatches."""
    if found is None:
        return ""
    counts = Counter(_built(instance, one) for one in found.layout.replicas if one.apart)
    return ", ".join(f"{count} x {built}" for built, count in counts.items()) or "none"


def _built(instance: Instance, replica: Replica) -> str:
    assert replica.apart is not None
    own = [replica.kv_chips, replica.apart.experts.chips]
    sides = [f"{len(chips)} {instance.cluster.chip(chips[0]).chip.name}" for chips in own]
    return f"({' + '.join(sides)}, {replica.apart.microbatches} in flight)"


def row(cluster: str, model: str, tpot: float, profile: str) -> str:
    """One line of the table."""
    question = asked(cluster, model, tpot, profile)
    _, plain = solved(question, False)
    (instance, both), (_, only) = solved(question, True), solved(question, "only")
    return (
        f"| {cluster} | {model}, {tpot * 1000:g} ms | {profile} | {said(plain)} | {said(both)} | {said(only)} | "
        f"{saves(both, plain)} | {groups(instance, both)}; only: {groups(instance, only)} |"
    )


def main() -> None:
    """Print the table; with ``--page`` write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--only", help="questions on this cluster")
    options = parser.parse_args()
    lines = list(HEAD)
    print(*lines, sep="\n", flush=True)
    for cluster, model, tpot in QUESTIONS:
        if options.only not in (None, cluster):
            continue
        for profile in PROFILES:
            lines.append(row(cluster, model, tpot, profile))
            print(lines[-1], flush=True)
    if options.page:
        text = PAGE.read_text()
        head, rest = text.split(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}" + "\n".join(lines) + f"\n{END}" + rest.split(END)[1])


if __name__ == "__main__":
    main()
