"""What a serving engine runs, as data: ``instances/engines/<name>/<version>.yaml``.

A question that names an engine is answered within these limits: the search keeps to them, the
evaluator checks them, prices follow the exchange of experts' tokens that the engine would use, and an
export writes the answer as it stands. A statement of the data names the engine's file it was read in.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from costmodel.models.registry import known_families
from costmodel.models.spec import Drafter, DrafterKind, ModelSpec
from costmodel.question.exchange import Exchange

if TYPE_CHECKING:
    from topology.chip import Chip

#: every engine that is kept, whichever serves cheapest
ANY = "any"


class _Facts(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Memory(_Facts):
    """Share of a chip's HBM that weights, KV, activations and the runtime may take together."""

    usable: Annotated[float, Field(gt=0, le=0.95)]
    #: chips of which it is less
    chips: dict[str, Annotated[float, Field(gt=0, le=0.95)]] = Field(default_factory=dict)
    #: what the engine itself takes where nothing is said
    default: float | None = None
    source: str


class Layouts(_Facts):
    """Which layouts an engine runs; every engine gives each chip of a replica equally many expert slots.

    ``placement``: whose experts lie where a layout says: those of ``any`` model, of the classes in ``models.placed`` (``listed``),
    of replicas with attention data parallelism (``attention-dp``), or of ``none``; all others lie in order. ``spare_in_order``:
    whether there may be spare slots then. ``uneven_in_order``: whether chips may differ by a slot where each expert lies once, in order.
    ``split_attention``: tensor and data parallel attention in one stage. ``whole_heads``: whether tensor parallelism has to divide
    KV heads, or they it. ``whole_blocks``: whether it has to divide the columns of dense
    layers and shared experts, in blocks of FP8 scales where they are. ``sources``: files of the engine that these were read in, by field.
    """

    placement: Literal["any", "listed", "attention-dp", "none"]
    spare_in_order: bool = True
    uneven_in_order: bool = False
    split_attention: bool = True
    whole_heads: bool = False
    whole_blocks: bool = False
    decode_stages: bool = True
    hybrid_prefill_stages: bool = True
    sources: dict[str, str] = Field(default_factory=dict)


class Runs(_Facts):
    """Vendors of the chips that an engine runs on, each with the variable that gives a process its chips."""

    vendors: dict[str, str]
    #: why not on the chips of other vendors
    otherwise: dict[str, str] = Field(default_factory=dict)
    source: str


class Models(_Facts):
    """Architectures (as a ``config.json`` names them) by what their classes can do; ``None``: all of them.

    ``spare``: have redundant experts. ``placed``: load a placement. ``all_to_all``: call such a backend.
    """

    served: tuple[str, ...] | None = None
    spare: tuple[str, ...] | None = None
    placed: tuple[str, ...] | None = None
    all_to_all: tuple[str, ...] | None = None

    def have(self, kind: str, model: ModelSpec) -> bool:
        """Whether a model's class is of a kind; of a class that is not known only that it may be served."""
        known = getattr(self, kind)
        own = _architectures().get(model.family, ())
        if not own:
            return known is None or kind == "served"
        return known is None or any(name in known for name in own)


@lru_cache(maxsize=1)
def _architectures() -> dict[str, tuple[str, ...]]:
    """Architectures of each family of models."""
    return {family.name: family.architectures for family in known_families()}


class Graphs(_Facts):
    """CUDA graphs of decode passes: the option for the largest batch captured, and what it is without."""

    option: str
    default: int | None = None
    source: str


class ExpertKernels(_Facts):
    """Chips on which the engine has kernels that join routing, products and activation of routed experts; it has others for
    all chips, whose layers take longer (``unfused_moe_overhead_s`` of a profile)."""

    fused_on: tuple[str, ...]
    source: str


#: when the first token of a request that was handed over leaves (:class:`costmodel.replay.job.Habits`)
FirstTokenOf = Literal["joins", "decodes"]


class Drafts(_Facts):
    """Models beside the one that is served which an engine drafts with: what it calls each kind, and where it ends at once.

    ``one_rank``: kinds that do not start beside attention in several ranks.
    """

    kinds: dict[DrafterKind, str]
    one_rank: tuple[DrafterKind, ...] = ()
    source: str

    def refusal(self, drafter: Drafter, attention_dp: int) -> str | None:
        """Why such a model is not run beside attention in so many ranks; ``None`` if it is."""
        own = f"draft with {drafter.spec.name} ({_DRAFTERS[drafter.kind]})"
        if drafter.kind not in self.kinds:
            known = " or ".join(_DRAFTERS[kind] for kind in self.kinds)
            return f"does not {own}; {known} would do"
        if attention_dp > 1 and drafter.kind in self.one_rank:
            return f"does not {own} beside attention in {attention_dp} ranks; one rank would do"
        return None


#: what a kind of drafter is called
_DRAFTERS: dict[DrafterKind, str] = {
    "eagle": "a head of the first EAGLE",
    "eagle3": "an EAGLE-3 head",
    "model": "a model of its own",
}


class EngineHabits(_Facts):
    """How an engine schedules: options for the prompt tokens of a pass and for sequences, and what it does.

    ``prompts``: how prompts share a server with decoding sequences (see :class:`costmodel.replay.job.Habits`).
    ``reserves_kv``: whether KV is kept for the whole answer before a request starts. ``schedules_ahead``:
    whether a pass is settled when the one before it starts. ``first_token``: when the first token of a request that was
    handed over leaves, read in ``first_token_source``. ``attention_dp``: the option that splits a stage into attention
    ranks, and flags beside it.
    """

    chunk: str
    slots: str
    prompts: Literal["mixed", "between", "first"]
    reserves_kv: bool
    schedules_ahead: bool
    first_token: FirstTokenOf = "joins"
    first_token_source: str = ""
    attention_dp: tuple[str, ...] = ()
    source: str


class Deprecation(_Facts):
    """An argument that goes away: when, and what takes its place."""

    argument: str
    until: str
    instead: str = ""
    source: str


class EngineFacts(_Facts):
    """One version of one engine."""

    engine: str
    title: str
    version: str
    read: str
    repository: str
    runs: Runs
    memory: Memory
    layouts: Layouts
    models: Models = Models()
    #: how routed experts exchange tokens, the first that fits a replica
    exchange: tuple[Exchange, ...]
    #: what the engine calls a format of the KV cache; formats not named are not stored
    kv_dtypes: dict[str, str]
    graphs: Graphs
    habits: EngineHabits
    experts: ExpertKernels | None = None
    #: models that draft beside the one that is served; ``None``: all of them
    drafts: Drafts | None = None
    deprecations: tuple[Deprecation, ...] = ()

    @model_validator(mode="after")
    def _every_replica_exchanges(self) -> EngineFacts:
        if not self.exchange or not self.exchange[-1].serves_all:
            raise ValueError("exchange: the last backend must serve every replica")
        return self

    @cached_property
    def label(self) -> str:
        """Title and version."""
        return f"{self.title} {self.version}"

    def usable_share(self, chip: str) -> float:
        """Share of a chip's HBM that a replica may take."""
        return self.memory.chips.get(chip, self.memory.usable)

    def places_experts(self, model: ModelSpec, attention_dp: int) -> bool:
        """Whether the engine puts a replica's experts where a layout says."""
        layouts = self.layouts
        return {
            "any": True,
            "listed": self.models.have("placed", model),
            "attention-dp": attention_dp > 1,
            "none": False,
        }[layouts.placement]

    def spares_experts(self, model: ModelSpec, attention_dp: int) -> bool:
        """Whether a replica may have more slots than experts."""
        if not self.models.have("spare", model):
            return False
        return self.layouts.spare_in_order or self.places_experts(model, attention_dp)

    def chip_refusal(self, chip: Chip) -> str | None:
        """Why the engine does not run on a chip; ``None`` if it does."""
        if chip.vendor in self.runs.vendors:
            return None
        why = self.runs.otherwise.get(chip.vendor, f"it runs on {', '.join(self.runs.vendors)}")
        return f"{self.label} does not run on {chip.name} ({chip.vendor}): {why}"

    def model_refusal(self, model: ModelSpec) -> str | None:
        """Why the engine does not serve a model as it is priced; ``None`` if it does."""
        if not self.models.have("served", model):
            return f"{self.label} has no class for {model.name} (family {model.family})"
        if model.kv_dtype not in self.kv_dtypes:
            known = ", ".join(self.kv_dtypes)
            return f"{self.label} stores no KV in {model.kv_dtype}; it stores {known}"
        return self.draft_refusal(model, 1)

    def draft_refusal(self, model: ModelSpec, attention_dp: int) -> str | None:
        """Why the engine does not draft with what drafts for a model; ``None`` if it does, or nothing beside it drafts."""
        if model.drafter is None or self.drafts is None:
            return None
        wrong = self.drafts.refusal(model.drafter, attention_dp)
        return wrong and f"{self.label} {wrong} ({self.drafts.source})"

    def width_refusal(self, model: ModelSpec, tp: int) -> str | None:
        """Why attention, dense layers and shared experts are not cut over so many chips; ``None`` if they are."""
        heads = model.odd_kv_heads(tp) if self.layouts.whole_heads else None
        if heads is not None:
            words = f"tensor parallel {tp} neither divides {heads} KV heads nor is divided by them"
            return self.cited("whole_heads", words)
        wrong = model.parted(tp) if self.layouts.whole_blocks else None
        return wrong and self.cited("whole_blocks", f"tensor parallel {tp} does not divide {wrong}")

    def refusal(
        self, model: ModelSpec, chip: Chip, role: str, tp: int, attention_dp: int, pp: int
    ) -> str | None:
        """Why a replica of this shape does not run, in words; ``None`` if it does."""
        layouts = self.layouts
        found = self.chip_refusal(chip) or self.model_refusal(model)
        found = found or self.draft_refusal(model, attention_dp) or self.width_refusal(model, tp)
        if found is not None:
            return found
        if tp > 1 and attention_dp > 1 and not layouts.split_attention:
            return self.cited(
                "split_attention",
                f"attention sharded {tp} ways in {attention_dp} ranks; {self.title} does one or the other",
            )
        if pp > 1 and role == "decode" and not layouts.decode_stages:
            return self.cited(
                "decode_stages",
                f"{pp} stages in a decode replica; the KV transfer of {self.title} takes one",
            )
        if pp > 1 and role == "prefill" and model.hybrid and not layouts.hybrid_prefill_stages:
            return self.cited(
                "hybrid_prefill_stages",
                f"{pp} stages in a prefill replica of a model with windowed or recurrent layers; "
                f"the KV transfer of {self.title} takes one",
            )
        return None

    def cited(self, field: str, message: str) -> str:
        """A refusal with the engine's version and the file that it was read in."""
        source = self.layouts.sources.get(field)
        return f"{message} ({self.label}{f', {source}' if source else ''})"


def in_order(num_experts: int, slots: int) -> tuple[int, ...]:
    """Experts in order, then again from the first: what engines start with."""
    return tuple(slot % num_experts for slot in range(slots))
