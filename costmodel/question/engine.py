"""Which layouts a serving engine can run, read from ``instances/engines/<name>.yaml``.

A question that names an engine is answered within these limits: the search keeps to them, the
evaluator checks them, and an export writes the answer as it stands.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from costmodel.models.spec import Attention, LinearState, ModelSpec, MoE
from topology.catalogue import checked, data_dir, read_data

if TYPE_CHECKING:
    from topology.chip import Chip

EngineName = Literal["sglang", "trtllm", "vllm"]


class EngineLayouts(BaseModel):
    """What an engine can run; every engine gives each chip of a replica equally many expert slots.

    ``placement``: whose experts lie where a layout says: those of ``any`` model, of the families in
    ``placed_models`` (``listed``), of replicas with attention data parallelism (``attention-dp``), or
    of ``none``; all others lie in order. ``spare_in_order``: whether there may be spare slots then.
    ``split_attention``: tensor and data parallel attention in one stage. ``expert_widths``: chips that
    NVIDIA's kernels exchange tokens over, empty for any number.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    placement: Literal["any", "listed", "attention-dp", "none"]
    placed_models: tuple[str, ...] = ()
    spare_in_order: bool = True
    split_attention: bool = True
    decode_stages: bool = True
    hybrid_prefill_stages: bool = True
    expert_widths: tuple[int, ...] = ()
    #: how prompts share a server with decoding sequences (see :class:`costmodel.replay.job.Habits`)
    prompts: Literal["mixed", "between", "first"] = "between"
    #: whether KV is kept for the whole answer before a request starts
    reserves_kv: bool = True
    #: whether a pass is settled when the one before it starts
    schedules_ahead: bool = False

    def places_experts(self, model: ModelSpec, attention_dp: int) -> bool:
        """Whether the engine puts a replica's experts where a layout says."""
        return {
            "any": True,
            "listed": model.family in self.placed_models,
            "attention-dp": attention_dp > 1,
            "none": False,
        }[self.placement]

    def refusal(
        self, model: ModelSpec, chip: Chip, role: str, tp: int, attention_dp: int, pp: int
    ) -> str | None:
        """Why a replica of this shape does not run, in words; ``None`` if it does."""
        experts = any(isinstance(part, MoE) for layer in model.layers for part in layer.sublayers)
        if tp > 1 and attention_dp > 1 and not self.split_attention:
            return f"attention sharded {tp} ways in {attention_dp} ranks; {self.title} does one or the other"
        if pp > 1 and role == "decode" and not self.decode_stages:
            return f"{pp} stages in a decode replica; the KV transfer of {self.title} takes one"
        if pp > 1 and role == "prefill" and is_hybrid(model) and not self.hybrid_prefill_stages:
            return (
                f"{pp} stages in a prefill replica of a model with windowed or recurrent layers; "
                f"the KV transfer of {self.title} takes one"
            )
        width = tp * attention_dp if experts else 1
        if self.expert_widths and chip.vendor == "NVIDIA" and width not in (1, *self.expert_widths):
            known = ", ".join(map(str, self.expert_widths))
            return f"experts on {width} chips; {self.title} exchanges tokens over {known}"
        return None


def in_order(num_experts: int, slots: int) -> tuple[int, ...]:
    """Experts in order, then again from the first: what engines start with."""
    return tuple(slot % num_experts for slot in range(slots))


def is_hybrid(model: ModelSpec) -> bool:
    """Whether layers differ in what they keep: a window, or a state in place of KV."""
    parts = [part for layer in model.layers for part in layer.sublayers]
    windows = {part.window for part in parts if isinstance(part, Attention)}
    return any(isinstance(part, LinearState) for part in parts) or len(windows) > 1


@lru_cache(maxsize=16)
def load_engine(name: EngineName) -> EngineLayouts:
    """The limits of a shipped engine."""
    path = data_dir("engines") / f"{name}.yaml"
    with checked(path.name):
        return EngineLayouts.model_validate(read_data(path)["layouts"])
