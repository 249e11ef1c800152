"""Layers by machine on the clusters of Helix: value, bound, gap, seconds, under its rates and under Rackfit's own.

``python -m benchmarks.flows [--page]``: each question in a process of its own. ``--page`` also writes the tables into docs/flow.md. What Helix reports is
from the logs of its artifact (the files in ``instances/flows`` name it).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.flow.judge import usd_per_m_tokens
from costmodel.flow.question import FlowQuestion, load_flow
from costmodel.flow.rates import priced
from solver.flow.search import place_layers
from topology.errors import NoFeasibleLayout

PAGE = Path(__file__).resolve().parent.parent / "docs" / "flow.md"
#: model and workload of the rates from Rackfit's cost model
OWN = ("llama-3.1-70b", "chat")


@dataclass(frozen=True)
class Published:
    """What the logs of Helix's artifact say: tokens/s, bound of its solver, seconds until its run ended."""

    tokens_per_s: float
    bound_tokens_per_s: float
    seconds: float

    @property
    def gap(self) -> float:
        """Bound over value, less one."""
        return self.bound_tokens_per_s / self.tokens_per_s - 1


#: full graph for the first and last; the other two ran on graphs with fewer links
PUBLISHED = {
    "helix-single24": Published(1289.555770275, 78062.43453132, 599.97),
    "helix-distributed24": Published(1212.17684546, 46520.76954919, 2699.81),
    "helix-heterogeneous42": Published(4137.547585398, 91950.95906075, 3002.5),
    "helix-quality10": Published(286.5874097546, 286.5874097546, 3802.88),
}


def asked(*words: str) -> tuple[dict[str, Any], float]:
    """The document of ``rackfit flow WORDS --json``, and seconds from the start of the process to its end."""
    began = time.perf_counter()
    words = (sys.executable, "-m", "rackfit", "flow", *words, "--json")
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return json.loads(done.stdout), time.perf_counter() - began


def table() -> str:
    """Both beside each other."""
    lines = [
        "| cluster | tokens/s | bound | gap | seconds | USD per million tokens | Helix: tokens/s | gap | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, theirs in PUBLISHED.items():
        found, seconds = asked(name)
        gap = "proven optimal" if found["status"] == "optimal" else f"{found['gap']:.1%}"
        theirs_gap = f"{theirs.gap:,.1%}" if theirs.gap > 1e-6 else "proven optimal"
        lines.append(
            f"| {name} | {found['tokens_per_s']:,.2f} | {found['bound_tokens_per_s']:,.2f} | {gap} | {seconds:.1f} | "
            f"{found['usd_per_m_tokens']:.3f} | {theirs.tokens_per_s:,.2f} | {theirs_gap} | {theirs.seconds:,.0f} |"
        )
        print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


def alike(question: FlowQuestion) -> float:
    """Tokens/s where every replica has machines of one kind: the best of each kind by itself, together."""
    total = 0.0
    for kind in dict.fromkeys(question.nodes):
        own = [node for node, name in enumerate(question.nodes) if name == kind]
        speeds = [
            [
                question.link(one, other) * question.model.activation_bytes
                for other in own
                if other > one
            ]
            for one in own[:-1]
        ]
        ends = {
            "source": [question.entry(node) * question.model.token_bytes for node in own],
            "sink": [question.leaving(node) * question.model.token_bytes for node in own],
        }
        data = question.model_dump(exclude_none=True)
        data |= {"nodes": [kind] * len(own), "links": {"between": speeds, **ends}}
        with suppress(NoFeasibleLayout):
            total += place_layers(FlowQuestion.model_validate(data)).tokens_per_s
    return total


def own_table() -> str:
    """The same clusters at rates of the cost model, in money."""
    model, workload = OWN
    lines = [
        "| cluster | tokens/s | bound | gap | seconds | USD per million tokens | only alike machines: tokens/s "
        "| USD per million tokens |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in PUBLISHED:
        question = load_flow(name)
        if question.model.name != "llama2-70b":
            continue
        found, seconds = asked(name, "--model", model, "--workload", workload)
        gap = "proven optimal" if found["status"] == "optimal" else f"{found['gap']:.1%}"
        question = priced(question, model, workload)
        apart = alike(question)
        cost = usd_per_m_tokens(question, apart)
        lines.append(
            f"| {name} | {found['tokens_per_s']:,.2f} | {found['bound_tokens_per_s']:,.2f} | {gap} | {seconds:.1f} | "
            f"{found['usd_per_m_tokens']:.3f} | {apart:,.2f} | {'-' if cost is None else f'{cost:.3f}'} |"
        )
        print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


def put(text: str, mark: str, found: str) -> str:
    """The page with a table between its marks."""
    start, end = f"<!-- {mark}: start -->\n", f"<!-- {mark}: end -->\n"
    before, _, rest = text.partition(start)
    return before + start + "\n" + found + "\n" + end + rest.partition(end)[2]


def main() -> None:
    """Print the tables; with ``--page`` write them too."""
    tables = {"flows": table(), "own": own_table()}
    if "--page" in sys.argv[1:]:
        text = PAGE.read_text(encoding="utf-8")
        for mark, found in tables.items():
            text = put(text, mark, found)
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
