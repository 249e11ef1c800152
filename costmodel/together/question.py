"""A scenario with several models: each with its workload, targets and rate, on one cluster that is paid once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from costmodel.question.engine import ANY
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import (
    OnCluster,
    OneModel,
    Pay,
    Rate,
    Scenario,
    beside_file,
    has_models,
)
from costmodel.question.what_if import cluster_of
from topology.catalogue import checked, read_data, resolve
from topology.errors import InstanceError, Problem
from topology.names import Line, Name

#: models of one scenario, at most
MOST_MODELS = 20
#: chips that may be lost, at most
MOST_SPARE = 100_000


class Served(OneModel):
    """One model: what is asked of it as in a scenario of its own, and requests per second that it has to serve.

    ``traffic``: requests of unlike lengths as a trace or a description, which ``rate`` rescales. Targets are then 99th percentiles,
    ``goodput`` the share of requests within both, and hold at ``peak`` times the mean rate.
    """

    name: Name | None = None
    traffic: Line | None = None
    rate: Annotated[Rate | None, Field(validate_default=True)] = None
    goodput: Annotated[float, Field(gt=0, lt=1)] | None = None
    peak: Annotated[float, Field(ge=1, le=1000)] = 1.0

    @field_validator("rate")
    @classmethod
    def _asks_for_something(cls, rate: float | None, known: ValidationInfo) -> float | None:
        if rate is None and known.data.get("traffic", "unreadable") is None:
            raise ValueError("is missing: give a rate, or traffic")
        return rate

    @model_validator(mode="after")
    def _traffic_has_targets(self) -> Served:
        if self.traffic is None:
            if self.goodput is not None or self.peak != 1.0:
                raise ValueError("goodput and peak are of traffic: leave them out, or name one")
        elif self.slo.ttft is None and self.slo.tpot is None:
            raise ValueError("traffic has no target: give slo.ttft or slo.tpot")
        return self

    @property
    def called(self) -> str:
        """What the model is called in the answer: its name, else that of its file."""
        return self.name or _stem(self.model)


class Together(OnCluster):
    """Several models on one cluster, each on chips of its own.

    ``pay: used``: the least money for chips in replicas that serve every model's rate. ``pay: whole``: the whole
    cluster is paid, and all rates may grow by the same factor as far as they can. ``spare``: with traffic, targets hold
    without any one ``node``, ``rack`` or number of chips.
    """

    models: Annotated[tuple[Served, ...], Field(min_length=1, max_length=MOST_MODELS)]
    pay: Pay = "used"
    spare: Literal["node", "rack"] | Annotated[int, Field(ge=0, le=MOST_SPARE)] = 0

    @model_validator(mode="after")
    def _all_have_traffic_or_none(self) -> Together:
        without = [one.called for one in self.models if one.traffic is None]
        if without and len(without) < len(self.models):
            raise ValueError(f"some models have traffic: {', '.join(without)} needs one too")
        if without and self.spare:
            raise ValueError("spare is of traffic: leave it out, or give every model one")
        if not without and self.pay == "whole":
            raise ValueError("pay: whole is for steady rates; with traffic say used")
        return self

    def scenario(self, one: Served) -> Scenario:
        """The question of one model on the whole cluster."""
        own = {key: getattr(one, key) for key in OneModel.model_fields}
        shared = {key: getattr(self, key) for key in OnCluster.model_fields}
        return Scenario(**own, **shared | {"name": one.called}, rate=one.rate, pay="used")


@dataclass(frozen=True)
class Models:
    """A resolved question: an instance of each model on the whole cluster, under its name."""

    asked: Together
    names: tuple[str, ...]
    instances: tuple[Instance, ...]

    @property
    def whole(self) -> bool:
        """Whether the whole cluster is paid."""
        return self.asked.pay == "whole"

    @property
    def rates(self) -> tuple[float, ...]:
        """Requests per second asked of each model; of traffic the peak, once it is known (:meth:`at`)."""
        return tuple(one.rate or 0.0 for one in self.asked.models)

    @property
    def for_traffic(self) -> bool:
        """Whether the models have traffic."""
        return self.asked.models[0].traffic is not None

    def at(self, rates: Sequence[float], instances: Sequence[Instance]) -> Models:
        """The same models at such rates, their questions as ``instances`` put them on the whole cluster."""
        models = tuple(
            one.model_copy(update={"rate": rate})
            for one, rate in zip(self.asked.models, rates, strict=True)
        )
        return replace(
            self, asked=self.asked.model_copy(update={"models": models}), instances=tuple(instances)
        )

    @property
    def whole_usd_per_hour(self) -> float:
        """What all usable chips cost."""
        usable = self.instances[0].cluster.usable
        return sum(one.chip.usd_per_hour for one in usable) * self.asked.prices.chip_price_factor

    def beside(self, model: int, taken: Sequence[str]) -> Instance:
        """The question of one model where others have some of the chips."""
        own = self.instances[model]
        scenario = own.scenario.model_copy(update={"taken": (*own.scenario.taken, *taken)})
        return replace(own, scenario=scenario, cluster=cluster_of(scenario))


def read_together(data: Any, path: Path) -> Together:
    """The question in a file's data; paths inside it are relative to the file.

    Raises ``InstanceError`` with all problems, names that two models have among them.
    """
    problems = _twice(data, path.name)
    try:
        with checked(path.name):
            asked = Together.model_validate(data)
    except InstanceError as error:
        raise InstanceError([*error.problems, *problems]) from None
    if problems:
        raise InstanceError(problems)
    models = tuple(
        beside_file(one, path, "model", "workload", "traffic").model_copy(
            update={"name": one.called}
        )
        for one in asked.models
    )
    found = beside_file(asked, path, "cluster", "profile")
    return found.model_copy(update={"models": models})


def load_together(name_or_path: str) -> Together:
    """Read a scenario with several models from the catalogue or a file. Raises ``InstanceError``."""
    path = resolve(name_or_path, "scenarios")
    data = read_data(path)
    if not has_models(data):
        raise InstanceError(Problem(path.name, "has no list of models"))
    return read_together(data, path)


def resolve_together(asked: Together) -> Models:
    """Load all that is named. Raises one ``InstanceError`` with every problem of every model."""
    instances: list[Instance] = []
    wrong: list[list[Problem]] = []
    for one in asked.models:
        own: list[Problem] = []
        if one.engine == ANY:
            message = "any is for one model; name the engine of each of several, or none"
            own.append(Problem("engine", message))
        try:
            instances.append(resolve_instance(asked.scenario(one)))
        except InstanceError as error:
            own += error.problems
        else:
            if instances[-1].workload.hold_s is not None:
                message = "idle KV is planned for one model alone; leave it out"
                own.append(Problem("workload.hold_s", message))
        wrong.append(own)
    shared = [one for one in wrong[0] if len(wrong) > 1 and all(one in own for own in wrong)]
    problems = shared + [
        Problem(f"models[{index}].{one.place}".rstrip("."), one.message)
        for index, own in enumerate(wrong)
        for one in own
        if one not in shared
    ]
    if problems:
        raise InstanceError(problems)
    return Models(asked, tuple(one.called for one in asked.models), tuple(instances))


def _stem(model: str) -> str:
    return Path(model).name.removesuffix(".json")


def _twice(data: Any, place: str) -> list[Problem]:
    """Names that two models have, wherever else the data is wrong."""
    models = data.get("models") if isinstance(data, dict) else None
    named = [
        str(one.get("name") or _stem(str(one.get("model", f"[{index}]"))))
        for index, one in enumerate(models if isinstance(models, list) else [])
        if isinstance(one, dict)
    ]
    return [
        Problem(
            f"{place}: models", f"{name[:80]!r} is there {count} times: give each a name of its own"
        )
        for name, count in Counter(named).items()
        if count > 1
    ]
