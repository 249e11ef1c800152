"""Where a search puts KV: which tier sequences in flight are read from, and where idle KV waits."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from costmodel.layout.layout import KvTier, Role
from costmodel.question.instance import Instance
from costmodel.replica.held import all_new, reading_from


@dataclass(frozen=True)
class KvPlan:
    """One choice for a whole layout.

    ``prefill``: where the prompts that a prefill replica computes have their caches; ``generate``: the
    same for sequences that decode and mixed replicas generate; ``idle``: where the KV of
    conversations that may go on waits (``None``: nowhere, it is computed again). At most a share ``kept``
    of the conversations is kept; ``least_kept`` is where the next lower share takes over, which a bound
    on the rent may count on.
    """

    prefill: KvTier = "hbm"
    generate: KvTier = "hbm"
    idle: KvTier | None = None
    kept: float = 1.0
    least_kept: float = 0.0

    def in_flight(self, role: Role) -> KvTier:
        """Where a replica of this role has the caches of sequences in flight."""
        return self.prefill if role == "prefill" else self.generate

    def words(self) -> str:
        """The plan as a phrase."""
        said = {
            "hbm": "in HBM",
            "host": "in host memory",
            "flash": "in flash",
            "disk": "on disk",
        }
        text = f"KV {said[self.generate]}"
        if self.prefill != self.generate:
            text = f"KV of prompts {said[self.prefill]} and of answers {said[self.generate]}"
        if self.idle is not None:
            text += f", idle KV {said[self.idle]}"
        return text


#: everything in HBM, and no KV kept for later
_PLAIN = KvPlan()


@dataclass(frozen=True)
class PlannedInstance(Instance):
    """A question with the places of KV that a search looks at. The evaluator reads a layout's places instead."""

    kv_plan: KvPlan = field(default=_PLAIN)


def under_plan(instance: Instance, plan: KvPlan) -> PlannedInstance:
    """The question under a plan."""
    asked = {one.name: getattr(instance, one.name) for one in fields(Instance)}
    return PlannedInstance(**asked, kv_plan=plan)


def plan_of(instance: Instance) -> KvPlan:
    """The plan of a question; one that has none keeps everything in HBM."""
    return instance.kv_plan if isinstance(instance, PlannedInstance) else _PLAIN


def for_role(instance: Instance, role: Role) -> Instance:
    """The question as a replica of a role sees it under the plan."""
    seen = reading_from(instance, plan_of(instance).in_flight(role))
    return seen if keeps_idle(instance, role) else all_new(seen)


def keeps_idle(instance: Instance, role: Role) -> bool:
    """Whether replicas of a role keep idle KV under the plan."""
    workload = instance.workload
    waits = workload.hold_s is not None and workload.cached_tokens > 0
    return waits and plan_of(instance).idle is not None and role != "decode"
