"""The servers of a layout: tables of passes, room for KV, and what a hand-over takes between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout, Replica
from costmodel.question.instance import Instance
from costmodel.question.traffic.requests import Requests
from costmodel.replay.gaps import Gaps
from costmodel.replay.job import Habits, Job
from costmodel.replay.pass_table import STEP, Line, PassTable
from costmodel.replay.prefix_cache import HostRoom
from costmodel.replay.server import Server
from costmodel.replay.tabulate import pass_table
from costmodel.replica.fleet import PricedLayout
from costmodel.replica.replica import ReplicaPrice
from topology.errors import InstanceError, Problem

#: halvings by which the part of slots that is taken is found
_HALVINGS = 30


@dataclass(frozen=True)
class Standing:
    """One replica that serves: its server, its home domain, and how fast it computes prompts.

    ``transfer_s``: hand-over of a prompt of the workload's length, alone. ``host``: room for prefix blocks in the memory
    of its hosts (``None``: its chips have no such tier).
    """

    server: Server
    domain: int
    prompt_tokens_per_s: float
    transfer_s: float
    host: HostRoom | None = None

    def prompt_s(self, start: int, end: int) -> float:
        """Seconds that a prompt's tokens ``start`` to ``end`` hold the slowest stage, in full passes of like prompts."""
        table = self.server.table
        return (end - start) * self._token_s + table.attention_s(start, end)[1] / table.ranks

    @cached_property
    def _token_s(self) -> float:
        """Seconds of a prompt token in a full pass, without attention."""
        table, chunk = self.server.table, self.server.habits.chunk_tokens
        return table.pass_s(chunk, chunk, 1.0, (0.0, 0.0))[0] / (chunk * table.ranks)

    @property
    def waits_s(self) -> float:
        """The same of all prompts that wait here."""
        pending = self.server.pending
        return pending.tokens * self._token_s + pending.attention_s / self.server.table.ranks


@dataclass
class Tables:
    """Tables of passes and shares of KV that were made for one question, by replica and longest request.

    ``longest``: tokens that each reaches at least, so that stretches of one trace share them.
    """

    longest: int = 0
    known: dict[object, tuple[PassTable, Line]] = field(default_factory=dict)


def standing(
    instance: Instance,
    layout: Layout,
    habits: Habits,
    gaps: Gaps,
    longest: int,
    tables: Tables | None = None,
) -> list[Standing]:
    """Every replica of a layout as a server. ``tables``: made before for the same question; added to.

    Raises ``InstanceError`` where the layout cannot be priced, or keeps the KV of running sequences
    outside HBM.
    """
    evaluation = evaluate(instance, layout)
    if not evaluation.priced.replicas:
        broken = [Problem(v.place, f"{v.rule}: {v.message}") for v in evaluation.violations]
        raise InstanceError(broken)
    tables = Tables() if tables is None else tables
    longest = max(longest, tables.longest)
    found = []
    for index, (replica, price) in enumerate(
        zip(layout.replicas, evaluation.priced.replicas, strict=True)
    ):
        if replica.apart is not None:
            place, message = f"replicas[{index}].apart", "replay does not run experts apart"
            raise InstanceError(Problem(place, message))
        if replica.place_in_flight != "hbm":
            place = f"replicas[{index}].kv"
            raise InstanceError(Problem(place, "replay keeps the KV of running sequences in HBM"))
        key = (_alike(instance, replica, price), habits, longest)
        if key not in tables.known:
            rows = max(habits.chunk_tokens, replica.shape.batch) + replica.shape.batch
            table = pass_table(instance, layout, replica, longest=longest, most_rows=rows)
            tables.known[key] = (table, kv_share(instance, replica, price, longest))
        table, share = tables.known[key]
        server = Server(replica.role, table, share, _slots(replica, habits), habits, gaps)
        found.append(_standing(instance, replica, index, server, evaluation.priced))
    return found


def _standing(
    instance: Instance, replica: Replica, index: int, server: Server, priced: PricedLayout
) -> Standing:
    table, chunk = server.table, server.habits.chunk_tokens
    attended = table.attention_s(0, min(chunk, instance.workload.input_tokens))
    held, _ = table.pass_s(chunk, chunk, 1.0, attended)
    return Standing(
        server,
        instance.cluster.chip(replica.chips[0]).domain,
        chunk * table.ranks / held,
        priced.transfer_s[index] or 0.0,
        host_room(instance, replica),
    )


def under_way(
    fleet: Sequence[Standing], requests: Requests, seed: int
) -> list[tuple[Standing, list[Job]]]:
    """Sequences that decode when the first request comes, by replica: those of a steady state at the requests' rate.

    Each has a part of its answer out, drawn evenly; longer answers are met more often. Their number is that at which as many
    answers end as requests come, spread like arrivals by chance.
    """
    own = [one for one in fleet if one.server.role != "prefill"]
    steps = np.maximum(requests.output_tokens - 1.0, 0.0)
    if not own or not steps.any():
        return []
    context = float(
        (steps * (requests.input_tokens + requests.output_tokens / 2)).sum() / steps.sum()
    )

    def served(part: float) -> float:
        """Requests/s where so large a part of all slots is taken."""
        rate = 0.0
        for one in own:
            count, table = max(1, round(part * one.server.slots)), one.server.table
            a_round = table.round_s(count, context) / table.emitted
            prompt_s = requests.input_tokens.mean() / one.prompt_tokens_per_s
            prompt_s *= one.server.role == "mixed"
            rate += 1.0 / (float(steps.mean()) * a_round / count + float(prompt_s))
        return rate

    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if served(middle) < requests.rate else (low, middle)
    rng = np.random.default_rng([seed, len(requests)])
    expected = high * sum(one.server.slots for one in own)
    part = high * rng.poisson(expected) / max(expected, 1.0)
    found, index = list[tuple[Standing, list[Job]]](), 0
    for one in own:
        count = min(one.server.slots, round(part * one.server.slots))
        rows = rng.choice(len(steps), count, p=steps / steps.sum())
        jobs = []
        for row, share in zip(rows.tolist(), rng.random(count).tolist(), strict=True):
            index -= 1
            given, asked = int(requests.input_tokens[row]), int(requests.output_tokens[row])
            out = 1 + int(share * (asked - 1))
            jobs.append(
                Job(index, 0.0, given, asked, done=given, prompt=given, emitted=out, first_s=0.0)
            )
        found.append((one, jobs))
    return found


def host_room(instance: Instance, replica: Replica) -> HostRoom | None:
    """Tokens of KV in the host tier of a replica's chips, and seconds to read one back.

    A prompt lies on one attention rank: its stages read side by side, and each chip of a stage that shares a
    tensor reads all of the stage's KV, as latent KV is not divided.
    """
    tiers = [instance.cluster.chip(chip).chip.tier("host") for chip in replica.chips]
    if any(tier is None for tier in tiers):
        return None
    own = [tier for tier in tiers if tier is not None]
    per_token = instance.request_kv_bytes / instance.workload.input_tokens
    slowest = min(tier.read_bytes_per_s for tier in own)
    return HostRoom(
        sum(tier.bytes for tier in own) / per_token, per_token / (slowest * replica.shape.pp)
    )


def _slots(replica: Replica, habits: Habits) -> int:
    """Requests a replica runs at once; prompts of a prefill replica wait in its queue instead."""
    if replica.role == "prefill":  # as many as KV holds: they wait for their pass, not for a slot
        return habits.chunk_tokens * replica.shape.attention_dp
    return replica.shape.batch


def _alike(instance: Instance, replica: Replica, price: ReplicaPrice) -> object:
    """Equal for replicas whose passes take equally long: same shape, layers, parts and memory."""
    return (
        replica.role,
        replica.shape,
        tuple(stage.layers for stage in replica.stages),
        tuple(tuple(stage.parts.items()) for stage in price.stages),
        tuple(instance.cluster.chip(stage.chips[0]).chip.name for stage in replica.stages),
    )


def kv_share(instance: Instance, replica: Replica, price: ReplicaPrice, longest: int) -> Line:
    """Share of a replica's room for KV that one sequence takes, by its context.

    Room is what the fullest chip's HBM leaves beside weights, activations and the engine; a sequence lies
    on one of the attention ranks.
    """
    width = instance.width_bytes(replica.shape.tp)
    contexts = np.arange(longest // STEP + 3) * STEP
    worst = np.zeros(len(contexts))
    for index, (stage, stage_price) in enumerate(zip(replica.stages, price.stages, strict=True)):
        counts = instance.operations.layers_within(*stage.layers)
        last = index == len(replica.stages) - 1
        bytes_of = np.array(
            [float(width.cached(counts, int(context), last=last)) for context in contexts]
        )
        for chip, used, kv in zip(
            stage.chips, stage_price.used_bytes.tolist(), stage_price.memory["kv"].tolist(), strict=True
        ):  # fmt: skip
            room = instance.usable_hbm_bytes(instance.cluster.chip(chip).chip) - (used - kv)
            worst = np.maximum(worst, bytes_of / max(room, 1.0))
    return Line.through(contexts.astype(float), worst / replica.shape.attention_dp, longest)
