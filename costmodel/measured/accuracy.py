"""docs/accuracy.md: errors in sample and left out, parameters with intervals, and what is not modelled."""

from __future__ import annotations

from collections import Counter

import numpy as np

from costmodel.measured.fitting.calibration import Calibration
from costmodel.measured.fitting.crossvalidation import waits
from costmodel.measured.fitting.held_out import held_out_words
from costmodel.measured.fitting.parameters import BY_CELL, COMMON
from costmodel.measured.frontier_report import frontier_lines, read_splits
from costmodel.measured.predict import regime_of
from costmodel.measured.published_report import published_lines
from costmodel.measured.rows import FLAGGED
from costmodel.measured.scores import Score
from costmodel.measured.systems import TOGETHER_TOKENS
from topology.quantity import per_cent

PEERS = f"""
## Beside other tools

Figures of others are as they or an independent check published them, on other rows.

| tool | TPOT or inter-token latency error |
|---|---|
| bare roofline (BLIS-roofline, independent) | 44 % median |
| LLM-Optimizer roofline (independent) | 61 % median |
| AIConfigurator, 18 points (independent) | 13.2 % |
| LLMServingSim 2 (independent) | 21.8 % median |
| BLIS, physics trained on 36 held-out points | 7.1 % median |
| five constants for all, 2,340 runs, each model left out | 21.5 % mean, 18.3 % median |

## Noise floor

The same configuration measured three months apart differs by 1.2 % in the median, 11 % at the 90th
percentile (882 pairs); a software update alone moved throughput by 17 to 100 %. Nothing can honestly
be better than about 2 to 5 % per point, and about 10 % across engine versions.

## What is not modelled

- What the experts of these runs were asked: whole experts on chips carry the generated, published skew.
- Runs that contradict themselves: gpt-oss-120b on H100 under 512 users is twice as fast per token as under
  64 users on the same chips, below the physics bound; such rows are named and left out.
- Engine versions: rows of one engine from several months share their parameters, but for releases whose host launches
  kernels one by one or whose requests come one by one (above). That 1.3.0rc1 launches so in general is not said: its 23 runs are of one week and one source.
- Software of one date: 8k runs of DeepSeek under SGLang on GB200 of late 2025 take 32 ms per token at every load, and their
  prefill pools serve a quarter of what the same pools did three months later (3.8 prompts/s instead of 12.7 for eight
  chips). The branch that their published launcher checks out is not stored, and rows carry no version. They are a fifth
  of the error of capacity where the first token takes over 30 % (models left out).
- Wide experts across H100 nodes: seven runs of TensorRT-LLM over two nodes take 1.6 to 2.1 times the time per token that is
  priced, and the prefill pools of two of their layouts serve a fifth; an eighth of that error.
- What an image compiles when first asked: DeepSeek under SGLang 0.5.3rc1 on B200 takes seven seconds and more to the first
  token under 32 users and more, 0.3 to 2.7 seconds under 0.5.9.
- Prompts that a TensorRT-LLM run with attention ranks holds back where its recipe names no limit.
- Prefill by architecture: first tokens of 8k prompts under at most four users take 1.1 to 1.8 times the prefill that is
  priced for Llama-3.1-70B under TensorRT-LLM, 1.7 to 2.1 times for DeepSeek, 2.7 to 4.2 times for gpt-oss-120b on B200 and 1.7
  to 3.0 times on H100 and H200, where kernels widen its weights. One factor for all models lies between.
- KV that SGLang leaves on one H100 beside Qwen3-32B: five runs of 16 users wait 7 to 89 s for a place, two to four times as
  long as predicted; they are a tenth of the error of capacity where the first token takes over 30 % (models left out).
- What several workers of one host take from each other: Qwen3-32B under TensorRT-LLM 1.3.0rc1 on GB200 takes 28 to 52 ms per
  token with two workers and 50 to 133 ms with four, whatever the load.
- Qwen3-235B under vLLM on H200: 51 to 59 ms per token on two chips and 34 to 45 ms on four, at 4 users as at 48. These 42
  runs are 11 % of the whole error of capacity (models left out). Kernels are not what takes so long: what one of two chips holds of this
  model takes what is priced under vLLM 0.26 (docs/kernels.md).
- Attention ranks of TensorRT-LLM on B200 with FP8 experts: a time per pass at every batch that nothing here explains.
- The synchronisation of requests beyond "engines that prefill first keep equal lengths in waves" and "short prompts of
  equal lengths share passes of up to {TOGETHER_TOKENS:,} tokens", a number chosen by the errors of left-out models.
- Runs whose prompts were found in a prefix cache, or whose engine fell back to slower kernels, without the
  row saying so: Llama-3.1-8B under vLLM on H200 finishes prompts faster than the chips can prefill them,
  Qwen3-235B there takes equally long at every batch. They count in every figure above.
- Speculative decoding in these rows (flagged rows are left out), power capping, KV offloading.
"""


def accuracy_document(found: Calibration) -> str:
    """The document as Markdown."""
    lines = [
        "# How well the calibrated profile predicts measured systems",
        "",
        "Written by `python -m costmodel.measured` from `instances/measured/silicon.csv.gz`.",
        "Errors are of TPOT, predicted over measured less one: mean and median of the absolute value, 90th",
        "percentile, mean with sign.",
        "",
        "| | mean | median | p90 | bias | rows |",
        "|---|---|---|---|---|---|",
    ]
    tpot, ttft = found.validation.tpot(), found.validation.ttft()
    lines.append(_row("in sample", tpot))
    for one in found.left_out:
        lines.append(_row(f"each {one.key} left out", one.score(found.problem)))
    lines.append(_row("TTFT, in sample", ttft))
    for one in found.left_out:
        lines.append(_row(f"TTFT, each {one.key} left out", one.first_token(found.problem)))
    for one in found.left_out:
        lines.append(_row(f"capacity, each {one.key} left out", one.capacity(found.problem)))
        waiting = one.capacity(found.problem, waits(found.problem))
        lines.append(_row(f"the same, first token over 30 %, each {one.key} left out", waiting))
    scored = found.validation.tpot()
    aside = len([one for one in found.validation.unsupported if FLAGGED not in one.reason])
    if scored is not None:
        share = scored.n / (scored.n + aside)
        lines += [
            "",
            f"Predicted: {share:.1%} of the rows that are not flagged ({scored.n} of {scored.n + aside}).",
        ]
    low, middle, high = found.profile.interval
    lines += [
        "",
        f"A predicted TPOT carries the interval from {1 + low:.2f} to {1 + high:.2f} times its value "
        f"(90 % of the left-out rows; median {1 + middle:.2f}).",
        *held_out_words(found.profile.held_out),
        "",
        "Capacity: requests per second at the users of the row, closed loop, from TTFT and TPOT together.",
        "",
        *_launches(found),
        *_scattered(found),
        *_by_regime(found),
        "## Runs with whole experts on chips, left out, by what their recipes say of balancing",
        "",
        "| left out, experts | mean | median | p90 | bias | rows |",
        "|---|---|---|---|---|---|",
        *(
            _row(f"{one.key}, {name}", balance)
            for one in found.left_out
            for name, balance in one.by_balance(found.problem).items()
        ),
        "",
        "## Left out, fold by fold",
        "",
        "| left out | mean | median | p90 | bias | rows |",
        "|---|---|---|---|---|---|",
    ]
    for one in found.left_out:
        for name, fold in one.by_fold(found.problem).items():
            lines.append(_row(f"{one.key} {name}", fold))
    for key in ("model", "system", "engine", "mode", "concurrency"):
        lines += ["", f"## In sample by {key}", ""]
        lines += ["| | mean | median | p90 | bias | rows |", "|---|---|---|---|---|---|"]
        lines += [_row(name, fold) for name, fold in found.validation.by(key).items()]
    lines += ["", "## Rows not scored", "", "| rows | reason | first |", "|---|---|---|"]
    reasons = Counter(one.reason for one in found.validation.unsupported)
    for reason, count in reasons.most_common():
        first = next(s.id for s in found.validation.unsupported if s.reason == reason)
        lines.append(f"| {count} | {reason} | `{first}` |")
    lines += ["", "## Parameters", "", "Value and 90 % interval, microseconds for costs.", ""]
    names = [p.name for p in (*BY_CELL, *COMMON)]
    lines.append("| chip, engine | " + " | ".join(names) + " |")
    lines.append("|---" * (len(names) + 1) + "|")
    for (chip, engine), values in found.intervals.items():
        cells = [_interval(name, values[name]) for name in names]
        lines.append(f"| {chip}, {engine} | " + " | ".join(cells) + " |")
    lines += frontier_lines(read_splits())
    lines += published_lines(found.profile)
    return "\n".join(lines) + "\n" + PEERS


def _launches(found: Calibration) -> list[str]:
    """Releases whose host launches kernels one by one."""
    rows = Counter(run.row.release for run in found.problem.runs)
    lines = [
        f"{release} ({rows[release]} runs): a pass of several users takes at least {seconds * 1e6:.3g} us for each of its kernels, "
        "which its host launches one by one: fitted on all models that the release served, which have to agree."
        for release, seconds in found.profile.launches.items()
    ]
    return [*lines, ""] if lines else []


def _scattered(found: Calibration) -> list[str]:
    """Releases whose requests of one length do not come in waves."""
    rows = Counter(run.row.release for run in found.problem.runs)
    lines = [
        f"{release} ({rows[release]} runs): requests of one length come one by one, not in waves, though the engine prefills "
        "first: its times speak for that, and no row says so."
        for release in found.profile.scattered
    ]
    return [*lines, ""] if lines else []


def _by_regime(found: Calibration) -> list[str]:
    """First token and capacity of left-out runs by engine and by how requests come to prefill."""
    lines = [
        "## First token and capacity, left out, by engine and by how requests come to prefill",
        "",
        "`drawn`: prompts of drawn lengths, one by one; `equal`: all of one length; `disaggregated`: to a pool of its own.",
        "",
        "| left out, runs | mean | median | p90 | bias | rows |",
        "|---|---|---|---|---|---|",
    ]
    names = np.array([f"{run.row.engine} {regime_of(run.row)}" for run in found.problem.runs])
    for one in found.left_out[:2]:
        for name in sorted(set(names.tolist())):
            here = names == name
            lines += [
                _row(f"{one.key}, TTFT, {name}", one.first_token(found.problem, here)),
                _row(f"{one.key}, capacity, {name}", one.capacity(found.problem, here)),
            ]
    return [*lines, ""]


def _row(name: str, one: Score | None) -> str:
    if one is None:
        return f"| {name} | | | | | 0 |"
    return f"| {name} | {one.mape:.1%} | {one.median_ape:.1%} | {one.p90:.1%} | {per_cent(one.bias, signed=True)} | {one.n} |"


def _interval(name: str, values: tuple[float, float, float]) -> str:
    scale = 1e6 if name.endswith("_s") else 1.0
    low, value, high = (scale * one for one in values)
    return f"{value:.2g} ({low:.2g}-{high:.2g})"
