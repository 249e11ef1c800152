"""Why nothing fits: the limit that is broken by least, by how much, and what would fit."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from costmodel.passes.communication import AGES_S
from costmodel.question.instance import Instance
from costmodel.question.measured_shapes import measured_workers
from costmodel.replica import memory
from costmodel.replica.held import cache_bytes, stage_kinds
from solver.bounds.priced import Bounds
from solver.fleet.asked import Question
from solver.shapes.pools import PoolClass
from solver.shapes.shapes import ROLES, ShapeTable, enumerate_shapes
from topology import Chip
from topology.errors import on_command_line, option
from topology.quantity import figure

#: the command that says more
_EXPLAIN = "rackfit explain"


def why_nothing_fits(
    instance: Instance,
    classes: tuple[PoolClass, ...],
    shapes: ShapeTable,
    bounds: Bounds,
    question: Question,
    most_rate: float,
) -> str:
    """One message: which limit stops every layout, by how much, and what would fit.

    ``most_rate``: a bound on the requests per second of any fleet.
    """
    model, cluster = instance.model.name, instance.cluster.name
    chips = sum(len(c.pools) * c.size for c in classes)
    head = f"no layout of {model} on {cluster} ({chips} usable chips) fits."
    if not len(shapes):
        return f"{head} {_no_shape(instance, classes)}"
    # what lies over domains that no link joins serves nobody, however much HBM it has
    joined = np.maximum(bounds.least_tpot_s, bounds.least_ttft_s) < AGES_S
    fits, network = bounds.fits & joined, ""
    if not joined.all():
        network = ". Network: domains that no link joins hold no replica together"
    if not np.any(fits):
        if not np.any(joined):
            return f"{head} {network[2:]}"
        return f"{head} {_hbm(instance, classes, shapes, bounds, joined)}{network}"
    if question.rate is not None and most_rate > 0:
        return f"{head} {rate_words(question.rate, most_rate)}"
    slo, lines = instance.slo, []
    for role, name, least, target in (
        (1, "TPOT", bounds.least_tpot_s, slo.tpot),
        (0, "TTFT", bounds.least_ttft_s, slo.ttft),
    ):
        own = fits & (shapes.role == role)
        if target is None or not np.any(own):
            continue
        best = int(np.flatnonzero(own)[np.argmin(least[own])])
        if least[best] > target:
            width = shapes.row(best)
            lines.append(
                f"{name}: the target is {figure(target * 1e3, 6)} ms; {figure(least[best] * 1e3, 3, 'up')} ms is the least "
                f"reachable (tp {width['tp']} x attention dp {width['attention_dp']}, a single "
                f"sequence), {figure(least[best] / target, 3, 'up')} times the target"
            )
    if not lines:
        lines.append(_pools(shapes, bounds))
    return f"{head} " + "; ".join(lines) + network


def _no_shape(instance: Instance, classes: tuple[PoolClass, ...]) -> str:
    """No replica may be built at all, whatever the chips hold."""
    engine = instance.engine
    scenario = instance.scenario
    if scenario.within_measured:
        free = scenario.model_copy(update={"within_measured": False})
        if len(enumerate_shapes(replace(instance, scenario=free), classes)):
            return _not_measured(instance, classes)
    if engine is None:
        return "Chips: no domain has chips that a replica could stand on"
    chips = {c.chip.name: c.chip for c in classes}
    why = [engine.refusal(instance.model, chip, "mixed", 1, 1, 1) for chip in chips.values()]
    said = f": {why[0]}" if why and why[0] else ""
    return f"Engine: {engine.title} runs no replica of it on {', '.join(sorted(chips))}{said}"


def _not_measured(instance: Instance, classes: tuple[PoolClass, ...]) -> str:
    """Replicas there may be, but nobody measured the like of one."""
    names, engine = sorted({c.chip.name for c in classes}), instance.engine
    measured = [one for one in measured_workers() if engine is None or engine.engine == one.engine]
    known = sorted({one.chip for one in measured})
    under = "" if engine is None else f" under {engine.title}"
    lost = [name for name in names if name not in known]
    text = f"Measured: no worker that the question allows was measured on {', '.join(names)}{under}"
    if lost:
        text = f"Measured: no run{under} on {', '.join(lost)} is among the measurements; there are some on {', '.join(known)}"
    return f"{text}. What would fit: the question without {option('within-measured')}"


def rate_words(asked: float, most_rate: float) -> str:
    """What the chips could serve at most; how many would do is for ``rackfit explain`` to search."""
    text = f"Rate: {figure(asked, 6)} requests/s are asked for; "
    if asked > most_rate:
        text += f"no fleet on these chips serves more than {figure(most_rate, 4, 'up')}"
    else:
        text += (
            f"no set of whole replicas on these chips serves them, though parts of replicas could serve "
            f"{figure(most_rate, 4)}"
        )
    return text + on_command_line(f". {_EXPLAIN} says which rate or how many chips would fit")


def of_one_of_several(text: str) -> str:
    """The message for one of several models: ``rackfit explain`` takes the question of one model, not theirs."""
    return text.replace(_EXPLAIN, "rackfit explain, asked about this model alone,")


def _hbm(
    instance: Instance,
    classes: tuple[PoolClass, ...],
    shapes: ShapeTable,
    bounds: Bounds,
    joined: NDArray[np.bool_],
) -> str:
    """HBM: the shape that misses by least, of those that links join, and how many such chips or bytes would hold it."""
    best = int(np.argmin(np.where(joined, bounds.short_bytes, np.inf)))
    row = shapes.row(best)
    chip = classes[row["pool_class"]].chip
    count = int(shapes.chips[best])
    weights = sum(
        matmul.weight_bytes * len(kind.layers)
        for kind in instance.operations.kinds
        for matmul in kind.matmuls
    )
    weights += sum(
        kind.moe.expert_bytes * kind.moe.num_experts * len(kind.layers)
        for kind in instance.operations.kinds
        if kind.moe is not None
    )
    weights += instance.operations.embedding_bytes + instance.operations.head_bytes
    weights += float(memory.draft_weight_bytes(instance.operations, 1.0, 1.0))
    short = float(bounds.short_bytes[best])
    have = sum(len(c.pools) * c.size * instance.usable_hbm_bytes(c.chip) for c in classes)
    usable, engine = instance.usable_hbm_bytes(chip), instance.engine
    whole = (usable + short) * chip.hbm_bytes / usable
    left = "" if engine is None else f" that {engine.label} leaves"
    reserved = instance.profile.for_chip(chip.name).runtime_bytes
    # a chip whose HBM the engine's runtime fills holds no weights, however many there are
    more = ""
    if usable > reserved:
        need = ceil(weights / (usable - reserved))
        more = f"at least {need:,} such chips for the weights alone, or "
    text = (
        f"HBM: the weights are {weights / 1e9:.0f} GB, the cluster has {have / 1e9:.0f} GB; the closest "
        f"shape ({ROLES[row['role']]}, {count} chips) is {figure(short / 1e9, 3, 'up')} GB per chip over the "
        f"{figure(usable / 1e9, 3)} GB of chip {chip.name}{left}. What would fit: {more}"
        f"chips with {figure(whole / 1e9, 3, 'up')} GB each"
    )
    text += _other_places(instance, row, short, chip)
    narrower = {"bf16": "fp8", "fp16": "fp8", "fp8": "fp4"}.get(_widest_dtype(instance))
    if narrower:
        text += f", or weights in {narrower}"
    return text


def _other_places(instance: Instance, row: dict[str, int], short: float, chip: Chip) -> str:
    """Whether HBM would do with the caches of one sequence in the chip's host memory."""
    tier = chip.tier("host")
    if tier is None or "host" in instance.scenario.kv_tiers:
        return ""
    context = instance.kept_context(ROLES[row["role"]])
    layers = stage_kinds(instance, 0, instance.operations.num_layers - 1)
    caches = cache_bytes(instance, layers, row["tp"], context) / row["pp"]
    if short > caches or caches > tier.bytes:
        return ""
    return (
        f", or the caches ({caches / 1e9:.1f} GB per chip) in host memory, which has "
        f"{tier.bytes / 1e9:.0f} GB per chip (kv_tiers: [host])"
    )


def _widest_dtype(instance: Instance) -> str:
    """Storage dtype of most of the weights."""
    bytes_of: dict[str, float] = {}
    for kind in instance.operations.kinds:
        for matmul in kind.matmuls:
            bytes_of[matmul.dtype] = bytes_of.get(matmul.dtype, 0.0) + (
                matmul.weight_bytes * len(kind.layers)
            )
        if kind.moe is not None:
            dtype = kind.moe.expert_dtype
            bytes_of[dtype] = bytes_of.get(dtype, 0.0) + (
                kind.moe.expert_bytes * kind.moe.num_experts * len(kind.layers)
            )
    return max(bytes_of, key=lambda dtype: bytes_of[dtype])


def _pools(shapes: ShapeTable, bounds: Bounds) -> str:
    """Each role fits alone, but not a pair that serves whole requests."""
    least = {
        ROLES[role]: int(shapes.chips[(shapes.role == role) & (bounds.requests_per_s > 0)].min())
        for role in range(len(ROLES))
        if np.any((shapes.role == role) & (bounds.requests_per_s > 0))
    }
    if not least:
        return "Targets: TPOT, TTFT and HBM can each be met, but not by one shape together"
    found = ", ".join(f"{role} needs {count} chips" for role, count in least.items())
    return f"Chips: {found}, and a request needs both prefill and decode"
