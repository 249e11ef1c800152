r"""One replica, whole, in CP-SAT: experts on slots, layers on stages, KV on ranks, under every rule.

For layers so small that the expert of every slot can be a variable. It serves twice: small shapes
are solved to proven optimality with it, and the tests fix any layout in it to see that it is
feasible exactly when the evaluator finds no violation (usage is rounded up by at most one unit per
term, so CP-SAT is the stricter side of that band).

Variables: ``x[l, e, g]`` expert ``e`` of layer ``l`` on chip ``g`` of its stage, ``n[l, e, r]`` it has ``r``
replicas, ``s[l, p]`` layer on stage, ``seq[k]`` sequences of rank ``k``. Rules: every expert at least one
slot, each chip exactly its slots (``x`` is boolean, so none twice); layers in order, each on one
stage, no stage empty; sequences add up to the batch; bytes of each chip within HBM; TPOT and TTFT.
A layer takes as long as its busiest chip.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ortools.sat.python import cp_model

from costmodel.layout.layout import Replica
from costmodel.passes.communication import GroupRates
from costmodel.passes.tokens import Tokens
from costmodel.question.instance import Instance
from costmodel.question.profile import Efficiency
from costmodel.question.workload import Slo
from costmodel.replica.replica import replica_schedule
from solver.clock import Clock
from solver.place.small_replica.prices import ReplicaPrices
from solver.place.small_replica.times import LONGEST, PassTimes
from solver.scaling import MEMORY_UNIT_BYTES, TIME_UNIT_S, down, up
from topology import Chip

#: denominator of rationals in the model
_FRACTION = 2**10


class ReplicaModel:
    """CP-SAT model of one replica whose shape, batch and busiest rank are given by ``draft``.

    ``rates`` are those of its stages (all alike), ``slots`` the expert slots of each chip of a
    stage, ``transfer_s`` the hand-over to the decode pool. ``layers`` restricts the model to some layers
    of a replica of one stage, without HBM and targets: layers are then independent.
    """

    def __init__(
        self,
        instance: Instance,
        draft: Replica,
        chip: Chip,
        efficiency: Efficiency,
        rates: GroupRates,
        slots: Sequence[int],
        transfer_s: float = 0.0,
        layers: Sequence[int] | None = None,
    ):
        self.instance = instance
        self.layers = list(range(instance.operations.num_layers) if layers is None else layers)
        self.whole = layers is None
        self.draft = draft
        self.prices = ReplicaPrices(instance, draft, chip, efficiency, rates)
        self.slots = tuple(slots)
        self.transfer_s = transfer_s
        self.model = cp_model.CpModel()
        self.plan = replica_schedule(instance, draft)
        every = (self.plan.decode, self.plan.prefill, self.plan.together)
        self.passes = [tokens for tokens in every if tokens is not None]
        self.pp = draft.shape.pp
        self.kind_of = [instance.operations.kinds[i] for i in instance.operations.kind_of_layer()]
        self.x: dict[tuple[int, int, int], cp_model.IntVar] = {}
        self.u: dict[tuple[int, int, int, int], cp_model.IntVar] = {}
        self.stage: dict[tuple[int, int], cp_model.IntVar] = {}
        self.replicas: dict[tuple[int, int], list[cp_model.IntVar]] = {}
        self._experts()
        self._stages()
        self.times = PassTimes(self.model, self.prices, self.u)
        #: per pass, the time of every stage in units
        self.stage_time = [self._stage_times(tokens) for tokens in self.passes]
        self.slo = instance.slo if self.whole else Slo()
        if self.whole:
            self._sequences()
            self._memory()
        self._targets()

    def _experts(self) -> None:
        """Every expert has a slot, chips hold exactly their slots, replicas are counted."""
        model, chips = self.model, self.draft.shape.chips_per_stage
        for layer in set(self.instance.operations.moe_layers) & set(self.layers):
            experts = range(self.instance.expert_loads.shape[1])
            for e in experts:
                mine = [model.new_bool_var(f"x[{layer},{e},{g}]") for g in range(chips)]
                for g in range(chips):
                    self.x[layer, e, g] = mine[g]
                has = [model.new_bool_var(f"n[{layer},{e},{r + 1}]") for r in range(chips)]
                model.add_exactly_one(has)
                model.add(sum(mine) == sum((r + 1) * v for r, v in enumerate(has)))
                self.replicas[layer, e] = has
            for g in range(chips):
                model.add(sum(self.x[layer, e, g] for e in experts) == self.slots[g])
                for e in experts:
                    for r, has_r in enumerate(self.replicas[layer, e], start=1):
                        here = model.new_bool_var(f"u[{layer},{e},{g},{r}]")
                        model.add_bool_and(self.x[layer, e, g], has_r).only_enforce_if(here)
                        model.add_bool_or(~self.x[layer, e, g], ~has_r, here)
                        self.u[layer, e, g, r] = here

    def _stages(self) -> None:
        model, layers = self.model, self.layers
        for layer in layers:
            for p in range(self.pp):
                self.stage[layer, p] = model.new_bool_var(f"s[{layer},{p}]")
            model.add_exactly_one(self.stage[layer, p] for p in range(self.pp))
        for p in range(self.pp):
            model.add_bool_or(self.stage[layer, p] for layer in layers)
        number = [sum(p * self.stage[layer, p] for p in range(self.pp)) for layer in layers]
        for earlier, later in pairwise(number):
            model.add(earlier <= later)

    def _stage_times(self, tokens: Tokens) -> list[Any]:
        """Time of each stage in units for one pass."""
        model = self.model
        tokens = self.times.of_pass(tokens)
        head = self.times.head(tokens)
        layer_time = {
            layer: self.times.layer(self.kind_of[layer], layer, tokens) for layer in self.layers
        }
        found: list[Any] = []
        for p in range(self.pp):
            taken: list[list[Any]] = [[own] if p == self.pp - 1 else [] for own in head]
            for layer, times in layer_time.items():
                for number, time in enumerate(times):
                    part = model.new_int_var(0, LONGEST, f"time[{layer},{p},{number}]")
                    model.add(part >= time).only_enforce_if(self.stage[layer, p])
                    taken[number].append(part)
            step = up(self.prices.efficiency.step_overhead_s / self.pp, TIME_UNIT_S)
            found.append(self.times.together([sum(own) for own in taken]) + step)
        return found

    def _sequences(self) -> None:
        shape = self.draft.shape
        limits = self.instance.limits
        most = min(max(self.draft.rank_sequences(), default=0), limits.max_sequences_per_rank)
        if self.draft.role == "prefill":
            most = min(most, self.pp * limits.prompts_in_pass(self.instance.workload))
        if self.pp > limits.max_pipeline_stages:
            self.model.add_bool_or([])
        self.sequences = [
            self.model.new_int_var(0, most, f"seq[{k}]") for k in range(shape.attention_dp)
        ]
        self.model.add(sum(self.sequences) == shape.batch)

    def _memory(self) -> None:
        instance, shape = self.instance, self.draft.shape
        width, context = instance.width_bytes(shape.tp), instance.kept_context(self.draft.role)
        counts_of = [width.single_layers[kind] for kind in instance.operations.kind_of_layer()]
        rows, sampled = float(self.plan.rows()), float(self.plan.sampled())
        for p in range(self.pp):
            first, last = p == 0, p == self.pp - 1
            edge = width.edge(shape.chips_per_stage, first=first, last=last)
            edge += width.active(rows, sampled if last else 0.0)
            draft_kv = up(width.drafted(context), MEMORY_UNIT_BYTES) if last else 0
            room = down(
                instance.usable_hbm_bytes(self.prices.chip)
                - self.prices.efficiency.runtime_bytes
                - edge,
                MEMORY_UNIT_BYTES,
            )
            for rank in range(shape.attention_dp):
                slots = self.slots[rank * shape.tp : (rank + 1) * shape.tp] or (0,)
                used: list[Any] = [draft_kv * self.sequences[rank]] if draft_kv else []
                for layer in self.layers:
                    counts = counts_of[layer]
                    held = width.layers(counts) + width.slot(counts) * max(slots)
                    kv = width.cached(counts, context, last=False)
                    part = self.model.new_int_var(0, LONGEST, f"bytes[{layer},{p},{rank}]")
                    self.model.add(
                        part
                        >= up(held, MEMORY_UNIT_BYTES)
                        + up(kv, MEMORY_UNIT_BYTES) * self.sequences[rank]
                    ).only_enforce_if(self.stage[layer, p])
                    used.append(part)
                self.model.add(sum(used) <= room)

    def _targets(self) -> None:
        """TPOT and TTFT as :mod:`costmodel.replica.serving` defines them; the objective of the role."""
        model, slo, stages = self.model, self.slo, self.pp
        totals, longest = [], []
        for number, (tokens, times) in enumerate(zip(self.passes, self.stage_time, strict=True)):
            slowest = model.new_int_var(0, LONGEST, f"longest_stage[{number}]")
            for time in times:
                model.add(slowest >= time)
            longest.append(slowest)
            totals.append(sum(times) + up(self.prices.hop_s(tokens), TIME_UNIT_S))
        ttft = None if slo.ttft is None else down(slo.ttft - self.transfer_s, TIME_UNIT_S)
        passes = self.plan.passes
        if self.draft.role == "prefill":
            if ttft is not None:
                model.add((2 * int(passes) - 1) * longest[0] + totals[0] <= ttft)
            self.objective: Any = longest[0]
            return
        period = model.new_int_var(0, LONGEST, "period")
        model.add(period >= totals[0])
        model.add(period >= stages * longest[0])
        tpot: Any = period
        if self.draft.role == "mixed":
            # rationals with a fixed denominator, rounded up: passes and events need not be whole
            stolen = up(float(stages * self.plan.events * passes), 1.0 / _FRACTION)
            share = model.new_int_var(0, LONGEST, "stolen_by_prefill")
            model.add(_FRACTION * share >= stolen * longest[1])
            tpot = period + share
            if ttft is not None:
                repeats = up(float(2 * passes - 1), 1.0 / _FRACTION)
                # a first token meets the prompts of all ranks, where that is a pass of its own
                model.add(
                    repeats * longest[-1] + _FRACTION * (totals[-1] + period) <= _FRACTION * ttft
                )
        if slo.tpot is not None:
            # the target is per token, the period per pass
            between = tpot if self.plan.alone is None else period
            model.add(between <= down(slo.tpot * self.plan.emitted, TIME_UNIT_S))
        self.objective = tpot

    def _order_alike(self) -> None:
        """Experts of one layer with equal loads stand in one order of the sets of chips that hold them.

        Exchanging two such experts changes nothing: of all layouts that differ so, the one in order is as good. A
        search goes through each of them otherwise, n! of n equal experts.
        """
        chips = range(self.draft.shape.chips_per_stage)
        for layer in sorted({layer for layer, _, _ in self.x}):
            loads = self.instance.expert_loads[self.instance.operations.moe_layers.index(layer)]
            alike: dict[float, list[int]] = {}
            for e, load in enumerate(loads.tolist()):
                alike.setdefault(load, []).append(e)
            for same in alike.values():
                held = [sum(2**g * self.x[layer, e, g] for g in chips) for e in same]
                for one, other in pairwise(held):
                    self.model.add(one >= other)

    def best(
        self, clock: Clock, *, seed: int, limit_s: float
    ) -> tuple[list[tuple[int, int]], dict[int, tuple[int, ...]], bool] | None:
        """Stages, expert maps and whether they are proven best; ``None`` if no decision fits."""
        self._order_alike()
        self.model.minimize(self.objective)
        solver, status = clock.run(self.model, seed=seed, limit_s=limit_s)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        stages = []
        for p in range(self.pp):
            own = [i for i in self.layers if solver.value(self.stage[i, p])]
            stages.append((own[0], own[-1]))
        maps: dict[int, tuple[int, ...]] = {}
        for layer in sorted({layer for layer, _, _ in self.x}):
            maps[layer] = tuple(
                e
                for g in range(self.draft.shape.chips_per_stage)
                for e in range(len(self.instance.expert_loads[0]))
                if solver.value(self.x[layer, e, g])
            )
        return stages, maps, status == cp_model.OPTIMAL
