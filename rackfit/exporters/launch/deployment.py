"""What an exporter is given: the layout's replicas as servers on named hosts. Knows no engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count
from math import ceil

from costmodel.evaluate import Evaluation
from costmodel.layout.layout import Layout, Replica
from costmodel.question.instance import Instance
from costmodel.replica.replica import MEMORY_KINDS
from rackfit.exporters.launch.hosts import Hosts, Place
from rackfit.exporters.launch.options import kv_dtype
from topology.names import MOST_LINE, check_name

#: Ports kept for one server: its launchers' own from the first, the rendezvous from the middle.
PORTS_PER_SERVER = 400
#: servers with ports of their own below 32768, where Linux begins with those of outgoing connections
_SLOTS = 31


@dataclass(frozen=True)
class ExportOptions:
    """Names that a layout does not hold. ``model_path``: where the weights lie on every host.

    ``draft_path``: where those of a draft model lie, empty for a folder of its name beside the model's.
    ``weights_claim``: the volume claim that holds them in Kubernetes; ``rdma_resource``: what its device plugin
    calls a NIC, empty for none.
    """

    model_path: str
    image: str = "REGISTRY/ENGINE-RUNTIME:TAG"
    namespace: str = "default"
    topology_profile: str = "cluster-topology"
    weights_claim: str = "model-weights"
    rdma_resource: str = "rdma/ib"
    first_port: int = 20000
    draft_path: str = ""

    def __post_init__(self) -> None:
        """Raise ``InstanceError`` for a name that cannot stand on one line."""
        for option in (
            "model_path", "image", "namespace", "topology_profile", "weights_claim", "rdma_resource",
            "draft_path",
        ):  # fmt: skip
            given = getattr(self, option)
            if given or option not in ("rdma_resource", "draft_path"):  # empty for none
                check_name(given, f"--{option.replace('_', '-')}", MOST_LINE)


@dataclass(frozen=True)
class Launcher:
    """One process to start: equal shares of a server's chips, each on one host.

    ``rank`` of ``count`` in the server's rank order (stage by stage); ``places`` are consecutive
    devices of ``host``.
    """

    rank: int
    count: int
    places: tuple[Place, ...]

    @property
    def host(self) -> str:
        """The host to start it on."""
        return self.places[0].host

    @property
    def gpus(self) -> tuple[int, ...]:
        """Device numbers on that host."""
        return tuple(place.gpu for place in self.places)

    @property
    def chips(self) -> tuple[str, ...]:
        """Chip ids."""
        return tuple(place.chip for place in self.places)


@dataclass(frozen=True)
class Server:
    """One replica with a name, its ranks' places and its ports."""

    index: int
    name: str
    replica: Replica
    places: tuple[Place, ...]
    port: int

    @property
    def role(self) -> str:
        """``prefill``, ``decode`` or ``mixed``."""
        return self.replica.role

    @property
    def head(self) -> str:
        """Host of the first rank."""
        return self.places[0].host

    @property
    def rendezvous_port(self) -> int:
        """Port on the head where the ranks find each other."""
        return self.port + PORTS_PER_SERVER // 2

    @property
    def racks(self) -> tuple[str, ...]:
        """Racks (scale-up domains) that hold the replica, in order of first use."""
        return tuple(dict.fromkeys(place.rack for place in self.places))

    @cached_property
    def launchers(self) -> tuple[Launcher, ...]:
        """The fewest equal launchers that stay on one host each.

        Their number divides the stages or is a multiple of them, as every engine's rank arithmetic
        asks: a launcher holds whole stages or an equal part of one.
        """
        total = len(self.places)
        width = self.replica.shape.chips_per_stage
        for size in range(total, 0, -1):
            if total % size or (size % width and width % size):
                continue
            cuts = [self.places[start : start + size] for start in range(0, total, size)]
            if all(_consecutive(cut) for cut in cuts):
                return tuple(Launcher(rank, len(cuts), cut) for rank, cut in enumerate(cuts))
        raise AssertionError("single chips are always consecutive")

    def stage_layers(self) -> list[int]:
        """Layers of each stage."""
        return [last - first + 1 for first, last in (s.layers for s in self.replica.stages)]

    def per_pass(self) -> int:
        """Sequences (or prompts) of the busiest attention rank in one pass."""
        return -(-self.per_rank() // self.replica.shape.pp)

    @property
    def unlike_ranks(self) -> bool:
        """Whether ranks or microbatches hold unlike numbers of sequences: no engine has a limit for each."""
        shape = self.replica.shape
        return shape.batch != self.per_pass() * shape.attention_dp * shape.pp

    def per_rank(self) -> int:
        """Sequences (or prompts) of the busiest attention rank over all microbatches."""
        return max(self.replica.rank_sequences(), default=0)


def _slot(index: int, taken: Sequence[set[int]]) -> int:
    """Ports of a server: its number's, or the next that no other server on any of its hosts has."""
    used = set().union(*taken)
    order = chain(((index + step) % _SLOTS for step in range(_SLOTS)), count(_SLOTS))
    slot = next(slot for slot in order if slot not in used)
    for own in taken:
        own.add(slot)
    return slot


def _consecutive(places: Sequence[Place]) -> bool:
    first = places[0]
    return all(
        place.host == first.host and place.gpu == first.gpu + step
        for step, place in enumerate(places)
    )


@dataclass(frozen=True)
class Deployment:
    """A layout ready to be written: servers, hosts, and what the cost model says of them."""

    instance: Instance
    layout: Layout
    evaluation: Evaluation
    hosts: Hosts
    options: ExportOptions
    servers: tuple[Server, ...] = field(default=())

    @property
    def verified_tokens(self) -> int:
        """Tokens of each decoding sequence in a pass: one, and the drafts."""
        drafts = self.instance.speculative
        return 1 if drafts is None else 1 + drafts.draft_tokens

    @classmethod
    def of(
        cls,
        instance: Instance,
        layout: Layout,
        evaluation: Evaluation,
        hosts: Hosts,
        options: ExportOptions,
    ) -> Deployment:
        """Number the replicas of each role and give each server its own ports."""
        seen: dict[str, int] = {}
        taken: dict[str, set[int]] = {}
        servers = []
        for index, replica in enumerate(layout.replicas):
            number = seen[replica.role] = seen.get(replica.role, -1) + 1
            places = tuple(hosts.of(chip) for chip in replica.chips)
            slot = _slot(index, [taken.setdefault(place.host, set()) for place in places])
            servers.append(
                Server(
                    index=index,
                    name=f"{replica.role}-{number}",
                    replica=replica,
                    places=places,
                    port=options.first_port + PORTS_PER_SERVER * slot,
                )
            )
        return cls(instance, layout, evaluation, hosts, options, tuple(servers))

    @property
    def engine_name(self) -> str:
        """Engine (and version, where the question names one) that the commands are for."""
        return self.instance.scenario.engine or ""

    @property
    def disaggregated(self) -> bool:
        """Whether prompts and answers have pools of their own."""
        return any(server.role == "prefill" for server in self.servers)

    @property
    def checkpoint_note(self) -> str:
        """Which precision the figures are for."""
        model = self.instance.model
        return (
            f"the checkpoint at {self.options.model_path} must hold weights as {model.native_dtype}; "
            f"KV is {kv_dtype(model)}"
        )

    def context_note(self, option: str) -> str:
        """The longest request that the servers take."""
        work = self.instance.workload
        kept = "that" if work.spread is None else f"{work.final_context:,} of each on average"
        return f"a request may have {work.longest:,} tokens, input and output together ({option}): KV is sized for {kept}"

    @property
    def used_hosts(self) -> tuple[str, ...]:
        """Hosts with a server on them, in the cluster's order."""
        used = {place.host for server in self.servers for place in server.places}
        return tuple(host for host in self.hosts.names if host in used)

    @property
    def host_notes(self) -> list[str]:
        """That host names are made up, where they are."""
        return self.hosts.notes

    def prompts_per_pass_tokens(self, server: Server) -> int:
        """Prompt tokens of one pass of one attention rank, rounded up to 256, at most the limit."""
        workload, limit = self.instance.workload, self.instance.limits.prefill_chunk_tokens
        prompts = max(1, ceil(server.per_rank() / server.replica.shape.pp))
        if server.role != "prefill":
            prompts = 1
        tokens = min(limit, prompts * workload.new_tokens)
        return min(limit, ceil(tokens / 256) * 256) if limit >= 256 else limit

    def static_fraction(self, server: Server) -> float:
        """Largest share of a chip's HBM that weights, experts and KV take, rounded up to 0.001."""
        return self._written(server, self._share(server, ("weights", "experts", "kv")))

    def used_fraction(self, server: Server) -> float:
        """Largest share of a chip's HBM in use."""
        return self._share(server, MEMORY_KINDS)

    def total_fraction(self, server: Server) -> float:
        """Largest share of a chip's HBM in use, rounded up to 0.001."""
        return self._written(server, self.used_fraction(server))

    def kv_fraction_of_free(self, server: Server) -> float:
        """Largest ratio of KV to what is left beside all else, rounded up to 0.001."""
        others = ("weights", "experts", "activations", "runtime")
        return self._written(server, self._share(server, ("kv",), besides=others))

    def _written(self, server: Server, share: float) -> float:
        """A share as it is written: rounded up, no less than the engine's own default, no more than it leaves.

        Sequences are limited by their number; with less memory than usual an engine that needs more beside them than
        is counted here would stop at start.
        """
        cluster = self.instance.cluster
        chips = {chip.chip.name: chip.chip for chip in map(cluster.chip, server.replica.chips)}
        left = min(self.instance.usable_hbm_bytes(chip) / chip.hbm_bytes for chip in chips.values())
        engine = self.instance.engine
        usual = (engine.memory.default if engine is not None else None) or 0.0
        return min(left, max(usual, ceil(share * 1000 - 1e-9) / 1000))

    def _share(self, server: Server, kinds: Sequence[str], besides: Sequence[str] = ()) -> float:
        price = self.evaluation.priced.replicas[server.index]
        largest = 0.0
        for stage, stage_price in zip(server.replica.stages, price.stages, strict=True):
            for place, chip in enumerate(stage.chips):
                memory = stage_price.memory
                room = self.instance.cluster.chip(chip).chip.hbm_bytes
                room -= sum(float(memory[kind][place]) for kind in besides)
                used = sum(float(memory[kind][place]) for kind in kinds)
                largest = max(largest, used / room if room > 0 else 1.0)
        return largest
