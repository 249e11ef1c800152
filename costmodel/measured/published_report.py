"""The part of docs/accuracy.md on published points, none of which was fitted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import mean, median

from costmodel.measured.published import (
    ComparedRun,
    compare,
    deepseek_day,
    interval_without,
    published_deployments,
    published_rows,
    unseen_runs,
)
from costmodel.measured.scores import Validation, validate_rows
from costmodel.question.profile import Profile
from topology.quantity import per_cent

ASCEND = "cloudmatrix384"
#: published points that are not predicted, and why
NOT_READ = (
    (
        "PaLM 540B on 64 TPU v4, 4 points",
        "batch-sharded attention with 2D weight-stationary or weight-gathered FFNs is no layout here: tensor "
        "parallelism repeats the one KV head on every chip and sums whole activations, which takes longer by "
        "physics alone than was measured",
    ),
    (
        "SGLang on GB200: decode of June 2025 and with FP8 experts, both prefills, 4 points",
        "batch or tokens per pass are not stated; prefill streams weights from the host",
    ),
    (
        "TensorRT-LLM performance overview, 21 points at maximum load",
        "concurrency is not stated",
    ),
    (
        "Ascend 910C under SGLang, 11 points, and its peak rate",
        "TPOT is the target that was met, not a mean, and accepted tokens of drafts are not stated",
    ),
    ("MI325X at Vultr, 9 points", "total or output tokens is not stated"),
    ("TPU v6e under vLLM, 1 point, and MLPerf on MI300X and MI355X", "concurrency is not stated"),
    ("TensorRT-LLM H200, one user with MTP, 1 point", "accepted tokens are not stated"),
    (
        "DeepSeek service, prefill, 1 point",
        "lengths, batches and the load over the day are not stated; see DeepSeek's day below",
    ),
)


def published_lines(profile: Profile) -> list[str]:
    """Deployments, engine rows, what is not read, and DeepSeek's day."""
    compared = [compare(one, profile) for one in published_deployments()]
    rows, skipped = published_rows()
    scored = validate_rows(rows, skipped, profile)
    errors = [abs(one.error) for one in compared]
    others = (abs(scored.tpot_s / scored.measured_tpot_s - 1.0)).tolist()
    lines = [
        "",
        "## Published deployments",
        "",
        "Not fitted; H800 was never measured and has the common values. Median error of time "
        f"{median(errors):.1%} over",
        f"these {len(errors)}, {median(others):.1%} over the {len(others)} single-engine runs below, "
        f"{median(errors + others):.1%} over all. Two half batches that overlap take",
        "turns (`costmodel/passes/overlap.py`); experts are loaded evenly where routing was balanced or a balancer ran,",
        "with the published skew where there was none; attention ranks are loaded evenly. The 9.01 ms of one user on",
        "B200 became 6.78 ms by software alone; TensorRT-LLM's DEP8 runs are of early 2025, whose software doubled that",
        "throughput within months, and exchange tokens by all-gather and reduce-scatter, which is priced as all-to-all.",
        "",
        "| deployment | published | predicted | error of time | read from the source |",
        "|---|---|---|---|---|",
    ]
    lines += [_deployment(one) for one in compared]
    return lines + _runs(scored) + _unseen(profile, compared) + _not_read() + _day(profile)


def _deployment(one: ComparedRun) -> str:
    unit = "ms per token" if one.deployment.figure == "tpot_ms" else "tokens/s per chip"
    return (
        f"| {one.deployment.id} | {one.deployment.value:,.4g} {unit} | {one.predicted:,.4g} "
        f"| {per_cent(one.error, 0, signed=True)} | {one.deployment.words} |"
    )


def _runs(scored: Validation) -> list[str]:
    """Engine rows that were published singly and are in no fit."""
    lines = [
        "",
        "## Published runs of one engine",
        "",
        "`instances/measured/points.csv`, in no fit; TPOT.",
        "",
        "| | mean | median | p90 | bias | rows |",
        "|---|---|---|---|---|---|",
    ]
    total = scored.tpot()
    assert total is not None
    for name, one in {"all": total, **scored.by("engine"), **scored.by("system")}.items():
        lines.append(
            f"| {name} | {one.mape:.1%} | {one.median_ape:.1%} | {one.p90:.1%} | {per_cent(one.bias, signed=True)} | {one.n} |"
        )
    return lines


def _unseen(profile: Profile, compared: Sequence[ComparedRun]) -> list[str]:
    """Runs on chips that no fit saw, by chip, and how many of them the intervals hold."""
    lines = [
        "",
        "## Chips that no fit saw",
        "",
        "`instances/measured/chips.csv` and the deployment on CloudMatrix384 above. ATOM, which has no runs in the fit, has the",
        "constants of TensorRT-LLM, as each is built by a maker of chips for these; TPUs launch no kernels. Rates are output",
        "tokens/s, predicted over published, where the prompts that were sent are replayed: by so many users, through the slots of",
        "the command. Inside: within the 90 % interval of chips without measurements, which is made of what the other chips here were",
        "off. Pace: what every time of the chip is multiplied by in answers, from these runs (the table is without it).",
        "",
        "| chip | figure | mean | bias | rows | inside | pace |",
        "|---|---|---|---|---|---|---|",
    ]
    found = unseen_runs(profile)
    groups: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for one in found:
        name = "output tokens/s" if one.rate else "TPOT"
        groups[one.chip, name].append((one.error, one.slower))
    for other in compared:
        if other.deployment.cluster == ASCEND:
            ratio = 1.0 / (1.0 + other.error)
            groups["ascend-910c", "prefill tokens/s"].append((ratio - 1.0, ratio))
    held, count = 0, 0
    for (chip, figure), runs in sorted(groups.items()):
        errors = [error for error, _ in runs]
        low, high = interval_without(profile, chip)
        inside = sum(low <= slower <= high for _, slower in runs)
        held, count = held + inside, count + len(runs)
        lines.append(
            f"| {chip} | {figure} | {mean(map(abs, errors)):.1%} | {per_cent(mean(errors), signed=True)} | {len(runs)} "
            f"| {inside} | {_pace(profile, chip)} |"
        )
    lines += ["", f"The intervals hold {held} of {count} ({held / count:.0%})."]
    return lines


def _pace(profile: Profile, chip: str) -> str:
    return f"{profile.paces[chip]:.3g}" if chip in profile.paces else "-"


def _not_read() -> list[str]:
    lines = ["", "Published points that are not predicted:", ""]
    return lines + [f"- {points}: {why}." for points, why in NOT_READ]


def _day(profile: Profile) -> list[str]:
    day = deepseek_day(profile)
    return [
        "",
        "## DeepSeek's day",
        "",
        "608 G prompt tokens (342 G of them cache hits) and 168 G output tokens on 226.75 nodes on average, 278 at "
        "peak.",
        f"The published figures agree with each other: {day.stated_prefill_nodes:.0f} prefill nodes at 73.7 k tokens/s "
        f"(hits included), {day.stated_decode_nodes:.0f} decode nodes at 14.8 k, and",
        f"226.75 nodes of 8 at $2 per GPU-hour make ${day.stated_usd:,.0f}. Decode is reproduced: "
        f"{day.decode_nodes:.0f} nodes ({per_cent(day.decode_nodes / day.stated_decode_nodes - 1, 0, signed=True)}).",
        f"Prefill is not: what was not cached takes {day.prefill_nodes:.0f} busy nodes here, and "
        f"{day.profile_prefill_nodes:.0f} at the rate of DeepSeek's own profile, which is about twice that of its",
        "service. The rest is load over the day and room for bursts, of which nothing is published; a model of busy",
        "nodes must not predict it.",
    ]
