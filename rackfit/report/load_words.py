"""Replayed load tests beside measured ones, in words."""

from __future__ import annotations

from costmodel.measured.load.predict import Replayed
from costmodel.measured.load.scores import LoadScore, LoadValidation
from topology.quantity import per_cent


def load_text(found: LoadValidation) -> str:
    """Scores over all runs and by group, then each run, then what could not be replayed."""
    lines = ["median error (median signed error), runs", "", _scores("all runs", found.scores())]
    for name, some in found.groups().items():
        scores = found.scores(some)
        if scores:
            lines.append(_scores(name, scores))
    lines += ["", "measured -> replayed"]
    lines += [_run(one) for one in found.replayed]
    if found.unsupported:
        lines += ["", f"not replayed: {len(found.unsupported)} runs"]
        lines += [f"  {name}: {reason}" for name, reason in found.unsupported]
    return "\n".join(lines)


def _scores(name: str, scores: dict[str, LoadScore]) -> str:
    words = [
        f"{measure} {one.median_ape:.1%} ({per_cent(one.bias, signed=True)}), {one.n}"
        for measure, one in scores.items()
    ]
    return f"{name[:36]:<36} {'; '.join(words)}"


def _run(one: Replayed) -> str:
    run, met = one.run, one.met
    pairs = (
        ("TTFT", run.ttft_ms.mean, 1e3 * met.ttft_s.mean, "ms"),
        ("P50", run.ttft_ms.p50, 1e3 * met.ttft_s.p50, "ms"),
        ("P99", run.ttft_ms.p99, 1e3 * met.ttft_s.p99, "ms"),
        ("ITL", run.itl_ms_as_reported.mean, 1e3 * met.tpot_s.mean, "ms"),
        ("E2E", run.e2e_ms.mean, 1e3 * met.e2e_s.mean, "ms"),
        ("P99", run.e2e_ms.p99, 1e3 * met.e2e_s.p99, "ms"),
        ("", run.throughput.output_tokens_per_s, met.output_tokens_per_s, "tokens/s"),
    )
    words = [
        f"{name} {measured:,.4g} -> {predicted:,.4g} {unit}".strip()
        for name, measured, predicted, unit in pairs
        if measured is not None
    ]
    return f"  {run.id[:46]:<46} {'; '.join(words)}; {'stable' if met.stable else 'overloaded'}"
