"""Published deployments that the fit never saw: shape, load and one figure each, predicted by ``evaluate``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from costmodel.evaluate import evaluate
from costmodel.instance import Dtype, Instance, Scenario, resolve_instance
from costmodel.plain_layout import plain_layout
from costmodel.profile import Profile
from costmodel.workload import Limits, Workload
from topology.catalogue import data_dir, parse_model, read_data

Count = Annotated[int, Field(ge=1)]


class Deployment(BaseModel):
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
    kv_dtype: Dtype | None = None
    redundant_experts: int = 0
    #: whether the run overlapped two half batches, as its source says
    two_batch_overlap: bool = False
    prefill_chunk_tokens: Count = 8192
    source: str


@dataclass(frozen=True)
class Compared:
    """A deployment and its predicted figure, in the unit of the published one."""

    deployment: Deployment
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over published time, less one (a rate counts by its inverse)."""
        ratio = self.predicted / self.deployment.value
        return (ratio if self.deployment.figure == "tpot_ms" else 1.0 / ratio) - 1.0


def published_deployments() -> list[Deployment]:
    """The shipped deployments."""
    path = data_dir("measured") / "published.json"
    return [parse_model(Deployment, one, path.name) for one in read_data(path)]


def compare(deployment: Deployment, profile: Profile) -> Compared:
    """Predict one deployment under a profile, with its experts evenly loaded."""
    resolved = resolve_instance(
        Scenario(
            model=deployment.model,
            cluster=deployment.cluster,
            kv_dtype=deployment.kv_dtype,
            workload=Workload(
                input_tokens=deployment.input_tokens,
                output_tokens=deployment.output_tokens,
                expert_load="uniform",
            ),
            limits=Limits(prefill_chunk_tokens=deployment.prefill_chunk_tokens),
            two_batch_overlap=deployment.two_batch_overlap,
            profile="physics",
        )
    )
    instance = Instance(
        resolved.scenario, resolved.model, resolved.cluster, resolved.workload,
        profile.of_engine(deployment.engine), resolved.expert_loads,
        resolved.expert_loads_provenance,
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
        return Compared(deployment, 1e3 * float(service.tpot_s))
    chips = deployment.tp * deployment.attention_dp
    return Compared(deployment, float(service.requests_per_s) * deployment.input_tokens / chips)
