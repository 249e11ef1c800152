"""Published deployments that the fit never saw: shape, load and one figure each, predicted by ``evaluate``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from costmodel.blackboard.trains import servers_for
from costmodel.evaluate import evaluate
from costmodel.layout.plain_layout import plain_layout
from costmodel.measured.cells import number
from costmodel.measured.load.closed import closed_loop
from costmodel.measured.predict import predict_under
from costmodel.measured.rows import MeasuredRow, Skipped, read_measured
from costmodel.measured.runs import runs_of
from costmodel.question.choices.options import Dtype
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.profile import Efficiency, Profile
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Limits, Workload
from topology.catalogue import checked, data_dir, read_data

Count = Annotated[int, Field(ge=1)]


#: column of ``chips.csv`` with output tokens/s of all chips, where no TPOT was published
_RATE = "output_tokens_per_s"
#: and with the prompts that its client sent in all
_PROMPTS = "prompts"


class PublishedRun(BaseModel):
    """One published run: a worker of a shape under a load, and what was reported of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    model: str
    cluster: str
    role: Literal["prefill", "decode", "mixed"]
    tp: Count
    attention_dp: Count
    batch: Count
    input_tokens: Count
    output_tokens: Count
    figure: Literal["tpot_ms", "tokens_per_s_per_chip"]
    value: Annotated[float, Field(gt=0)]
    engine: str = ""
    weight_dtype: Dtype | None = None
    kv_dtype: Dtype | None = None
    redundant_experts: int = 0
    #: whether the run overlapped two half batches, as its source says
    two_batch_overlap: bool = False
    #: ``uniform`` where routing was balanced or a load balancer ran, ``skewed`` where whole experts had none
    expert_load: Literal["uniform", "skewed"] = "uniform"
    #: what attention multiplied in and tokens were sent to experts in, where the source says so
    attention_dtype: Dtype | None = None
    dispatch_dtype: Dtype | None = None
    #: multiprocessors left to compute beside the exchange, and all of them, where the source says so
    multiprocessors: tuple[Count, Count] | None = None
    prefill_chunk_tokens: Count = 8192
    source: str
    #: the source's words that the reading rests on
    words: str = ""


@dataclass(frozen=True)
class ComparedRun:
    """A deployment and its predicted figure, in the unit of the published one."""

    deployment: PublishedRun
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over published time, less one (a rate counts by its inverse)."""
        ratio = self.predicted / self.deployment.value
        return (ratio if self.deployment.figure == "tpot_ms" else 1.0 / ratio) - 1.0


def published_deployments() -> list[PublishedRun]:
    """The shipped deployments."""
    path = data_dir("measured") / "published.json"
    with checked(path.name):
        return [PublishedRun.model_validate(one) for one in read_data(path)]


def published_rows() -> tuple[list[MeasuredRow], list[Skipped]]:
    """Published runs of one engine that are in no fit."""
    return read_measured(data_dir("measured") / "points.csv")


@dataclass(frozen=True)
class UnseenRun:
    """A run on a chip that no fit saw: measured and predicted, TPOT in seconds or output tokens/s of all chips."""

    row: MeasuredRow
    chip: str
    rate: bool
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over measured less one, in the figure's own unit."""
        return self.predicted / self.measured - 1.0

    @property
    def slower(self) -> float:
        """Measured over predicted time."""
        ratio = self.measured / self.predicted
        return 1.0 / ratio if self.rate else ratio


def unseen_runs(profile: Profile) -> list[UnseenRun]:
    """The shipped runs on chips that no fit saw, predicted under a profile as if nothing of these chips were known.

    Where output tokens/s were published alone, the run is replayed: the rate of so few requests, which begin and end
    together, is not that of a server that is kept full.
    """
    rows, _ = read_measured(data_dir("measured") / "chips.csv", _as_published)
    runs, _ = runs_of(rows)
    profile = profile.model_copy(update={"paces": {}})
    found = predict_under(runs, profile)
    result = []
    for run, tpot_s in zip(runs, found.tpot_s, strict=True):
        row, told = run.row, dict(run.row.percentiles)
        if _RATE in told:
            rate = closed_loop(run, profile, round(told[_PROMPTS])).output_tokens_per_s
            result.append(UnseenRun(row, run.chip, True, told[_RATE], rate))
        else:
            result.append(UnseenRun(row, run.chip, False, row.tpot_s, float(tpot_s)))
    return result


def interval_without(profile: Profile, chip: str, confidence: float = 0.9) -> tuple[float, float]:
    """Ends of measured over predicted time for a chip that no fit saw, made of what the other such chips were off."""
    held_out = profile.held_out
    assert held_out is not None
    others = [log(ratio) for name, ratio in held_out.unlike.items() if name != chip]
    return held_out.factors("tpot", confidence, others)


def _as_published(row: MeasuredRow, cells: Mapping[str, str]) -> MeasuredRow:
    """A row with its published output tokens/s, the prompts that were sent, and what its command sets."""
    settings = replace(
        row.decode.settings,
        running=number(cells, "max_running"),
        chunk_tokens=number(cells, "prefill_chunk_tokens"),
        memory_fraction=number(cells, "memory_fraction"),
    )
    row = replace(row, decode=replace(row.decode, settings=settings))
    told = ((name, number(cells, name)) for name in (_RATE, _PROMPTS))
    return replace(row, percentiles=tuple((name, one) for name, one in told if one is not None))


def compare(deployment: PublishedRun, profile: Profile) -> ComparedRun:
    """Predict one deployment under a profile, read as its source describes it."""
    resolved = resolve_instance(
        Scenario(
            model=deployment.model,
            cluster=deployment.cluster,
            weight_dtype=deployment.weight_dtype,
            kv_dtype=deployment.kv_dtype,
            workload=Workload(
                input_tokens=deployment.input_tokens,
                output_tokens=deployment.output_tokens,
                expert_load=deployment.expert_load,
            ),
            limits=Limits(prefill_chunk_tokens=deployment.prefill_chunk_tokens),
            two_batch_overlap=deployment.two_batch_overlap,
            profile="physics",
        )
    )
    model = replace(
        resolved.model,
        attention_dtype=deployment.attention_dtype,
        dispatch_dtype=deployment.dispatch_dtype,
    )
    constants = profile.of_engine(deployment.engine).routed_as(deployment.expert_load)
    if deployment.multiprocessors is not None:
        computing, every = deployment.multiprocessors
        constants = _computing_on(constants, computing / every)
    instance = Instance(
        resolved.scenario, model, resolved.cluster, resolved.workload, constants,
        resolved.expert_loads, resolved.expert_loads_provenance,
    )  # fmt: skip
    layout = plain_layout(
        instance,
        deployment.role,
        tp=deployment.tp,
        attention_dp=deployment.attention_dp,
        batch=deployment.batch,
        redundant_experts=deployment.redundant_experts,
    )
    service = evaluate(instance, layout).priced.replicas[0].service
    if deployment.figure == "tpot_ms":
        return ComparedRun(deployment, 1e3 * float(service.tpot_s))
    chips = deployment.tp * deployment.attention_dp
    return ComparedRun(deployment, float(service.requests_per_s) * deployment.input_tokens / chips)


def _computing_on(profile: Profile, share: float) -> Profile:
    """A profile whose chips compute on a share of their multiprocessors; memory is as fast."""

    def slower(one: Efficiency) -> Efficiency:
        compute = one.compute or {"bf16": 1.0}
        fewer = {dtype: share * fraction for dtype, fraction in compute.items()}
        return one.model_copy(update={"compute": fewer})

    chips = {chip: slower(one) for chip, one in profile.chips.items()}
    return profile.model_copy(update={"default": slower(profile.default), "chips": chips})


@dataclass(frozen=True)
class Day:
    """Nodes of eight H800 that DeepSeek's service of one day takes: as published, and predicted.

    *Source:* deepseek-ai/open-infra-index, day 6: 608 G prompt tokens of which 342 G were cache hits, 168 G output
    tokens, 73.7 k prompt tokens/s (hits included) and 14.8 k output tokens/s per node, 226.75 nodes on average.
    """

    stated_prefill_nodes: float
    stated_decode_nodes: float
    stated_usd: float
    decode_nodes: float
    prefill_nodes: float
    profile_prefill_nodes: float


def deepseek_day(profile: Profile) -> Day:
    """The day under a profile: decode by the service's shape, prefill by the published profile's."""
    by_id = {one.id: one for one in published_deployments()}
    service, prefill = (
        by_id[name] for name in ("DeepSeek service, decode EP144", "DeepSeek profile, prefill EP32")
    )
    step_s = compare(service, profile).predicted / 1e3
    computed = 608e9 - 342e9
    return Day(
        stated_prefill_nodes=servers_for(608e9, 73.7e3),
        stated_decode_nodes=servers_for(168e9, 14.8e3),
        stated_usd=226.75 * 8 * 24 * 2.0,
        decode_nodes=servers_for(168e9, 8 * service.batch / service.attention_dp / step_s),
        prefill_nodes=servers_for(computed, 8 * compare(prefill, profile).predicted),
        profile_prefill_nodes=servers_for(computed, 8 * prefill.value),
    )
