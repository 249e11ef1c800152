"""An instance: everything the solver and the evaluator read, resolved from names and files.

A :class:`Scenario` is what a person writes (YAML or JSON); :func:`resolve_instance` loads the model,
cluster, workload and profile it names. Every problem is reported at once with its place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.moe_load import log_missed, reached
from costmodel.layout.layout import Role
from costmodel.models.parts.quantisation.formats import ELEMENT_BYTES
from costmodel.models.spec import ModelSpec
from costmodel.passes.encoders import encoders_of
from costmodel.passes.operations import LayerKind, Operations, operations_of
from costmodel.question.engine import ANY, EngineFacts
from costmodel.question.engine_files import engine_problems, load_engine
from costmodel.question.measured_shapes import most_sequences
from costmodel.question.profile import Profile, load_profile
from costmodel.question.recorded_loads import expert_problems, loads_of_model
from costmodel.question.scenario import Scenario, load_workload
from costmodel.question.speculation import Speculative
from costmodel.question.what_if import cluster_of, model_of
from costmodel.question.workload import Limits, Slo, Workload
from costmodel.replica import memory
from costmodel.replica.width_bytes import WidthBytes
from topology import Chip, Cluster, TierKind
from topology.catalogue import checked
from topology.errors import InstanceError, Problem, on_command_line

#: passes, by their tokens, of which it is kept how likely each expert is reached
_MOST_REACHED = 16
#: options of a question that are not written down where they are off
_OFF = (
    "two_batch_overlap", "engine", "taken", "chip", "scale_out", "domain_size", "granularity", "choices",
    "apart",
)  # fmt: skip


@dataclass(frozen=True)
class Instance:
    """A resolved scenario. ``expert_loads [moe layers, experts]`` has rows that sum to 1."""

    scenario: Scenario
    model: ModelSpec
    cluster: Cluster
    workload: Workload
    profile: Profile
    expert_loads: NDArray[np.float64]
    expert_loads_provenance: Literal["measured", "assumed"]
    #: tier from which every pass reads the caches of sequences in flight, where that is not HBM
    kv_read_from: TierKind | None = None

    @property
    def slo(self) -> Slo:
        """Latency targets."""
        return self.scenario.slo

    @cached_property
    def limits(self) -> Limits:
        """Engine and search limits; within what was measured also on sequences of a rank."""
        limits = self.scenario.limits
        if not self.scenario.within_measured:
            return limits
        most = most_sequences({placed.chip.name for placed in self.cluster.usable})
        return limits.at_most(max(1, int(most)))

    @property
    def speculative(self) -> Speculative | None:
        """Drafted tokens and their acceptance, where decoding is speculative."""
        return self.scenario.speculative

    @property
    def engine(self) -> EngineFacts | None:
        """What the engine of the question can run, where it names one."""
        named = self.scenario.engine
        return load_engine(named) if named is not None and named != ANY else None

    def usable_hbm_bytes(self, chip: Chip) -> float:
        """HBM of a chip that a replica may take: what the engine of the question leaves of it."""
        engine = self.engine
        return chip.hbm_bytes if engine is None else engine.usable_share(chip.name) * chip.hbm_bytes

    @property
    def final_context(self) -> int:
        """Tokens of KV kept for a decoding sequence, its drafts included."""
        drafts = self.speculative.draft_tokens if self.speculative is not None else 0
        return self.workload.final_context + drafts

    def kept_context(self, role: Role) -> int:
        """Tokens of KV kept for a sequence in replicas of a role: prefill hands the prompt over when it is computed."""
        return self.workload.input_tokens if role == "prefill" else self.final_context

    @cached_property
    def operations(self) -> Operations:
        """The model compiled into operations."""
        drafts = self.speculative.draft_tokens if self.speculative is not None else 0
        work = self.workload
        encoders = encoders_of(self.model, work) if work.images or work.audio_frames else ()
        compiled = operations_of(self.model, drafts, encoders, self.scenario.adapters)
        return replace(compiled, kv_in_hbm=self.kv_read_from is None)

    def log_missed(self, kind: LayerKind) -> NDArray[np.float64]:
        """:func:`costmodel.experts.moe_load.log_missed` of a kind's experts, one replica each, computed once."""
        assert kind.moe is not None
        key = ("log_missed", kind.moe_rows)
        if key not in self._of_kind:
            self._of_kind[key] = log_missed(self.kind_loads(kind), kind.moe.top_k, 1.0)
        return self._of_kind[key]

    def kind_loads(self, kind: LayerKind) -> NDArray[np.float64]:
        """Expert loads of a kind's layers ``[layers, experts]``."""
        key = ("loads", kind.moe_rows)
        if key not in self._of_kind:
            self._of_kind[key] = self.expert_loads[list(kind.moe_rows)]
        return self._of_kind[key]

    def width_bytes(self, tp: int) -> WidthBytes:
        """Bytes on a chip of a rank of ``tp`` chips, worked out once."""
        if tp not in self._width_bytes:
            self._width_bytes[tp] = WidthBytes(self.operations, tp)
        return self._width_bytes[tp]

    @cached_property
    def _width_bytes(self) -> dict[int, WidthBytes]:
        return {}

    @cached_property
    def request_kv_bytes(self) -> float:
        """Bytes of KV that one prefilled prompt hands over, wherever caches lie."""
        operations = replace(self.operations, kv_in_hbm=True)
        layers = [(kind, float(len(kind.layers))) for kind in operations.kinds]
        context = self.workload.input_tokens
        return float(
            memory.kv_bytes_per_sequence(operations, layers, 1.0, context)
            + memory.draft_kv_bytes(operations, 1.0, context)
        )

    def reached(self, kind: LayerKind, tokens: float) -> NDArray[np.float64]:
        """:func:`costmodel.experts.moe_load.reached` of a kind's experts, one replica each ``[layers, experts]``."""
        key = (kind.moe_rows, tokens)
        found = self._reached.get(key)
        if found is None:
            if len(self._reached) >= _MOST_REACHED:
                self._reached.clear()
            found = self._reached[key] = reached(self.log_missed(kind), tokens)
        return found

    @cached_property
    def _reached(self) -> dict[tuple[tuple[int, ...], float], NDArray[np.float64]]:
        return {}

    @cached_property
    def _of_kind(self) -> dict[object, NDArray[np.float64]]:
        return {}

    @cached_property
    def variants(self) -> dict[object, Instance]:
        """The same question with KV elsewhere or other requests, made once (see :mod:`costmodel.replica.held`)."""
        return {}

    @cached_property
    def digest(self) -> str:
        """SHA-256 over everything that can change an answer."""
        beside = "" if self.model.drafter is None else self.model.drafter.key
        text = json.dumps(
            {
                "scenario": self._resolved_scenario(),
                "profile": self.profile.model_dump(mode="json"),
                "cluster": self.cluster.digest,
                "model": repr(self.model.layers) + repr(self.model.head) + beside,
                "loads": hashlib.sha256(self.expert_loads.tobytes()).hexdigest(),
            },
            sort_keys=True,
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """The instance as plain data; :func:`instance_from_description` reads it back."""
        return {"scenario": self._resolved_scenario(), "digest": self.digest}

    def _resolved_scenario(self) -> dict[str, Any]:
        """The scenario with its workload written in place; options that are off are not mentioned."""
        data = self.scenario.model_dump(mode="json") | {
            "workload": self.workload.model_dump(mode="json")
        }
        if self.workload.spread is None:
            del data["workload"]["spread"]
        data["slo"] = {name: value for name, value in data["slo"].items() if value is not False}
        if self.speculative is None:
            del data["speculative"]
        elif self.speculative.draft is None:
            del data["speculative"]["draft"]
        if self.scenario.layer_slots == "same":
            del data["layer_slots"]
        return {key: value for key, value in data.items() if value or key not in _OFF}


def resolve_instance(scenario: Scenario) -> Instance:
    """Load all that a scenario names. Raises one ``InstanceError`` with every problem found."""
    if scenario.choices is not None:
        message = f"are for {on_command_line('rackfit ')}solve (not with traffic): name one value of each option here"
        raise InstanceError(Problem("choices", message))
    problems: list[Problem] = []
    found: dict[str, Any] = {}
    drafts = scenario.speculative
    loaders: dict[str, Callable[[], Any]] = {
        "model": lambda: model_of(scenario),
        "cluster": lambda: cluster_of(scenario),
        "workload": lambda: (
            scenario.workload
            if isinstance(scenario.workload, Workload)
            else load_workload(scenario.workload)
        ),
        "profile": lambda: _profile(scenario),
    }
    for key, loader in loaders.items():
        try:
            found[key] = loader()
        except InstanceError as error:
            problems += error.problems
    if problems:
        raise InstanceError(problems)
    model: ModelSpec = found["model"]
    workload: Workload = found["workload"]
    if model.max_context is not None and workload.longest > model.max_context:
        problems.append(
            Problem(
                "workload",
                f"{workload.longest_words} than the {model.max_context} positions that "
                f"{model.name} supports",
            )
        )
    if drafts is not None and model.mtp is None and model.drafter is None:
        message = f"{model.name} has no MTP module: name a draft, or leave it out"
        problems.append(Problem("speculative", message))
    if scenario.engine is not None:
        chips = {placed.chip.name: placed.chip for placed in found["cluster"].usable}
        problems += engine_problems(scenario.engine, scenario.layer_slots, model, chips.values())
    problems += expert_problems(model, workload, scenario.layer_slots)
    unknown = {model.kv_dtype, model.activation_dtype} - set(ELEMENT_BYTES)
    if unknown:
        problems.append(Problem("model", f"dtypes {sorted(unknown)} are not known"))
    missing = [
        kind
        for kind in scenario.kv_tiers
        if not any(p.chip.tier(kind) for p in found["cluster"].chips)
    ]
    if missing:
        has = sorted({tier.kind for p in found["cluster"].chips for tier in p.chip.tiers})
        problems.append(
            Problem(
                "kv_tiers",
                f"no chip of {found['cluster'].name} has {' or '.join(missing)}; "
                f"tiers beside HBM: {', '.join(has) or 'none'}",
            )
        )
    if not any(domain.usable for domain in found["cluster"].domains):
        problems.append(Problem("cluster", "has no usable chip"))
    elif not found["cluster"].sold:
        problems.append(Problem("granularity", "no unit or slice is free and works as a whole"))
    if problems:
        raise InstanceError(problems)
    loads, provenance = loads_of_model(model, workload)
    return Instance(
        scenario=scenario,
        model=model,
        cluster=found["cluster"],
        workload=workload,
        profile=found["profile"].routed_as(workload.expert_load),
        expert_loads=loads,
        expert_loads_provenance=provenance,
    )


def instance_from_description(data: dict[str, Any], place: str) -> Instance:
    """Rebuild an instance from :meth:`Instance.describe`."""
    if not isinstance(data, dict) or "scenario" not in data:
        raise InstanceError(Problem(f"{place}: instance", "expected an object with a scenario"))
    with checked(f"{place}: instance.scenario"):
        return resolve_instance(Scenario.model_validate(data["scenario"]))


def _profile(scenario: Scenario) -> Profile:
    """The profile, as it is for the engine of the question where it tells engines apart."""
    profile = load_profile(scenario.profile)
    return (
        profile
        if scenario.engine in (None, ANY)
        else profile.of_engine(scenario.engine.partition("@")[0])
    )
