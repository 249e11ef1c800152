"""Writes docs/gallery.md and its figures: every study on its default scenario, and the lecture beside it.

``make gallery`` runs it. Finished points are kept in the usual cache, so that it resumes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackfit.documents.output import write_whole
from rackfit.figures.drawing import chart_svg
from rackfit.studies.base import Options, Row, along, solved
from rackfit.studies.registry import find_study, studies
from rackfit.studies.run import StudyResult, default_cache, study

DOCUMENT = Path(__file__).with_name("gallery.md")
FIGURES = Path(__file__).with_name("gallery")
#: axes of the study that has none of its own
GRID: dict[str, list[Any]] = {
    "cluster": ["gb200-nvl72", "vr-nvl72"],
    "slo.tpot": [0.02, 0.05],
}
_TIME_LIMIT_S = 60.0


def run(name: str, jobs: int = 2) -> StudyResult:
    """One study on its default scenario."""
    return study(
        name, over=GRID if name == "grid" else None, jobs=jobs, cache=default_cache(),
        options=Options(time_limit_s=_TIME_LIMIT_S),
    )  # fmt: skip


def board(name: str, **given: Any) -> Row:
    """One row of a study's blackboard, as its table says."""
    found = find_study(name)
    over = {key.replace("__", "."): [value] for key, value in given.items()}
    named = found.axes({**found.default, **found.fixed})
    blocks = [named] if isinstance(named, dict) else named
    left_out = {key: [] for block in blocks if not set(block) & set(over) for key in block}
    (row,) = study(name, over={**left_out, **over}).rows
    return row


Results = Mapping[str, StudyResult]


@dataclass(frozen=True)
class Claim:
    """A sentence of the lecture, what it states, what a table says, and why they differ."""

    claim: str
    stated: str
    computed: Callable[[Results], str]
    why: str = ""


LECTURE = {"board__intensity": 300, "board__bytes_per_param": 1}


def _balance(results: Results) -> str:
    told = board("batch", board__batch=1, board__sparsity=8, board__context_share=0, **LECTURE)
    own = board("batch", board__batch=1, board__context_share=0, **LECTURE)
    return (
        f"{told['balance_batch']:,.0f} with that sparsity; DeepSeek-V3 {own['balance_batch']:,.0f} in all, "
        f"{own['balance_batch_experts']:,.0f} expert by expert"
    )


def _slow(results: Results) -> str:
    found = along(results["batch"].rows, "limits.max_sequences_per_rank")
    slow, before = found[-1], found[-2]
    saved = 1 - slow["usd_per_m_output_tokens"] / before["usd_per_m_output_tokens"]
    return f"{slow['tpot_s'] / before['tpot_s']:.1f} times the wait saves {saved:.0%}"


def _price_step(results: Results) -> str:
    found = [
        board(
            "context", board__context=1, board__active_params=1e11, board__price_step=200_000,
            board__intensity=300, board__bytes_per_param=element,
        )["kv_bytes_at_price_step"]
        for element in (0.5, 1, 2)
    ]  # fmt: skip
    return " / ".join(f"{value:,.0f} B" for value in found) + " with FP4 / FP8 / BF16 weights"


def _crossover(results: Results) -> str:
    row = next(r for r in results["context"].rows if "attention_crossover_tokens" in r)
    return f"{row['attention_crossover_tokens']:,.0f} tokens for {row['model_name']}"


def _two_racks(results: Results) -> str:
    every, merged = (
        board("rack-boundary", domains=2, ratio=8, one_copy=one)["exchange_slowdown"]
        for one in (False, True)
    )
    return f"{every:.2f} times with every copy, {merged:.2f} with one copy per rack"


def _widest(results: Results) -> str:
    every = solved(results["rack-boundary"].rows)
    rows = [row for row in every if "exchange_slowdown" in row]
    most = max(float(row["decode_tokens_per_s_per_gpu"]) for row in rows)
    # the narrowest of what is as fast within a per cent
    near = [row for row in rows if row["decode_tokens_per_s_per_gpu"] > 0.99 * most]
    best = min(near, key=lambda row: int(row["ep"]))
    slow = next(r for r in rows if r["ratio"] == 3 and r["domains"] == 2 and r["one_copy"])
    lost = 1 - slow["decode_tokens_per_s_per_gpu"] / best["decode_tokens_per_s_per_gpu"]
    return f"best on {best['ep']} chips; at 3:1 with merged copies two racks lose {lost:.1%}"


def _hand_off(results: Results) -> str:
    same = {"dispatch_bytes": 1, "combine_bytes": 1, "hop_bytes": 1}
    told = board("pipeline", stages=2, ratio=8, top_k=8, layers_per_stage=1, **same)
    own = board("pipeline", stages=2, ratio=18, top_k=8, layers_per_stage=1)
    return f"{told['hand_off_ratio']:.2f} at 8:1; {own['hand_off_ratio']:.2f} at the 18:1 of GB200"


def _stages(results: Results) -> str:
    found = along(results["pipeline"].rows, "stages")
    first, last = found[0], found[-1]
    return (
        f"weights {first['weight_bytes_per_chip'] / last['weight_bytes_per_chip']:.1f} times fewer bytes "
        f"at {last['stages']} stages, KV {last['kv_bytes_per_chip'] / first['kv_bytes_per_chip']:.2f} times, "
        f"a token {last['tpot_s'] / first['tpot_s']:.2f} times as long"
    )


def _sizes(results: Results) -> str:
    found = {
        row["domain_size"]: row for row in along(results["scale-up"].rows, "cluster.domain_size")
    }
    small, best = (
        found[min(found)],
        min(found.values(), key=lambda row: float(row["usd_per_m_output_tokens"])),
    )
    ratio = small["usd_per_m_output_tokens"] / best["usd_per_m_output_tokens"]
    floor = along(results["scale-up"].rows, "board.chips")
    weights = {row["board.chips"]: row["weights_s"] for row in floor}
    return (
        f"weights are read {weights[8] / weights[72]:.0f} times as fast on 72 chips as on 8; "
        f"a token costs {ratio:.2f} times as much on {small['domain_size']} as on {best['domain_size']}"
    )


def _over_training(results: Results) -> str:
    row = board("training-balance", share="1:1:1", days=60, active_params=1e11, tokens_per_s=5e7)
    return f"{row['over_training']:.0f} times"


CLAIMS = (
    Claim("Balance batch of a sparse model", "2,400", _balance,
          "the lecture took 32 of 256 experts; the model activates 8"),
    Claim("Slow mode: waiting longer saves nothing", "no saving", _slow),
    Claim("KV bytes per token behind a price step at 200,000 tokens", "1,667 B", _price_step,
          "bytes per weight do not cancel"),
    Claim("Attention's FLOPs matter from", "millions of tokens", _crossover,
          "absorbed MLA multiplies 1,088 wide for each of 128 heads"),
    Claim("Experts over two racks at 8:1", "4 times slower", _two_racks,
          "engines send one copy to a rack and forward inside it"),
    Claim("One rack bounds an expert layer", "stay inside", _widest,
          "tokens in balance, decode alone; wider groups free HBM but wait longer"),
    Claim("Pipeline condition, 8 experts and one layer a stage", "2.0, met", _hand_off,
          "FP8 dispatch and BF16 hops, and a slower network, turn it round"),
    Claim("Stages divide weights, not KV; latency is neutral", "P times, 1, 1", _stages,
          "every stage waits for the longest: the last one also samples, and 61 layers do not divide evenly"),
    Claim("Large domains are for bandwidth", "8 times from 8 to 64", _sizes,
          "prefill, which is compute bound, is most of the money"),
    Claim("Over-training at equal spend", "100 times", _over_training,
          "the lecture rounds 260 trillion tokens down to 200"),
)  # fmt: skip


def section(result: StudyResult, files: list[str]) -> list[str]:
    """A study's command, figures and conclusion as Markdown."""
    name = result.study.name
    over = "".join(
        f" --over {key}={','.join(str(value) for value in values)}"
        for key, values in (GRID.items() if name == "grid" else ())
    )
    pictures = [
        f"![{chart.title}](gallery/{file})"
        for chart, file in zip(result.study.figures(result.rows), files, strict=True)
    ]
    said = [f"- {sentence}" for sentence in result.conclusion]
    return [
        f"## {name}", "", result.study.question, "", "```", f"rackfit study {name}{over}", "```", "",
        *pictures, "", *said, "",
    ]  # fmt: skip


def lecture(results: Results) -> list[str]:
    """The lecture's claims next to what the tables say."""
    lines = ["## The lecture's claims", "", "| claim | stated | computed | where they differ |"]
    lines += ["|---|---|---|---|"]
    lines += [f"| {c.claim} | {c.stated} | {c.computed(results)} | {c.why} |" for c in CLAIMS]
    return [*lines, "", "Every claim with its test is in [published.md](published.md).", ""]


def main() -> None:
    """Run all studies and write the gallery."""
    start = time.monotonic()
    results: dict[str, StudyResult] = {}
    lines = [
        "# Gallery of studies", "",
        "Written by `make gallery`: every study on its default scenario. Numbers in figures and sentences",
        "are computed from each study's table (`--out` writes it as CSV and JSON, with the figures as SVG and a",
        "page; `--png` writes the figures as PNG, extra `charts`).", "",
    ]  # fmt: skip
    FIGURES.mkdir(exist_ok=True)
    body: list[str] = []
    for name in sorted(studies()):
        began = time.monotonic()
        result = results[name] = run(name)
        if not solved(result.rows):
            sys.exit(f"{name}: no point has an answer: {result.failed[0]['error']}")
        files = []
        for number, chart in enumerate(result.study.figures(result.rows), start=1):
            files.append(f"{name}.svg" if number == 1 else f"{name}-{number}.svg")
            write_whole(chart_svg(chart), FIGURES / files[-1])
        body += section(result, files)
        again = f", {result.reused} of {len(result.rows)} points reused" if result.reused else ""
        print(f"{name}: {time.monotonic() - began:.1f} s{again}", file=sys.stderr)
    write_whole("\n".join([*lines, *lecture(results), *body]).rstrip() + "\n", DOCUMENT)
    print(f"all: {time.monotonic() - start:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
