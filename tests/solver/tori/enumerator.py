"""Every set of chips of a small torus, and the best fleet on disjoint ones: what answers on tori are held against.

Shares nothing with the search: replicas are built from the layout format on any chips, the evaluator prices
them, and disjoint sets are put together by dynamic programming over all subsets of the slice. Experts, where
the model has them, lie in order on as few slots as hold them all, or are cut over all chips of a stage; layers in even stages.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from itertools import combinations

from costmodel.layout.layout import KvShare, Layout, Replica, Role, Shape, Stage, spread
from costmodel.models.spec import Attention
from costmodel.question.instance import Instance
from costmodel.replica.fleet import transfer_bytes_per_chip
from costmodel.replica.replica import price_replica
from costmodel.tolerance import exceeds
from topology.errors import InstanceError

ROLES: tuple[Role, ...] = ("prefill", "decode", "mixed")


@dataclass(frozen=True)
class Stood:
    """The best replica found of one role on one set of chips."""

    rate: float
    replica: Replica | None = None


class Enumerator:
    """The best replica of every role on every set of usable chips, and the best fleet of them."""

    def __init__(self, instance: Instance, may: Container[frozenset[str]] | None = None):
        """``may``: the sets of chips that a replica may stand on; without it any."""
        self.instance = instance
        self.chips = [placed.id for placed in instance.cluster.usable]
        self.known: dict[tuple[object, ...], tuple[int, float]] = {}
        self.best: dict[tuple[Role, int], Stood] = {}
        for mask in range(1, 1 << len(self.chips)):
            members = tuple(c for bit, c in enumerate(self.chips) if mask >> bit & 1)
            if may is not None and frozenset(members) not in may:
                continue
            for role in ROLES:
                for stages, tp in self._ways(role, members):
                    for cut in self._cuts(len(stages[0])):
                        rate, batch = self._largest(role, stages, tp, cut)
                        if rate > self.best.get((role, mask), Stood(0.0)).rate:
                            replica = self._replica(role, stages, tp, batch, cut)
                            self.best[role, mask] = Stood(rate, replica)

    def _cuts(self, width: int) -> tuple[bool, ...]:
        """Whether experts lie whole on a stage's chips, or are cut into slices of 128 columns or more."""
        moe = self.instance.operations.moe
        cut = moe is not None and width > 1 and not moe.expert_width % width
        return (False, True) if cut and moe and moe.expert_width >= 128 * width else (False,)

    def _ways(
        self, role: Role, members: tuple[str, ...]
    ) -> Iterator[tuple[tuple[tuple[str, ...], ...], int]]:
        """Every cut of a set into stages of equal size, and of these into ranks."""
        instance = self.instance
        heads = {
            part.query_heads
            for layer in instance.model.layers
            for part in layer.sublayers
            if isinstance(part, Attention)
        }
        moe = instance.operations.moe
        for pp in range(1, instance.limits.max_pipeline_stages + 1):
            if len(members) % pp or (pp > 1 and role == "mixed"):
                continue
            width = len(members) // pp
            for tp in range(1, width + 1):
                if width % tp or any(count % tp for count in heads):
                    continue
                if moe is None and tp < width:
                    continue
                for stages in equal_parts(members, width):
                    if tp in (1, width):
                        yield stages, tp
                    else:
                        for groups in equal_parts(stages[0], tp):
                            if pp == 1:
                                yield (tuple(c for group in groups for c in group),), tp

    def _replica(
        self, role: Role, stages: tuple[tuple[str, ...], ...], tp: int, batch: int, cut: bool
    ) -> Replica:
        moe, operations = self.instance.operations.moe, self.instance.operations
        width, pp = len(stages[0]), len(stages)
        slots = None if moe is None else 0 if cut else -(-moe.num_experts // width)
        built, first = [], 0
        for count, chips in zip(spread(operations.num_layers, pp), stages, strict=True):
            layers = (first, first + count - 1)
            name = None if moe is None or cut else f"even{width}"
            built.append(Stage(layers=layers, chips=chips, slots_per_chip=slots, expert_map=name))
            first += count
        homes = stages[0][::tp]
        shares = zip(homes, spread(batch, len(homes)), strict=True)
        return Replica(
            role=role,
            shape=Shape(
                tp=tp,
                ep=1 if moe is None or cut else width,
                pp=pp,
                attention_dp=width // tp,
                batch=batch,
            ),
            stages=tuple(built),
            kv=tuple(KvShare(chip=chip, sequences=count) for chip, count in shares),
        )

    def layout(self, replicas: tuple[Replica, ...]) -> Layout:
        """Replicas with the expert maps that they name."""
        moe, maps = self.instance.operations.moe, {}
        if moe is not None:
            widths = {len(one.stages[0].chips) for one in replicas if not one.cuts_experts}
            for width in widths:
                slots = -(-moe.num_experts // width) * width
                row = tuple(slot % moe.num_experts for slot in range(slots))
                maps[f"even{width}"] = dict.fromkeys(self.instance.operations.moe_layers, row)
        return Layout(replicas=replicas, expert_maps=maps)

    def _largest(
        self, role: Role, stages: tuple[tuple[str, ...], ...], tp: int, cut: bool
    ) -> tuple[float, int]:
        """Most requests per second of a replica and its batch; of any batch, by bisection."""
        cluster, limits = self.instance.cluster, self.instance.limits
        try:
            figures = self._figures(stages, tp, cut)
        except InstanceError:
            return 0.0, 0
        ranks, pp = len(stages[0]) // tp, len(stages)
        hand_over = 0.0
        if role == "prefill":
            moved = transfer_bytes_per_chip(self.instance, tp, pp)
            others = [c for c in self.chips if not any(c in stage for stage in stages)]
            sends = [cluster.rate("send", (stages[0][0], c)).time(moved) for c in others]
            if not sends:
                return 0.0, 0
            hand_over = max(sends)
        key = (role, tp, len(stages[0]), pp, cut, figures, round(hand_over, 12))
        if key not in self.known:
            most = limits.max_sequences_per_rank * ranks
            if role == "prefill":
                each = max(1, limits.prefill_chunk_tokens // self.instance.workload.new_tokens)
                most = each * pp * ranks
            low, high, best = 0, most, 0.0
            while low < high:
                middle = (low + high + 1) // 2
                rate = self._rate(self._replica(role, stages, tp, middle, cut), hand_over)
                low, high, best = (middle, high, rate) if rate else (low, middle - 1, best)
            # uneven batches are not always better than the even ones below them
            rates = [(best, low)]
            for batch in {low - low % (ranks * pp), 1} - {0}:
                replica = self._replica(role, stages, tp, batch, cut)
                rates.append((self._rate(replica, hand_over), batch))
            found = max(rates)
            self.known[key] = (found[1], found[0])
        batch, rate = self.known[key]
        return rate, batch

    def _figures(
        self, stages: tuple[tuple[str, ...], ...], tp: int, cut: bool
    ) -> tuple[object, ...]:
        """What the price of a replica takes from its chips: the rates of its collectives."""
        rate = self.instance.cluster.rate
        moe = self.instance.operations.moe
        found: list[float] = []
        for stage in stages:
            if tp > 1:
                ranks = [stage[start : start + tp] for start in range(0, len(stage), tp)]
                each = [rate("all-reduce", rank) for rank in ranks]
                found += max((one.s_per_byte, one.latency_s) for one in each)
            if moe is not None and len(stage) > 1:
                own = (
                    rate("all-gather", stage)
                    if cut
                    else rate("dispatch", stage, top_k=round(moe.top_k))
                )
                found += (own.s_per_byte, own.latency_s)
        for stage, following in zip(stages, (*stages[1:], stages[0]), strict=True):
            if len(stages) > 1:
                sends = [rate("send", pair) for pair in zip(stage, following, strict=True)]
                found += max((one.s_per_byte, one.latency_s) for one in sends)
        return tuple(float(f"{value:.9g}") for value in found)

    def _rate(self, replica: Replica, hand_over_s: float) -> float:
        """Requests per second, 0 where HBM or a target does not hold."""
        slo = self.instance.slo
        price = price_replica(self.instance, self.layout((replica,)), replica)
        hbm = self.instance.cluster.chips[0].chip.hbm_bytes
        if any(exceeds(float(stage.used_bytes.max()), hbm) for stage in price.stages):
            return 0.0
        if slo.tpot is not None and exceeds(float(price.service.tpot_s), slo.tpot):
            return 0.0
        if slo.ttft is not None and exceeds(float(price.service.ttft_s) + hand_over_s, slo.ttft):
            return 0.0
        return float(price.service.requests_per_s)

    def fleets(self) -> Iterator[Layout]:
        """The best fleets on disjoint sets, best first by the replicas' own rates."""
        useful = self._useful()
        whole = (1 << len(self.chips)) - 1
        #: prefill, decode and mixed rates of fleets on some chips that no other beats, with their parts
        states: dict[int, list[tuple[tuple[float, ...], tuple[tuple[Role, int], ...]]]] = {}
        states[0] = [((0.0, 0.0, 0.0), ())]
        for mask in range(1, whole + 1):
            low = mask & -mask
            found = list(states[mask ^ low])
            part = mask
            while part:  # every subset with the lowest chip
                if part & low:
                    for place, role in enumerate(ROLES):
                        stood = useful.get((role, part))
                        for rates, parts in states[mask ^ part] if stood else []:
                            more = list(rates)
                            more[place] += stood.rate if stood else 0.0
                            found.append((tuple(more), (*parts, (role, part))))
                part = (part - 1) & mask
            states[mask] = _unbeaten(found)
        order = sorted(states[whole], key=lambda one: -(min(one[0][:2]) + one[0][2]))
        for _, parts in order:
            stood = [useful[part].replica for part in parts]
            if stood:
                yield self.layout(tuple(replica for replica in stood if replica is not None))

    def _useful(self) -> dict[tuple[Role, int], Stood]:
        """Replicas that serve more than any of their role on some of their chips."""
        kept: dict[tuple[Role, int], Stood] = {}
        for (role, mask), stood in sorted(self.best.items(), key=lambda one: one[0][1].bit_count()):
            if not any(
                own == role and mask & other == other and stood.rate <= less.rate * (1 + 1e-12)
                for (own, other), less in kept.items()
            ):
                kept[role, mask] = stood
        return kept


def _unbeaten(
    fleets: list[tuple[tuple[float, ...], tuple[tuple[Role, int], ...]]],
) -> list[tuple[tuple[float, ...], tuple[tuple[Role, int], ...]]]:
    kept: list[tuple[tuple[float, ...], tuple[tuple[Role, int], ...]]] = []
    for rates, parts in sorted(fleets, key=lambda one: one[0], reverse=True):
        if not any(all(a >= b for a, b in zip(other, rates, strict=True)) for other, _ in kept):
            kept.append((rates, parts))
    return kept


def equal_parts(members: tuple[str, ...], size: int) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Every way to put members into groups of a size; the order of groups does not matter."""
    if not members:
        yield ()
        return
    first, rest = members[0], members[1:]
    for others in combinations(rest, size - 1):
        left = tuple(member for member in rest if member not in others)
        for parts in equal_parts(left, size):
            yield ((first, *others), *parts)
