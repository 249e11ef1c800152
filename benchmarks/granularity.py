"""What taking chips as they are sold costs beside free choice: each question solved both ways.

    python -m benchmarks.granularity [--page] [--only CLUSTER]

``--page`` writes the table into docs/instances.md. Costs are dollars per million output tokens, all healthy chips paid.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from costmodel.question.instance import Scenario, resolve_instance
from costmodel.question.workload import Slo
from solver.clock import Clock
from solver.search import SearchResult, search
from topology.errors import NoFeasibleLayout

PAGE = Path(__file__).parents[1] / "docs" / "instances.md"
BEGIN, END = "<!-- granularity:begin -->\n", "<!-- granularity:end -->\n"

#: cluster, ways of its file, model and seconds to the next token
QUESTIONS = [
    ("tpu-v6e-4x4", ("slice", "host", "host-of-8"), "llama-3.1-8b", 0.02),
    ("tpu-v6e-4x4", ("slice", "host", "host-of-8"), "llama-3.1-70b", 0.03),
    ("tpu-v6e-4x4", ("slice", "host", "host-of-8"), "gpt-oss-120b", 0.02),
    ("tpu-v5p-4x4x4", ("slice",), "llama-3.1-70b", 0.03),
    ("tpu-v5p-4x4x4", ("slice",), "deepseek-v3", 0.05),
    ("tpu-v5p-4x4x8", ("slice",), "llama-3.1-70b", 0.03),
    ("tpu-v5p-4x4x8", ("slice",), "deepseek-v3", 0.05),
    ("trn2", ("pair",), "llama-3.1-70b", 0.03),
    ("gb200-nvl72", ("tray",), "llama-3.1-70b", 0.03),
    ("gb200-nvl72", ("tray",), "deepseek-v3", 0.03),
    ("gb300-nvl72", ("tray",), "kimi-k2", 0.03),
]


def solved(cluster: str, granularity: str, model: str, tpot: float) -> SearchResult | None:
    """The answer, ``None`` where nothing fits."""
    asked = Scenario(
        model=model, cluster=cluster, workload="chat", slo=Slo(tpot=tpot), granularity=granularity
    )
    try:
        return search(resolve_instance(asked), clock=Clock(60))
    except NoFeasibleLayout:
        return None


def said(found: SearchResult | None) -> str:
    """Cost with its gap."""
    if found is None:
        return "nothing fits"
    return f"{found.evaluation.usd_per_m_output_tokens:.4f} ({found.certificate.gap:.1%})"


def more(found: SearchResult | None, free: SearchResult | None) -> str:
    """What is paid on top, and the least of it that both certificates prove."""
    if found is None or free is None:
        return ""
    dear, cheap = (one.evaluation.usd_per_m_output_tokens for one in (found, free))
    assert dear is not None
    assert cheap is not None
    least = found.certificate.bound_usd_per_m_output_tokens / cheap - 1
    return f"{dear / cheap - 1:+.1%} (proven: at least {max(least, 0.0):.1%})"


def replicas(found: SearchResult | None) -> str:
    """How many chips replicas have."""
    if found is None:
        return ""
    sizes = sorted({len(replica.chips) for replica in found.layout.replicas})
    return ", ".join(map(str, sizes))


def main() -> None:
    """Print the table; with ``--page`` write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--only", help="questions on this cluster")
    options = parser.parse_args()
    lines = [
        "| cluster | model, TPOT | sold as | any chips | as sold | more | chips of replicas, any / as sold |",
        "|---|---|---|---|---|---|---|",
    ]
    print(*lines, sep="\n", flush=True)
    for cluster, ways, model, tpot in QUESTIONS:
        if options.only not in (None, cluster):
            continue
        free = solved(cluster, "chip", model, tpot)
        for way in ways:
            found = solved(cluster, way, model, tpot)
            lines.append(
                f"| {cluster} | {model}, {tpot * 1000:g} ms | {way} | {said(free)} | {said(found)} | "
                f"{more(found, free)} | {replicas(free)} / {replicas(found)} |"
            )
            print(lines[-1], flush=True)
    if options.page:
        text = PAGE.read_text()
        head, rest = text.split(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}" + "\n".join(lines) + f"\n{END}" + rest.split(END)[1])


if __name__ == "__main__":
    main()
