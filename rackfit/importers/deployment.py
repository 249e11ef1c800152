"""From found servers to a layout: chips, stages, experts, KV and batch. Judged by the evaluator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from costmodel.layout.layout import ExpertMap, Layout, Replica, spread
from costmodel.passes.routed import mixtures
from costmodel.question.engine import in_order
from costmodel.question.instance import Instance
from costmodel.replica.replica import price_replica
from costmodel.tolerance import exceeds
from rackfit.importers.checkpoints import other_model
from rackfit.importers.files import read_servers
from rackfit.importers.servers import FoundServer
from solver.experts import place_layers
from solver.place.build import build_replica
from solver.place.held_kv import with_idle
from solver.shapes.shapes import ROLES
from topology.errors import InstanceError, Problem, option


@dataclass(frozen=True)
class Imported:
    """A layout, and what was taken for granted on the way to it."""

    layout: Layout
    notes: tuple[str, ...]


def import_deployment(
    instance: Instance, engine: str, path: Path, *, balanced: bool = False
) -> Imported:
    """The layout that an engine's files deploy on the instance's cluster.

    Chips are those that remarks name, else the first free ones, a server in one domain where it
    fits. Experts lie as the engine starts; with ``balanced`` an engine's own balancer is taken to
    place them as well as Rackfit would. A batch that the files leave open is the largest that meets
    the targets. Raises ``InstanceError`` for sizes that cannot be (world size, slots, layers).
    """
    return build_layout(instance, read_servers(engine, path), balanced=balanced)


def build_layout(
    instance: Instance, servers: Sequence[FoundServer], *, balanced: bool = False
) -> Imported:
    """The layout of servers whose sizes are known."""
    builder = _Builder(instance, balanced)
    need = sum(server.copies * server.width * server.pp for server in servers)
    if need > len(builder.usable):
        message = f"needs {need} chips, {len(builder.usable)} are left in {instance.cluster.name}"
        raise InstanceError(Problem(servers[0].place, message))
    for server in servers:
        for _ in range(server.copies):
            builder.add(server)
    layout = Layout(replicas=tuple(builder.replicas), expert_maps=builder.maps)
    return Imported(layout, tuple(dict.fromkeys(builder.notes)))


class _Builder:
    """Takes chips for one server after the other."""

    def __init__(self, instance: Instance, balanced: bool):
        self.instance = instance
        self.balanced = balanced
        self.replicas: list[Replica] = []
        self.maps: dict[str, ExpertMap] = {}
        self.notes: list[str] = []
        #: free chips by domain, in order
        self.free = [[placed.id for placed in domain.usable] for domain in instance.cluster.domains]
        self.usable = {chip for domain in self.free for chip in domain}
        self._names: dict[object, str] = {}
        self._batches: dict[object, int] = {}

    def add(self, server: FoundServer) -> None:
        """One replica of a server."""
        self.notes += (*server.notes, *server.otherwise(self.instance))
        if (other := other_model(server, self.instance.model)) is not None:
            self.notes.append(
                f"{server.place}: serves {other}, not {self.instance.model.name}: {option('model')} {other} prices what runs"
            )
        chips = self._chips(server)
        self._take(chips)
        width = server.width
        stages = self._stages(server)
        slots, name = self._experts(server)
        sizes = {
            "role": ROLES.index(server.role), "tp": server.tp, "attention_dp": server.attention_dp,
            "pp": server.pp,
        }  # fmt: skip
        parts = [chips[start : start + width] for start in range(0, len(chips), width)]
        maps = None if name is None else [name] * server.pp

        def make(sequences: Sequence[int]) -> Replica:
            return build_replica(self.instance, sizes, sequences, stages, slots, parts, maps)

        def alike(per_rank: int) -> Replica:
            return make([per_rank * server.pp] * server.attention_dp)

        unlike = self._unlike(server)
        replica = make(unlike) if unlike else alike(self._per_rank(server, alike))
        self.replicas.append(self._keeping(replica, server))

    def _keeping(self, replica: Replica, server: FoundServer) -> Replica:
        """The replica with the waiting conversations that a remark tells of, where the question has any."""
        if server.idle is None:
            return replica
        if self.instance.workload.hold_s is None:
            self.notes.append(f"{server.place}: idle KV is left out; the workload has no hold_s")
            return replica
        return with_idle(self.instance, replica, *server.idle)

    def _unlike(self, server: FoundServer) -> tuple[int, ...] | None:
        """Sequences of unlike ranks as a remark says, where they agree with the files' limit."""
        if server.sequences is None:
            return None
        if server.batch is None:
            said = f"the remark on {len(server.sequences)} ranks is left out; the command limits no sequences"
            self.notes.append(f"{server.place}: {said}")
            return None
        most = server.batch // server.attention_dp
        ranks, busiest = len(server.sequences), max(server.sequences)
        if ranks == server.attention_dp and most - server.pp < busiest <= most:
            return server.sequences
        self.notes.append(
            f"{server.place}: the remark on {ranks} ranks with up to {busiest} sequences is left out; the "
            f"command says {server.attention_dp} with up to {most}"
        )
        return None

    def _chips(self, server: FoundServer) -> list[str]:
        need = server.width * server.pp
        if server.chips is not None:
            strange = [chip for chip in server.chips if chip not in self.usable]
            if strange or len(server.chips) != need:
                message = (
                    f"{strange[0][:40]} is not a free chip of {self.instance.cluster.name}"
                    if strange
                    else f"{len(server.chips)} chips"
                )
                problem = f"{message}; tp x dp x pp asks for {need} free chips"
                raise InstanceError(Problem(server.place, problem))
            return list(server.chips)
        for domain in self.free:
            if len(domain) >= need:
                return domain[:need]
        # a rank in one domain where it fits, else in the largest equal parts
        for part in (one for one in range(server.tp, 0, -1) if server.tp % one == 0):
            rest = [chip for domain in self.free for chip in domain[: len(domain) // part * part]]
            if len(rest) >= need:
                break
        else:
            message = (
                f"needs {need} chips, {len(self.usable)} are left in {self.instance.cluster.name}"
            )
            raise InstanceError(Problem(server.place, message))
        if part < server.tp:
            self.notes.append(
                f"{server.place}: ranks of tp {server.tp} find no room in one domain each: {part} chips of a rank lie "
                "together, and its sums go between domains"
            )
        return rest[:need]

    def _take(self, chips: Sequence[str]) -> None:
        gone = set(chips)
        self.usable -= gone
        for index in {self.instance.cluster.chip(chip).domain for chip in chips}:
            self.free[index] = [chip for chip in self.free[index] if chip not in gone]

    def _stages(self, server: FoundServer) -> list[tuple[int, int]]:
        total = len(self.instance.model.layers)
        counts = list(server.layers or spread(total, server.pp))
        if server.layers is None and server.split == "larger last but one":
            counts = [total // server.pp] * server.pp
            for extra in range(total % server.pp):
                counts[-(extra + 2) if server.pp > 1 else 0] += 1
        if len(counts) != server.pp or sum(counts) != total or min(counts) < 1:
            message = f"stages of {counts} layers; {server.pp} stages share {total} layers"
            raise InstanceError(Problem(server.place, message))
        ends = [sum(counts[: number + 1]) for number in range(server.pp)]
        return [(end - count, end - 1) for count, end in zip(counts, ends, strict=True)]

    def _experts(self, server: FoundServer) -> tuple[tuple[int, ...], str | None]:
        """Slots per chip and the name of the expert map."""
        moe = self.instance.operations.moe
        if moe is None:
            return (), None
        if server.sharded_experts and server.width > 1 and server.experts is None:
            uncut = [
                one for one in mixtures(self.instance.operations) if not one.cut_over(server.width)
            ]
            if not uncut:
                return (0,) * server.width, None
            blocks, width = "", uncut[0].expert_width
            if uncut[0].expert_block > 1 and not width % server.width:
                blocks = f" in blocks of {uncut[0].expert_block}, which engines do not load,"
            self.notes.append(
                f"{server.place}: {width} columns of an expert are not cut evenly{blocks} over {server.width} "
                "chips; experts are priced whole on them"
            )
        total = server.slots or moe.num_experts + server.spare
        if total < moe.num_experts:
            message = f"{total} slots for {moe.num_experts} experts"
            raise InstanceError(Problem(server.place, message))
        if total > moe.num_experts * server.width:
            message = f"{total} slots for {moe.num_experts} experts on {server.width} ranks"
            raise InstanceError(Problem(server.place, f"{message}: one lies twice on a rank"))
        if total % server.width and (server.spare or server.slots or server.experts):
            message = f"{total} expert slots do not divide over {server.width} ranks"
            raise InstanceError(Problem(server.place, message))
        slots = tuple(spread(total, server.width))
        layers = self.instance.operations.moe_layers
        moves = self.balanced and server.balanced
        rows = None if moves else server.experts
        key = (slots, moves, tuple(sorted(rows.items())) if rows else None)
        if key not in self._names:
            name = self._names[key] = f"map{len(self._names)}"
            if rows is not None:
                missing = [layer for layer in layers if layer not in rows]
                if missing:
                    message = f"the expert placement has no layer {missing[0]}"
                    raise InstanceError(Problem(server.place, message))
                self.maps[name] = {layer: rows[layer] for layer in layers}
            elif moves:
                placed = place_layers(self.instance.expert_loads, slots, effort="good")
                table = placed.physical_to_logical.tolist()
                self.maps[name] = {
                    layer: tuple(row) for layer, row in zip(layers, table, strict=True)
                }
                self.notes.append("the engine's balancer is taken to place experts as Rackfit does")
            else:
                self.maps[name] = dict.fromkeys(layers, in_order(moe.num_experts, total))
        return slots, self._names[key]

    def _per_rank(self, server: FoundServer, make: Callable[[int], Replica]) -> int:
        """Sequences of one rank and microbatch: as the files say, else the largest that fits."""
        if server.batch is not None:
            per_rank = max(1, server.batch // (server.attention_dp * server.pp))
            priced = per_rank * server.attention_dp * server.pp
            if priced != server.batch:
                self.notes.append(
                    f"{server.place}: {priced} sequences are priced for {server.batch}, {per_rank} on each of "
                    f"{server.attention_dp} ranks in each of {server.pp} microbatches"
                )
            return min(per_rank, self._prompts(server)) if server.role == "prefill" else per_rank
        if server.role == "prefill" and server.prefill_tokens is not None:
            return self._prompts(server)
        key = (replace(server, experts=None), self._experts(server))  # the map is told by its name
        if key not in self._batches:
            limits = self.instance.limits
            most = limits.max_sequences_per_rank
            if server.role == "prefill":
                most = min(most, limits.prompts_in_pass(self.instance.workload))
            self._batches[key] = self._largest(make, most)
            self.notes.append(
                f"{server.place}: batch not given; {self._batches[key]} sequences per rank fit"
            )
        return self._batches[key]

    def _prompts(self, server: FoundServer) -> int:
        """Prompts of one rank in a prefill pass: those that the tokens of a pass hold."""
        limits, workload = self.instance.limits, self.instance.workload
        most, own = limits.prefill_chunk_tokens, server.prefill_tokens
        tokens = most if own is None else max(1, min(own, most))
        found = limits.model_copy(update={"prefill_chunk_tokens": tokens})
        prompts = found.prompts_in_pass(workload)
        whose = "its token limit" if own == tokens else "prefill_chunk_tokens of the question"
        self.notes.append(f"{server.place}: {prompts} prompts per pass, from {whose}")
        return prompts

    def _largest(self, make: Callable[[int], Replica], most: int) -> int:
        low, high = 1, most
        while low < high:
            middle = (low + high + 1) // 2
            if self._fits(make(middle)):
                low = middle
            else:
                high = middle - 1
        return low

    def _fits(self, replica: Replica) -> bool:
        layout = Layout(replicas=(replica,), expert_maps=self.maps)
        price = price_replica(self.instance, layout, replica)
        slo, service = self.instance.slo, price.service
        if slo.tpot is not None and exceeds(float(service.tpot_s), slo.tpot):
            return False
        if slo.ttft is not None and exceeds(float(service.ttft_s), slo.ttft):
            return False
        for stage, stage_price in zip(replica.stages, price.stages, strict=True):
            for place, chip in enumerate(stage.chips):
                room = self.instance.usable_hbm_bytes(self.instance.cluster.chip(chip).chip)
                if exceeds(float(stage_price.used_bytes[place]), room):
                    return False
        return True
