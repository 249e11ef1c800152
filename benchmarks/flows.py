"""Layers by machine on the clusters of Helix, each asked in a process of its own: value, bound, gap, seconds.

``python -m benchmarks.flows [--page]``; ``--page`` also writes the table into docs/flow.md. What Helix reports is
from the logs of its artifact (the files in ``instances/flows`` name it).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "flow.md"
START, END = "<!-- flows: start -->\n", "<!-- flows: end -->\n"


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


def asked(name: str) -> tuple[dict[str, float], float]:
    """The document of ``rackfit flow NAME --json``, and seconds from the start of the process to its end."""
    began = time.perf_counter()
    words = [sys.executable, "-m", "rackfit", "flow", name, "--json"]
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


def main() -> None:
    """Print the table; with ``--page`` write it too."""
    found = table()
    if "--page" in sys.argv[1:]:
        text = PAGE.read_text(encoding="utf-8")
        before, _, rest = text.partition(START)
        after = rest.partition(END)[2]
        PAGE.write_text(before + START + "\n" + found + "\n" + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
