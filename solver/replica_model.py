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

from collections.abc import Mapping, Sequence

import numpy as np
from ortools.sat.python import cp_model

from costmodel import memory
from costmodel.communication import GroupRates
from costmodel.instance import Instance
from costmodel.layout import Replica
from costmodel.moe_load import touch_probability
from costmodel.operations import LayerKind
from costmodel.pass_time import ExpertShares, pass_time
from costmodel.profile import Efficiency
from costmodel.replica import rank_tokens
from solver.clock import Clock
from solver.scaling import MEMORY_UNIT_BYTES, TIME_UNIT_S, down, up
from topology import Chip

#: largest layers x experts x chips x replica counts for which every slot is a variable
SMALL = 3000


class ReplicaModel:
    """CP-SAT model of one replica whose shape, batch and busiest rank are given by ``draft``.

    ``rates`` are those of its stages (all alike), ``slots`` the expert slots of each chip of a
    stage, ``transfer_s`` the hand-over to the decode pool.
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
    ):
        self.instance = instance
        self.draft = draft
        self.chip = chip
        self.efficiency = efficiency
        self.rates = rates
        self.slots = tuple(slots)
        self.transfer_s = transfer_s
        self.model = cp_model.CpModel()
        self.tokens, self.passes = rank_tokens(instance, draft)
        self.rows = float(np.asarray(self.tokens.decode) + np.asarray(self.tokens.prefill))
        self.num_layers = instance.operations.num_layers
        self.pp = draft.shape.pp
        self.kind_of = [instance.operations.kinds[i] for i in instance.operations.kind_of_layer()]
        self.x: dict[tuple[int, int, int], cp_model.IntVar] = {}
        self.stage: dict[tuple[int, int], cp_model.IntVar] = {}
        self.layer_time = [self._layer(layer) for layer in range(self.num_layers)]
        self._stages()
        self._sequences()
        self._memory()
        self._targets()

    def _layer(self, layer: int) -> cp_model.LinearExprT:
        """Time of a layer in units: its fixed operations, and its experts' busiest chip."""
        kind, shape = self.kind_of[layer], self.draft.shape
        if kind.moe is None:
            return up(self._fixed_s(kind, None), TIME_UNIT_S)
        moe, model = kind.moe, self.model
        chips = shape.chips_per_stage
        row = kind.moe_rows[kind.layers.index(layer)]
        loads = self.instance.expert_loads[row]
        # one chip's worth of load and of touched experts, and the exchange per unit of skew
        nothing = ExpertShares(np.zeros((1, 1)), np.zeros((1, 1)))
        full = ExpertShares(np.ones((1, 1)), np.zeros((1, 1)))
        touched = ExpertShares(np.zeros((1, 1)), np.ones((1, 1)))
        fixed_s = self._fixed_s(kind, nothing)
        exchange = self._parts(kind, nothing)
        skew_s = sum(exchange[p] for p in ("dispatch", "combine")) - self._latency_s(kind)
        load_s = self._parts(kind, full)["routed_experts"]
        touch_s = self._parts(kind, touched)["routed_experts"]
        experts, counts = range(moe.num_experts), range(1, chips + 1)
        busiest = model.new_int_var(0, 2**50, f"experts_time[{layer}]")
        skewed = model.new_int_var(up(skew_s, TIME_UNIT_S), 2**50, f"exchange_time[{layer}]")
        replicas = {}
        for e in experts:
            for g in range(chips):
                self.x[layer, e, g] = model.new_bool_var(f"x[{layer},{e},{g}]")
            mine = [self.x[layer, e, g] for g in range(chips)]
            replicas[e] = [model.new_bool_var(f"n[{layer},{e},{r}]") for r in counts]
            model.add_exactly_one(replicas[e])
            model.add(sum(mine) == sum(r * v for r, v in zip(counts, replicas[e], strict=True)))
        for g in range(chips):
            model.add(sum(self.x[layer, e, g] for e in experts) == self.slots[g])
            loaded, reached, exchanged = [], [], []
            for e in experts:
                for r, has in zip(counts, replicas[e], strict=True):
                    here = model.new_bool_var(f"u[{layer},{e},{g},{r}]")
                    model.add_bool_and(self.x[layer, e, g], has).only_enforce_if(here)
                    model.add_bool_or(~self.x[layer, e, g], ~has, here)
                    share = float(loads[e]) / r
                    touch = float(
                        touch_probability(
                            loads[e : e + 1], moe.top_k, self.rows * shape.attention_dp, float(r)
                        )[0]
                    )
                    loaded.append(up(load_s * share, TIME_UNIT_S) * here)
                    reached.append(up(touch_s * touch, TIME_UNIT_S) * here)
                    exchanged.append(up(skew_s * share * chips, TIME_UNIT_S) * here)
            model.add(busiest >= sum(loaded))
            model.add(busiest >= sum(reached))
            model.add(skewed >= sum(exchanged))
        return up(fixed_s - skew_s, TIME_UNIT_S) + busiest + skewed

    def _latency_s(self, kind: LayerKind) -> float:
        if self.draft.shape.chips_per_stage == 1:
            return 0.0
        return 2.0 * float(self.rates.dispatch_latency_s)

    def _parts(self, kind: LayerKind, shares: ExpertShares | None) -> dict[str, float]:
        shape = self.draft.shape
        timed = pass_time(
            self.instance.operations, [(kind, 1.0)], shape.tp, shape.attention_dp, self.tokens,
            self.chip, self.efficiency, self.rates, [shares], with_head=False,
        )  # fmt: skip
        return {part: float(seconds) for part, seconds in timed.parts.items()}

    def _fixed_s(self, kind: LayerKind, shares: ExpertShares | None) -> float:
        return sum(self._parts(kind, shares).values())

    def _stages(self) -> None:
        model, layers = self.model, range(self.num_layers)
        for layer in layers:
            for p in range(self.pp):
                self.stage[layer, p] = model.new_bool_var(f"s[{layer},{p}]")
            model.add_exactly_one(self.stage[layer, p] for p in range(self.pp))
        for p in range(self.pp):
            model.add_bool_or(self.stage[layer, p] for layer in layers)
        number = [sum(p * self.stage[layer, p] for p in range(self.pp)) for layer in layers]
        for earlier, later in zip(number, number[1:], strict=False):
            model.add(earlier <= later)
        head = pass_time(
            self.instance.operations, [], self.draft.shape.tp, self.draft.shape.attention_dp,
            self.tokens, self.chip, self.efficiency, self.rates, [],
        )  # fmt: skip
        head_s = float(head.total_s("per_op"))
        self.stage_time = []
        for p in range(self.pp):
            taken = []
            for layer in layers:
                part = model.new_int_var(0, 2**52, f"time[{layer},{p}]")
                model.add(part >= self.layer_time[layer]).only_enforce_if(self.stage[layer, p])
                taken.append(part)
            edge = self.efficiency.step_overhead_s / self.pp
            edge += head_s if p == self.pp - 1 else 0.0
            self.stage_time.append(sum(taken) + up(edge, TIME_UNIT_S))

    def _sequences(self) -> None:
        shape = self.draft.shape
        most = max(self.draft.rank_sequences(), default=0)
        self.sequences = [
            self.model.new_int_var(0, most, f"seq[{k}]") for k in range(shape.attention_dp)
        ]
        self.model.add(sum(self.sequences) == shape.batch)

    def _memory(self) -> None:
        instance, operations, shape = self.instance, self.instance.operations, self.draft.shape
        prefill = self.draft.role == "prefill"
        workload = instance.workload
        context = workload.input_tokens if prefill else workload.final_context
        sampled = float(np.asarray(self.tokens.decode) + np.asarray(self.tokens.prompts))
        for p in range(self.pp):
            first, last = p == 0, p == self.pp - 1
            edge = float(
                memory.edge_weight_bytes(operations, shape.tp, first=first, last=last)
            ) + float(
                memory.activation_bytes(operations, shape.tp, self.rows, sampled if last else 0.0)
            )
            room = down(
                self.chip.hbm_bytes - self.efficiency.runtime_bytes - edge, MEMORY_UNIT_BYTES
            )
            for rank in range(shape.attention_dp):
                slots = self.slots[rank * shape.tp : (rank + 1) * shape.tp] or (0,)
                used = []
                for layer in range(self.num_layers):
                    one = [(self.kind_of[layer], 1.0)]
                    held = float(memory.dense_weight_bytes(one, shape.tp))
                    held += memory.expert_slot_bytes(one) * max(slots)
                    kv = float(memory.kv_bytes_per_sequence(operations, one, shape.tp, context))
                    part = self.model.new_int_var(0, 2**52, f"bytes[{layer},{p},{rank}]")
                    self.model.add(
                        part
                        >= up(held, MEMORY_UNIT_BYTES)
                        + up(kv, MEMORY_UNIT_BYTES) * self.sequences[rank]
                    ).only_enforce_if(self.stage[layer, p])
                    used.append(part)
                self.model.add(sum(used) <= room)

    def _targets(self) -> None:
        """TPOT and TTFT as :mod:`costmodel.serving` defines them; the objective of the role."""
        model, slo = self.model, self.instance.slo
        shape, operations = self.draft.shape, self.instance.operations
        hop_s = 0.0
        if self.pp > 1:
            sent = self.rows / shape.tp * operations.hidden_size * operations.activation_bytes
            hop_s = self.pp * float(self.rates.send_latency_s + self.rates.send_s_per_byte * sent)
        total = sum(self.stage_time) + up(hop_s, TIME_UNIT_S)
        longest = model.new_int_var(0, 2**52, "longest_stage")
        for time in self.stage_time:
            model.add(longest >= time)
        ttft = None if slo.ttft is None else down(slo.ttft - self.transfer_s, TIME_UNIT_S)
        if self.draft.role == "prefill":
            passes = int(self.passes)
            if ttft is not None:
                model.add((2 * passes - 1) * longest + total <= ttft)
            self.objective: cp_model.LinearExprT = longest
            return
        period = model.new_int_var(0, 2**53, "period")
        model.add(period >= total)
        model.add(period >= self.pp * longest)
        if slo.tpot is not None:
            model.add(period <= down(slo.tpot, TIME_UNIT_S))
        if self.draft.role == "mixed" and ttft is not None:
            beside = float(np.asarray(self.tokens.prefill)) * self.pp
            steps = max(1.0, self.instance.workload.new_tokens / beside)
            model.add(period <= int(ttft / (2.0 * steps)))
        self.objective = period

    def fix(self, replica: Replica, maps: Mapping[int, Sequence[int]]) -> None:
        """Fix the decision of a replica: its stages, its expert maps, its sequences per rank."""
        for p, stage in enumerate(replica.stages):
            for layer in range(self.num_layers):
                inside = stage.layers[0] <= layer <= stage.layers[1]
                self.model.add(self.stage[layer, p] == int(inside))
        for layer, slots in maps.items():
            start = 0
            for g, count in enumerate(self.slots):
                here = slots[start : start + count]
                start += count
                for e in range(len(self.instance.expert_loads[0])):
                    self.model.add(self.x[layer, e, g] == here.count(e))
        for variable, count in zip(self.sequences, replica.rank_sequences(), strict=True):
            self.model.add(variable == count)

    def best(
        self, clock: Clock, *, seed: int, limit_s: float
    ) -> tuple[list[tuple[int, int]], dict[int, tuple[int, ...]], bool] | None:
        """Stages, expert maps and whether they are proven best; ``None`` if no decision fits."""
        self.model.minimize(self.objective)
        solver, status = clock.run(self.model, seed=seed, limit_s=limit_s)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        stages = []
        for p in range(self.pp):
            own = [i for i in range(self.num_layers) if solver.value(self.stage[i, p])]
            stages.append((own[0], own[-1]))
        maps: dict[int, tuple[int, ...]] = {}
        for layer in self.instance.operations.moe_layers:
            maps[layer] = tuple(
                e
                for g in range(self.draft.shape.chips_per_stage)
                for e in range(len(self.instance.expert_loads[0]))
                if solver.value(self.x[layer, e, g])
            )
        return stages, maps, status == cp_model.OPTIMAL


def small_enough(instance: Instance, chips: int) -> bool:
    """Whether a replica on stages of so many chips is modelled whole."""
    moe = instance.operations.moe
    if moe is None:
        return instance.operations.num_layers <= 8
    size = len(instance.operations.moe_layers) * moe.num_experts * chips * chips
    return size <= SMALL and instance.operations.num_layers <= 8
