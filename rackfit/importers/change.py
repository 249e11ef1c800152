"""What to change in a deployment that runs: another expert placement for the same servers, or another layout altogether."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.layout import ExpertMap, Layout
from costmodel.question.instance import Instance
from rackfit.importers.deployment import build_layout
from rackfit.importers.servers import FoundServer
from rackfit.report.compare import Difference, compare
from rackfit.wording import amount
from solver.experts import place_layers
from solver.place.placements import engine_places
from topology.quantity import per_cent


@dataclass(frozen=True)
class Change:
    """A layout in place of what runs, its price, and what is loaded to get there.

    ``faster``: relative rise of the output tokens per second.
    """

    layout: Layout
    evaluation: Evaluation
    difference: Difference
    faster: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data but for the layout."""
        return {
            "evaluation": self.evaluation.as_dict(),
            "faster": self.faster,
            "expert_copies_to_load": self.difference.loads,
            "bytes_to_load": self.difference.moved.total_bytes,
            "load_s": self.difference.moved.seconds,
        }

    def words(self) -> str:
        """What is loaded, and what it brings."""
        parts = []
        if self.difference.loads:
            parts.append(f"{self.difference.loads:,} expert copies get new chips")
        if self.difference.moved.total_bytes:
            parts.append(self.difference.moved.words())
        cost = self.evaluation.usd_per_m_output_tokens
        parts.append(
            f"{per_cent(self.faster, signed=True)} output tokens/s, ${amount(cost)} per million output tokens, TPOT "
            f"{1e3 * (self.evaluation.tpot_s or 0.0):.1f} ms"
        )
        return "; ".join(parts)


@dataclass(frozen=True)
class Fuller:
    """The same servers with as many sequences as targets and HBM allow.

    ``words``: the option, and how many it was told before. ``mends``: targets that were missed are met.
    """

    change: Change
    words: str
    mends: bool


def filled(
    instance: Instance,
    before: tuple[Layout, Evaluation],
    servers: Sequence[FoundServer],
    *,
    balanced: bool,
) -> Fuller | None:
    """What servers bring whose commands limit their sequences, at the most that meets the targets; ``None`` where none is held back."""
    limited = [one for one in servers if one.role != "prefill" and one.batch is not None]
    opened = [
        replace(one, batch=None, sequences=None) if one in limited else one for one in servers
    ]
    if not limited:
        return None
    layout = build_layout(instance, opened, balanced=balanced).layout
    change = change_to(instance, before, layout, instance)
    if change is None or len(change.evaluation.violations) > len(before[1].violations):
        return None
    engine = instance.engine
    option = "sequences" if engine is None else engine.habits.slots
    told = dict.fromkeys(
        f"{new.shape.batch:,} instead of {old.shape.batch:,} on a {old.role} server"
        for old, new in zip(before[0].replicas, layout.replicas, strict=True)
        if old.shape.batch != new.shape.batch
    )
    mends = bool(before[1].violations) and not change.evaluation.violations
    return Fuller(change, f"{option}: {', '.join(told)}", mends) if told else None


def change_to(
    instance: Instance, before: tuple[Layout, Evaluation], layout: Layout, asked: Instance
) -> Change | None:
    """From what runs (priced in ``instance``) to a layout (of ``asked``); ``None`` where either has no price."""
    evaluation = evaluate(asked, layout)
    old, new = before[1].output_tokens_per_s, evaluation.output_tokens_per_s
    if not old or not new or evaluation.usd_per_m_output_tokens is None:
        return None
    difference = compare((instance, *before), (asked, layout, evaluation))
    return Change(layout, evaluation, difference, new / old - 1.0)


def placed_anew(instance: Instance, layout: Layout, seed: int = 0) -> tuple[Layout | None, str]:
    """The same servers with their experts placed for the expected loads, or why there is no such layout.

    Slots stay as they are: which expert is in which is all that changes.
    """
    if not layout.expert_maps:
        if any(replica.cuts_experts for replica in layout.replicas):
            return None, "each expert is cut over all chips; there is none to place"
        return None, "there are no routed experts to place"
    for replica in layout.replicas:
        if not engine_places(instance, replica.shape.attention_dp):
            engine = instance.engine
            title = "the engine" if engine is None else engine.title
            return None, f"{title} takes no expert placement for servers like these"
    row_of = {layer: row for row, layer in enumerate(instance.operations.moe_layers)}
    maps: dict[str, ExpertMap] = {name: dict(own) for name, own in layout.expert_maps.items()}
    done: set[tuple[object, ...]] = set()
    for replica in layout.replicas:
        for stage in replica.stages:
            name, (first, last) = stage.expert_map, stage.layers
            if name is None or (name, first, last) in done:
                continue
            done.add((name, first, last))
            alike: dict[tuple[int, ...], list[int]] = {}
            for layer in maps[name]:
                if first <= layer <= last:
                    alike.setdefault(stage.slots(layer), []).append(layer)
            for slots, layers in alike.items():
                loads = instance.expert_loads[[row_of[layer] for layer in layers]]
                placed = place_layers(loads, slots, seed=seed).physical_to_logical
                for layer, row in zip(layers, placed.tolist(), strict=True):
                    maps[name][layer] = tuple(row)
    return layout.model_copy(update={"expert_maps": maps}), ""
