"""Layouts put together from the layout format alone, and climbed with the evaluator: what bounds are held against.

Shares nothing with the search: not its shapes, batches, slots, splits, placements or prices. Any chips of one type in one
domain (or as many in each of several), any tensor width, stages and cuts, any number of sequences on each attention rank,
experts by their load or in any order, with copies or without, or each cut over a stage; any mix of these replicas. What no word of the certificate
covers is not drawn: mixed replicas in stages, prefill passes of parts of several prompts, copies of cold experts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.layout import ExpertMap, Layout, Replica, Role, Shape, Stage
from costmodel.models.spec import Attention
from costmodel.question.instance import Instance
from tests.solver.drawn_experts import drawn_experts
from tests.solver.sequences import with_sequences

ROLES: tuple[Role, ...] = ("prefill", "decode", "mixed")
#: rules that a replica on its own need not keep
_OF_FLEETS = {"both_pools", "rate_served", "uplink_capacity"}


@dataclass(frozen=True)
class Drawn:
    """A replica that keeps every rule of its own, its expert map, and requests per second and dollar."""

    replica: Replica
    maps: ExpertMap
    rate: float
    per_usd: float


class ByHand:
    """Random layouts of one question."""

    def __init__(self, instance: Instance, rng: np.random.Generator):
        self.instance, self.rng = instance, rng
        self.pools: dict[tuple[int, str], list[str]] = {}
        for placed in instance.cluster.usable:
            self.pools.setdefault((placed.domain, placed.chip.name), []).append(placed.id)
        self.num_layers = len(instance.model.layers)
        self.heads = {
            part.query_heads
            for layer in instance.model.layers
            for part in layer.sublayers
            if isinstance(part, Attention)
        }
        self.moe = instance.operations.moe
        self.judged = 0

    def layouts(self, draws: int) -> Iterator[tuple[Layout, Evaluation]]:
        """Layouts that keep every rule: of the best replicas of ``draws`` drawn for each role."""
        best: dict[Role, list[Drawn]] = {}
        for role in ROLES:
            found = [one for _ in range(draws) if (one := self.replica(role)) is not None]
            best[role] = sorted(found, key=lambda one: -one.per_usd)[:2]
        for mixed in best["mixed"]:
            yield from self._judge(self._fleets([mixed], [1]))
        for prefill in best["prefill"]:
            for decode in best["decode"]:
                counts = [(1, 1), (1, 2), (2, 1), (1, 3), (3, 1)]
                ratio = decode.rate / prefill.rate
                many = (max(1, round(ratio)), max(1, round(1 / ratio)) if ratio > 0 else 1)
                for count in {*counts, many} if max(many) < 65 else counts:
                    yield from self._judge(self._fleets([prefill, decode], list(count)))

    def _judge(self, layouts: Iterator[Layout]) -> Iterator[tuple[Layout, Evaluation]]:
        for layout in layouts:
            self.judged += 1
            found = evaluate(self.instance, layout)
            if found.feasible and found.usd_per_m_output_tokens is not None:
                yield layout, found

    def replica(self, role: Role) -> Drawn | None:
        """A random replica of a role at the largest batch that climbing finds, or ``None``."""
        chips = self._chips()
        stages = self._stages(role, chips)
        if stages is None:
            return None
        pp, width, homes = stages
        tp = self._width(homes, width)
        ranks = width // tp
        if self.moe is None and ranks > 1:
            return None
        slots, maps = drawn_experts(self.instance, self.rng, width)
        cut = self._cut(pp)
        built = tuple(
            Stage(
                layers=layers, chips=tuple(homes[s * width : (s + 1) * width]),
                slots_per_chip=slots, expert_map="m" if maps else None,
            )
            for s, layers in enumerate(cut)
        )  # fmt: skip
        plain = Replica(
            role=role,
            shape=Shape(tp=tp, ep=width if maps else 1, pp=pp, attention_dp=ranks, batch=1),
            stages=built,
        )
        return self._climbed(plain, maps)

    def _chips(self) -> list[list[str]]:
        """Chips of one type: some of one domain, or equally many of each of several."""
        rng, pools = self.rng, list(self.pools.values())
        home = pools[rng.integers(len(pools))]
        kind = self.instance.cluster.chip(home[0]).chip.name
        count = int(rng.integers(1, len(home) + 1))
        chosen = [home]
        alike = [p for p in pools if p is not home and len(p) == len(home)]
        alike = [p for p in alike if self.instance.cluster.chip(p[0]).chip.name == kind]
        if alike and rng.random() < 0.25:
            more = rng.permutation(len(alike))[: rng.integers(1, min(3, len(alike)) + 1)]
            chosen += [alike[i] for i in more]
        return [rng.permutation(pool)[:count].tolist() for pool in chosen]

    def _stages(self, role: Role, chips: list[list[str]]) -> tuple[int, int, list[str]] | None:
        """Stages, chips of each, and all chips stage by stage."""
        rng, limits = self.rng, self.instance.limits
        flat = [chip for pool in chips for chip in pool]
        most = min(limits.max_pipeline_stages, self.num_layers)
        ways = [
            pp for pp in range(1, most + 1) if (len(flat) % pp == 0 and role != "mixed") or pp == 1
        ]
        if len(chips) > 1:  # one stage over all domains, or one in each
            ways = [pp for pp in ways if pp in (1, len(chips))]
            if self.moe is None:
                ways = [pp for pp in ways if pp > 1]
        if not ways:
            return None
        pp = 1 if 1 in ways and rng.random() < 0.6 else int(rng.choice(ways))
        return pp, len(flat) // pp, flat

    def _width(self, chips: list[str], width: int) -> int:
        """A tensor width that divides heads and the stage, its shards in one domain."""
        home = [self.instance.cluster.chip(chip).domain for chip in chips]
        good = [
            tp
            for tp in range(1, width + 1)
            if width % tp == 0
            and not any(count % tp for count in self.heads)
            and all(len(set(home[i : i + tp])) == 1 for i in range(0, len(home), tp))
        ]
        return int(self.rng.choice(good))

    def _cut(self, pp: int) -> list[tuple[int, int]]:
        """Layers of each stage: as even as they go, or anyhow."""
        ends = [self.num_layers * s // pp for s in range(pp + 1)]
        if self.rng.random() < 0.3:
            inner = self.rng.choice(range(1, self.num_layers), pp - 1, replace=False)
            ends = [0, *sorted(inner.tolist()), self.num_layers]
        return [(a, b - 1) for a, b in pairwise(ends)]

    def _climbed(self, plain: Replica, maps: ExpertMap) -> Drawn | None:
        """The replica with more and more sequences on its ranks, as long as every rule of its own holds."""
        if self.moe is not None and not maps and not plain.cuts_experts:
            return None
        rng, ranks, pp = self.rng, plain.shape.attention_dp, plain.shape.pp
        limits = self.instance.limits
        most = limits.max_sequences_per_rank
        if plain.role == "prefill":
            in_pass = limits.prefill_chunk_tokens // self.instance.workload.new_tokens
            most = min(most, pp * max(1, in_pass))
        counts = np.zeros(ranks, dtype=int)
        counts[rng.integers(ranks)] = 1
        best = self._at(plain, maps, counts)
        if best is None:
            return None
        # all ranks alike as far as it goes, then some of them, one after another
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            found = self._at(plain, maps, np.full(ranks, middle))
            low, high = (middle, high) if found is not None else (low, middle - 1)
            best = max(best, found or best, key=lambda one: one.per_usd)
        counts = np.full(ranks, low) if low else counts
        for rank in rng.permutation(ranks).tolist():
            for step in (pp, 1) if pp > 1 else (1,):
                tried = counts.copy()
                tried[rank] = min(most, tried[rank] + step)
                found = self._at(plain, maps, tried)
                if found is not None:
                    best = max(best, found, key=lambda one: one.per_usd)
                    counts = tried
                    break
        fewer = np.minimum(counts, rng.integers(0, max(counts.max(), 1) + 1, ranks))
        if fewer.any():
            best = max(best, self._at(plain, maps, fewer) or best, key=lambda one: one.per_usd)
        return best

    def _at(self, plain: Replica, maps: ExpertMap, counts: np.ndarray) -> Drawn | None:
        replica = with_sequences(plain, counts.tolist())
        self.judged += 1
        found = evaluate(
            self.instance, Layout(replicas=(replica,), expert_maps={"m": maps} if maps else {})
        )
        if {violation.rule for violation in found.violations} - _OF_FLEETS:
            return None
        (price,) = found.priced.replicas
        rate = float(price.service.requests_per_s)
        usd = sum(self.instance.cluster.chip(chip).chip.usd_per_hour for chip in replica.chips)
        return Drawn(replica, maps, rate, rate / usd)

    def _fleets(self, kinds: list[Drawn], counts: list[int]) -> Iterator[Layout]:
        """So many of each kind on chips of their own, once, and as often as they fit."""
        free = {key: list(chips) for key, chips in self.pools.items()}
        replicas: list[Replica] = []
        maps: dict[str, ExpertMap] = {}
        once = True
        while True:
            placed: list[Replica] = []
            for number, (one, count) in enumerate(zip(kinds, counts, strict=True)):
                if one.maps:
                    maps[f"m{number}"] = one.maps
                for _ in range(count):
                    moved = self._moved(one.replica, free, f"m{number}" if one.maps else None)
                    if moved is None:
                        if replicas:
                            yield Layout(replicas=tuple(replicas), expert_maps=maps)
                        return
                    placed.append(moved)
            replicas += placed
            if once:
                yield Layout(replicas=tuple(replicas), expert_maps=dict(maps))
                once = False

    def _moved(
        self, replica: Replica, free: dict[tuple[int, str], list[str]], name: str | None
    ) -> Replica | None:
        """The replica on free chips of like pools, which it takes; ``None`` if there are too few."""
        cluster = self.instance.cluster
        by_home: dict[int, list[str]] = {}
        for chip in replica.chips:
            by_home.setdefault(cluster.chip(chip).domain, []).append(chip)
        kind = cluster.chip(replica.chips[0]).chip.name
        names: dict[str, str] = {}
        taken: list[tuple[int, str]] = []
        for home, chips in by_home.items():
            ways = [
                key
                for key, left in free.items()
                if key[1] == kind and key not in taken and len(left) >= len(chips)
                and len(self.pools[key]) == len(self.pools[home, kind])
            ]  # fmt: skip
            if not ways:
                return None
            key = (home, kind) if (home, kind) in ways else ways[0]
            taken.append(key)
            names |= dict(zip(chips, free[key], strict=False))
            free[key] = free[key][len(chips) :]
        stages = tuple(
            stage.model_copy(
                update={"chips": tuple(names[c] for c in stage.chips), "expert_map": name}
            )
            for stage in replica.stages
        )
        kv = tuple(share.model_copy(update={"chip": names[share.chip]}) for share in replica.kv)
        return replica.model_copy(update={"stages": stages, "kv": kv})
