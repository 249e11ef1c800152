"""Layouts made of replicas that run and of shapes that a search has placed."""

from __future__ import annotations

from costmodel.change.joined import joined
from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from solver.clock import Clock
from solver.move.choose import Choice, Chosen, New
from solver.move.onto_chips import nearest_chips
from solver.move.running import options
from solver.place.assemble import layout_of
from solver.place.build import stage_chips
from solver.place.mend import mended
from solver.rounds import Search
from solver.verify import usd_per_m_output


def made_of(
    running: Layout,
    engine: Search,
    most_bytes: float | None,
    within: float,
    best: float,
    clock: Clock,
    seed: int,
) -> list[tuple[str, Layout]]:
    """Layouts made of replicas that run and of shapes that the search has placed; those that the judge accepts."""
    instance = engine.instance
    stay = options(instance, running)
    new = _new(engine) if engine.regular else []
    prices = {placed.id: placed.chip.usd_per_hour for placed in instance.cluster.chips}
    price = best / usd_per_m_output(instance)
    found = []
    for fresh in (new, []) if new else ([],):
        if not stay and not fresh:
            continue
        choice = Choice(stay, fresh, engine.classes, engine.question, prices)
        if most_bytes is not None:
            chosen = choice.least_money(min(most_bytes, 1e18), price, clock, seed)
        elif fresh:
            chosen = choice.least_moved(price * (1 + within), clock, seed)
        else:  # the cheapest of running replicas alone, to be shown beside the others
            chosen = choice.least_money(0.0, price, clock, seed)
        made = None if chosen is None else _layout(engine, running, chosen)
        if made is None:
            continue
        judged = evaluate(instance, made)
        left = mended(instance, made, judged) if judged.violations else (made, judged)
        if left is not None and left[1].usd_per_m_output_tokens is not None:
            found.append(
                ("kept and new replicas" if fresh else "of running replicas alone", left[0])
            )
    return found


def _new(engine: Search) -> list[New]:
    """Items that the search has placed, with the bytes of their weights."""
    found = []
    for item in engine.placed.achieved():
        if not item.leaves:
            continue
        placed = engine.placed.of(item)
        alone = layout_of(engine.instance, [(item.shape, placed, placed.chips)])
        priced = evaluate(engine.instance, alone).priced.replicas
        size = sum(
            float(sum(stage.memory["weights"]) + sum(stage.memory["experts"]))
            for price in priced
            for stage in price.stages
        )
        found.append(New(item, size))
    return found


def _layout(engine: Search, running: Layout, chosen: Chosen) -> Layout:
    """Replicas that stay where they are, and new ones on the free chips that hold most of their weights."""
    instance = engine.instance
    stays = running.model_copy(update={"replicas": tuple(one.replica for one in chosen.stay)})
    taken = {chip for one in chosen.stay for chip in one.replica.chips}
    free = {
        pool: [chip for chip in pool.chips if chip not in taken]
        for pool_class in engine.classes
        for pool in pool_class.pools
    }
    stood = []
    for item, pools in sorted(chosen.start, key=lambda stand: -stand[0].chips):
        own = []
        for pool, (_, count) in zip(pools, item.parts, strict=True):
            own.append(free[pool][:count])
            free[pool] = free[pool][count:]
        placed = engine.placed.of(item)
        stood.append((item.shape, placed, stage_chips(placed.shape, own)))
    whole = joined([stays, layout_of(instance, stood)])
    return nearest_chips(instance, running, whole, kept=range(len(chosen.stay)))
