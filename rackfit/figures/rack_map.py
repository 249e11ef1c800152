"""Every chip of a layout drawn in its domain: HBM by kind as a filled column, details on hover."""

from __future__ import annotations

import math
from dataclasses import dataclass

from costmodel.evaluate import Evaluation
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.replica.replica import MEMORY_KINDS
from rackfit.figures.stage_load import stage_load
from rackfit.quoting import markup
from rackfit.wording import counted
from topology import Domain

#: more chips than this are left out, so that a page stays small
MAX_CHIPS = 1200
_PER_ROW, _WIDE, _TALL, _STEP_X, _STEP_Y, _TOP = 24, 30, 56, 39, 72, 40


@dataclass(frozen=True)
class ChipUse:
    """What one chip does: the replica's number and role, stage, place in it, HBM bytes by kind.

    ``expert_load``: its routed tokens over the stage's mean, all MoE layers together.
    """

    replica: int
    role: str
    stage: int
    rank: int
    shard: int
    memory: dict[str, float]
    expert_load: float | None = None


def chip_uses(instance: Instance, layout: Layout, evaluation: Evaluation) -> dict[str, ChipUse]:
    """Use of every chip that is in a replica, by chip id."""
    uses = {}
    known: dict[object, list[float] | None] = {}
    for number, (replica, price) in enumerate(
        zip(layout.replicas, evaluation.priced.replicas, strict=True)
    ):
        for index, (stage, stage_price) in enumerate(
            zip(replica.groups, price.stages, strict=True)
        ):
            key = (stage.expert_map, stage.layers, stage.slot_key)
            if key not in known:
                found = stage_load(instance, layout, stage)
                known[key] = None if found is None else found.load.mean(axis=0).tolist()
            load = known[key]
            for place, chip in enumerate(stage.chips):
                rank, shard = divmod(place, replica.shape.tp)
                memory = {kind: float(stage_price.memory[kind][place]) for kind in MEMORY_KINDS}
                own = None if load is None else load[place]
                uses[chip] = ChipUse(number, replica.role, index, rank, shard, memory, own)
    return uses


def rack_map(instance: Instance, layout: Layout, evaluation: Evaluation) -> str:
    """HTML: one picture per domain, with its key, until ``MAX_CHIPS`` chips are drawn."""
    uses = chip_uses(instance, layout, evaluation)
    parts = [
        '<p class="note">HBM of each chip by kind. P, D, M and a number: prefill, decode or mixed replica; x: failed; no letter: not in use. Details on pointing at a chip.</p>'
    ]
    drawn = 0
    for domain in instance.cluster.domains:
        if drawn and drawn + len(domain.chips) > MAX_CHIPS:
            break
        drawn += len(domain.chips)
        parts.append(_domain(domain, uses))
    hidden = len(instance.cluster.chips) - drawn
    if hidden:
        parts.append(f"<p>{hidden:,} more chips are not drawn.</p>")
    return "\n".join(parts)


def _domain(domain: Domain, uses: dict[str, ChipUse]) -> str:
    rows = math.ceil(len(domain.chips) / _PER_ROW)
    width = _PER_ROW * _STEP_X + 8
    kinds = ", ".join(dict.fromkeys(placed.chip.name for placed in domain.chips))
    chips = counted(len(domain.chips), "chip")
    name = f"{domain.name} ({domain.rack}), {chips} ({kinds}), {len(domain.usable)} usable"
    drawn = []
    for place, placed in enumerate(domain.chips):
        row, column = divmod(place, _PER_ROW)
        x, bottom = 6 + column * _STEP_X, _TOP + row * _STEP_Y + _TALL
        use = uses.get(placed.id)
        capacity = placed.chip.hbm_bytes
        state = "failed" if not placed.healthy else "idle" if placed.available else "taken"
        about = f"{placed.id}: {placed.chip.name}, {_said(use, capacity) if use else state}"
        cells = [
            f'<rect class="frame" x="{x}" y="{bottom - _TALL}" width="{_WIDE}" height="{_TALL}"/>'
        ]
        top = float(bottom)
        for index, kind in enumerate(MEMORY_KINDS):
            share = min(1.0, use.memory[kind] / capacity) if use else 0.0
            if share > 0:
                top -= share * _TALL
                cells.append(
                    f'<rect class="bar c{index}" x="{x}" y="{top:.1f}" width="{_WIDE}" '
                    f'height="{share * _TALL:.1f}"/>'
                )
        letter = use.role[0].upper() + str(use.replica) if use else "x" if state == "failed" else ""
        cells.append(
            f'<text text-anchor="middle" class="small" x="{x + _WIDE / 2}" y="{bottom + 11}">'
            f"{letter}</text>"
        )
        drawn.append(f"<g>{''.join(cells)}<title>{markup(about)}</title></g>")
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{markup(name)}">'
        f'<svg class="chart" viewBox="0 0 {width} {_TOP + rows * _STEP_Y + 4}" '
        f'style="min-width:{width}px;width:100%" role="img" aria-label="{markup(name)}">'
        f'<rect class="back" width="{width}" height="{_TOP + rows * _STEP_Y + 4}"/>'
        f'<text class="name" x="6" y="14">{markup(name)}</text>{_keys()}{"".join(drawn)}</svg></div>'
    )


def _keys() -> str:
    """What each colour is, under a domain's name."""
    drawn, x = [], 6.0
    for index, kind in enumerate(MEMORY_KINDS):
        drawn.append(
            f'<rect class="bar c{index}" x="{x:.0f}" y="22" width="12" height="10"/>'
            f'<text class="name" x="{x + 16:.0f}" y="31">{markup(kind)}</text>'
        )
        x += 24 + 6.2 * len(kind)
    return "".join(drawn)


def _said(use: ChipUse, capacity: float) -> str:
    used = sum(use.memory.values())
    kinds = ", ".join(f"{kind} {size / 1e9:.1f}" for kind, size in use.memory.items() if size)
    return (
        f"{use.role} replica {use.replica}, stage {use.stage}, rank {use.rank}, shard {use.shard}; "
        f"{used / 1e9:.1f} of {capacity / 1e9:.1f} GB used ({kinds})"
        + ("" if use.expert_load is None else f"; routed tokens {use.expert_load:.3f} of the mean")
    )
