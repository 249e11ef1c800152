"""Pairs of systems that somebody measured at the same speed, asked of the solver with today's model.

*Source:* InferenceX (inferencex.semianalysis.com), total tokens per second over all GPUs of a
deployment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from costmodel.instance import Scenario, resolve_instance
from rackfit.studies.base import Options, Row
from rackfit.studies.point import solve_row
from topology.catalogue import parse_model
from topology.errors import InstanceError, Problem

#: what a workload says of speculative decoding (MTP), where the cost model prices it: entries here
#: join the workload of every pair that was measured with it
SPECULATIVE: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Pair:
    """Two systems at one speed: the newer one's tokens per second and chip over the older one's."""

    newer: str
    older: str
    model: str
    input_tokens: int
    output_tokens: int
    tokens_per_s_per_user: float
    ratio: float
    speculative: bool


def pairs() -> dict[str, Pair]:
    """Every measured pair by what it is called in the table."""
    return {
        "NVL72 over nodes": Pair("gb200-nvl72", "hgx-b200@9", "deepseek-r1-nvfp4", 1024, 1024, 125.0, 4.39, True),
        "GB300 over GB200": Pair("gb300-nvl72", "gb200-nvl72", "deepseek-v4-pro", 8192, 1024, 27.0, 2.83, False),
    }  # fmt: skip


def measured_row(name: str, options: Options) -> Row:
    """Ours and the measured ratio of a pair. Raises what the solver raises, and for unknown names."""
    known = pairs()
    if name not in known:
        raise InstanceError(
            Problem("measured", f"unknown {name[:60]!r}; known: {'; '.join(known)}")
        )
    pair = known[name]
    newer, older = (_solved(pair, cluster, options) for cluster in (pair.newer, pair.older))
    column = "output_tokens_per_s_per_gpu"
    missing = pair.speculative and not SPECULATIVE
    return {
        "model_name": pair.model,
        "cluster_name": f"{pair.newer} over {pair.older}",
        "asked": (
            f"{pair.model}, {pair.input_tokens} in, {pair.output_tokens} out"
            f"{', MTP' if pair.speculative else ''}, {pair.tokens_per_s_per_user:g} tokens/s per user"
        ),
        "measured_ratio": pair.ratio,
        "our_ratio": newer[column] / older[column],
        "newer_tokens_per_s_per_gpu": newer[column],
        "older_tokens_per_s_per_gpu": older[column],
        "newer_gap": newer["gap"],
        "older_gap": older["gap"],
        "caveat": ", without MTP on either side" if missing else "",
    }


def _solved(pair: Pair, cluster: str, options: Options) -> Row:
    workload = {"input_tokens": pair.input_tokens, "output_tokens": pair.output_tokens}
    data = {
        "model": pair.model,
        "cluster": cluster,
        "workload": workload | (dict(SPECULATIVE) if pair.speculative else {}),
        "slo": {"tpot": 1.0 / pair.tokens_per_s_per_user},
    }
    return solve_row(resolve_instance(parse_model(Scenario, data, "measured pair")), options)
