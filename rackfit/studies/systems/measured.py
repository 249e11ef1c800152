"""Pairs of systems that somebody measured at the same speed: plain layouts evaluated, best ones solved.

*Source:* InferenceX (inferencex.semianalysis.com), total tokens per second over all GPUs of a
deployment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.studies.base import Options, Row
from rackfit.studies.point import solve_row
from rackfit.studies.systems.plain import plain_tokens_per_s_per_gpu
from topology.catalogue import checked
from topology.errors import InstanceError, Problem

#: drafts of every pair that was measured with MTP: how many is not published; one, accepted as the
#: DeepSeek-V3 report says (85 to 90 %)
SPECULATIVE: Mapping[str, Any] = {"draft_tokens": 1, "acceptance": 0.85}


#: groups beyond a node in a rack, and inside one node
_PLAIN = (((1, 32), (1, 48)), ((8, 1), (4, 2), (2, 4)))
#: mean prompt and answer of InferenceX over the nominal length: drawn between 0.8 and 1 of it
MEAN_LENGTH = 0.9


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
    kv_dtype: str | None = None
    #: ``(tp, attention_dp)`` of decode groups as they were run, newer system first
    plain: tuple[tuple[tuple[int, int], ...], ...] = ()


def pairs() -> dict[str, Pair]:
    """Every measured pair by what it is called in the table."""
    return {
        "NVL72 over nodes": Pair("gb200-nvl72", "hgx-b200@9", "deepseek-r1-nvfp4", 1024, 1024, 125.0, 4.39, True, "fp8", _PLAIN),
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
    drafts = SPECULATIVE if pair.speculative else {}
    plain = plain_ratio(pair)  # first: it takes a second, and a search may run out of time
    newer, older = (_solved(pair, cluster, options) for cluster in (pair.newer, pair.older))
    column = "output_tokens_per_s_per_gpu"
    within = None
    if pair.speculative:  # nodes were measured with each replica in one node
        alone = _solved(pair, pair.older, options, {"max_domains_per_replica": 1})
        within = newer[column] / alone[column]
    return {
        "model_name": pair.model,
        "cluster_name": f"{pair.newer} over {pair.older}",
        "asked": (
            f"{pair.model}, {pair.input_tokens} in, {pair.output_tokens} out"
            f"{', MTP' if pair.speculative else ''}, {pair.tokens_per_s_per_user:g} tokens/s per user"
        ),
        "measured_ratio": pair.ratio,
        "our_ratio_of_plain_layouts": plain,
        **drafts,
        "our_ratio": newer[column] / older[column],
        "our_ratio_within_a_node": within,
        "newer_tokens_per_s_per_gpu": newer[column],
        "older_tokens_per_s_per_gpu": older[column],
        "newer_gap": newer["gap"],
        "older_gap": older["gap"],
    }


def plain_ratio(pair: Pair, speculative: Mapping[str, Any] = SPECULATIVE) -> float | None:
    """The newer system over the older one with layouts as they were run; ``None`` where not known."""
    if not pair.plain:
        return None
    newer, older = plain_speeds(pair, speculative)
    return newer / older


def plain_speeds(pair: Pair, speculative: Mapping[str, Any] = SPECULATIVE) -> tuple[float, ...]:
    """Total tokens per second and chip of the newer and the older system with plain layouts."""
    drafts = speculative if pair.speculative else None
    clusters = (pair.newer, pair.older)
    return tuple(
        plain_tokens_per_s_per_gpu(_asked(pair, cluster, drafts, length=MEAN_LENGTH), decode)
        for cluster, decode in zip(clusters, pair.plain, strict=True)
    )


def _solved(
    pair: Pair, cluster: str, options: Options, limits: Mapping[str, int] | None = None
) -> Row:
    drafts = SPECULATIVE if pair.speculative else None
    return solve_row(_asked(pair, cluster, drafts, limits), options)


def _asked(
    pair: Pair,
    cluster: str,
    speculative: Mapping[str, Any] | None,
    limits: Mapping[str, int] | None = None,
    length: float = 1.0,
) -> Instance:
    data = {
        "model": pair.model,
        "cluster": cluster,
        "kv_dtype": pair.kv_dtype,
        "workload": {
            "input_tokens": round(length * pair.input_tokens),
            "output_tokens": round(length * pair.output_tokens),
        },
        "slo": {"tpot": 1.0 / pair.tokens_per_s_per_user},
        "speculative": None if speculative is None else dict(speculative),
        "limits": dict(limits or {}),
    }
    with checked("measured pair"):
        return resolve_instance(Scenario.model_validate(data))
