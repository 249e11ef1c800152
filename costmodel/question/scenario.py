"""What a person asks: a question in names and values, read from YAML, JSON or the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from costmodel.question.adapters import Adapters
from costmodel.question.choices.options import Choices, Dtype, Values
from costmodel.question.engine_files import EngineName
from costmodel.question.speculation import Speculative
from costmodel.question.workload import Limits, Prices, Slo, Workload
from topology import TierKind
from topology.catalogue import beside, checked, read_data, resolve
from topology.errors import InstanceError, Problem, on_command_line
from topology.names import Line, Name, Prose
from topology.quantity import Given

Pay = Literal["whole", "used"]
Rate = Annotated[float, Field(gt=0, lt=1e9)]
Part = TypeVar("Part", bound=BaseModel)


def _named_or_in_place(value: object) -> str:
    return "<in place>" if isinstance(value, dict | Workload) else "<name>"


class OnCluster(Given):
    """Where a question is answered: a cluster and what is changed of it, and which money counts.

    ``cluster`` is a catalogue name or a path. ``failed`` names what is out of service (``r0g3``, ``r1``, ``r0sw1``; see
    :mod:`topology.failures`), in text joined by ``+`` or commas, ``taken`` the chips that others use. ``chip`` changes figures
    of every chip (``hbm_bytes_per_s: +20%``), ``scale_out`` options of the network, ``domain_size`` the chips of a
    switched domain (see :mod:`costmodel.question.what_if`). ``granularity`` is one of the ways in which the cluster's file
    says that its chips are sold (``tray``, ``slice``), or ``chip``: any chips; by default what the file says.
    """

    name: Name = "custom"
    description: Prose = ""
    cluster: Line
    profile: Line = "calibrated"
    prices: Prices = Prices()
    failed: tuple[Line, ...] = ()
    taken: tuple[Line, ...] = ()
    chip: dict[str, Line | float | dict[str, Line | float]] = Field(default_factory=dict)
    scale_out: dict[str, bool | float | Line] = Field(default_factory=dict)
    domain_size: Annotated[int, Field(ge=1, le=100_000)] | None = None
    granularity: Name | None = None

    @field_validator("failed", "taken", "kv_tiers", mode="before", check_fields=False)
    @classmethod
    def _listed_in_text(cls, value: object) -> object:
        if isinstance(value, str):
            parts = (part.strip() for part in value.replace(",", "+").split("+"))
            return tuple(part for part in parts if part not in ("", "none"))
        return value


class OneModel(Given):
    """What one model is asked for: its workload, its targets, and how it may be run.

    ``model`` and ``workload`` are catalogue names or paths; ``workload`` may also be written in place. ``speculative``
    lets the model's MTP modules, or a draft model, draft tokens. ``adapters`` are LoRA adapters that every replica holds.
    ``engine`` keeps the answer to what one serving engine can run (see :mod:`costmodel.question.engine`).
    ``layer_slots`` says how many spare expert slots the layers have: the ``same``, or unlike numbers in whole ``rows``
    (one per chip) or in ``any`` numbers, which fewer formats hold.
    ``within_measured`` keeps to workers and batches that somebody measured (see :mod:`costmodel.question.measured_shapes`).
    """

    model: Line
    workload: Annotated[
        Annotated[Line, Tag("<name>")] | Annotated[Workload, Tag("<in place>")],
        Discriminator(_named_or_in_place),
    ]
    slo: Slo = Slo()
    weight_dtype: Dtype | None = None
    kv_dtype: Dtype | None = None
    limits: Limits = Limits()
    speculative: Speculative | None = None
    adapters: Adapters | None = None
    engine: EngineName | None = None
    layer_slots: Literal["same", "rows", "any"] = "same"
    within_measured: bool = False


class Scenario(OneModel, OnCluster):
    """One question: which model on which cluster for which workload, under which targets.

    Keys of the model and of the cluster are described in :class:`OneModel` and :class:`OnCluster`. ``rate`` asks for the
    least cost that serves so many requests per second. ``kv_tiers`` are the tiers beside HBM that
    KV may use (``host``, ``flash``, ``disk``; in text joined by ``+``). ``two_batch_overlap`` runs every
    pass in two halves, each computing while the other's experts are exchanged (evaluated, not searched).
    ``choices`` leaves options to the search (see :class:`costmodel.question.choices.options.Choices`). ``apart`` lets it also
    put attention and routed experts of decode replicas on chips of their own (see :mod:`costmodel.apart.times`); with
    ``only`` all generation is done so.
    """

    pay: Pay = "whole"
    rate: Rate | None = None
    kv_tiers: tuple[TierKind, ...] = ()
    two_batch_overlap: bool = False
    choices: Choices | None = None
    apart: bool | Literal["only"] = False

    @model_validator(mode="after")
    def _drafts_have_an_acceptance(self) -> Scenario:
        most = max(self.choices.drafts, default=0) if self.choices is not None else 0
        if most and self.speculative is None:
            raise ValueError(
                f"choices.drafts: up to {most} drafts need their acceptance (speculative: acceptance)"
            )
        if most and self.speculative is not None:
            self.speculative.drafting(most)
        return self

    def choosing(self, values: Values) -> Scenario:
        """The scenario with these values of its choices, and nothing left open."""
        changed: dict[str, Any] = {"choices": None}
        if "drafts" in values:
            drafts = self.speculative
            changed["speculative"] = drafts and drafts.drafting(values["drafts"])
        if "overlap" in values:
            changed["two_batch_overlap"] = values["overlap"]
        if "chunk" in values:
            limits = self.limits.model_copy(update={"prefill_chunk_tokens": values["chunk"]})
            changed["limits"] = limits
        if "tiers" in values:
            changed["kv_tiers"] = values["tiers"]
        changed |= {name: values[name] for name in ("kv_dtype", "weight_dtype") if name in values}
        return self.model_copy(update=changed)


def without_apart(scenario: Scenario, what: str) -> None:
    """Raise ``InstanceError`` where a question asks for experts apart of what does not take them."""
    if scenario.apart:
        raise InstanceError(
            Problem("apart", f"{what} does not take attention and experts apart: leave it out")
        )


def load_scenario(name_or_path: str) -> Scenario:
    """Read a scenario from the catalogue or a file. Paths inside it are relative to the file."""
    path = resolve(name_or_path, "scenarios")
    data = read_data(path)
    if has_models(data):
        message = on_command_line(
            "has several models: only rackfit solve and rackfit.solve_together take it; each model's own layout, "
            "which solve --out writes, goes with the other commands",
            "has several models: only solve takes it",
        )
        raise InstanceError(Problem(f"{path.name}: models", message))
    with checked(path.name):
        scenario = Scenario.model_validate(data)
    return beside_file(scenario, path, "model", "cluster", "workload", "profile")


def has_models(data: Any) -> bool:
    """Whether the data of a file is a scenario with several models (a plan has units, too)."""
    return isinstance(data, dict) and "models" in data and "units" not in data


def beside_file(part: Part, path: Path, *keys: str) -> Part:
    """A part of a file with the paths in some of its keys taken from the folder of the file."""
    found: dict[str, Any] = {
        key: beside(path, value) for key in keys if isinstance(value := getattr(part, key), str)
    }
    if isinstance(workload := getattr(part, "workload", None), Workload):
        found["workload"] = _loads_beside(workload, path)
    drafts = getattr(part, "speculative", None)
    if drafts is not None and drafts.draft is not None:
        draft = beside(path, drafts.draft)
        found["speculative"] = drafts.model_copy(update={"draft": draft})
    return part.model_copy(update=found)


def _loads_beside(workload: Workload, path: Path) -> Workload:
    """The workload with its recorded expert loads taken from the folder of the file it stands in."""
    return workload.model_copy(update={"expert_load": beside(path, workload.expert_load)})


def load_workload(name_or_path: str) -> Workload:
    """Read a workload from the catalogue or a file."""
    path = resolve(name_or_path, "workloads")
    with checked(path.name):
        return _loads_beside(Workload.model_validate(read_data(path)), path)
