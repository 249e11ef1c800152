"""The steps of a move, each judged: what stops, loads and starts, what is served meanwhile, bytes and seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from costmodel.change.joined import joined
from costmodel.change.loading import read_s
from costmodel.change.transfer import from_peers, transfer_s
from costmodel.change.weights import Weights, expert_bytes, weights_by_chip
from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.layout import Layout, Replica
from costmodel.question.instance import Instance
from solver.move.bundles import Part
from solver.move.order import Order, Orders
from solver.move.running import standing
from topology.errors import InstanceError, Problem


@dataclass(frozen=True)
class Asked:
    """How a move is carried out.

    ``source``: where new replicas get their weights: ``host`` memory, ``peers`` that run, ``flash`` or ``disk``;
    ``start_s``: seconds of an engine's start beside that.
    """

    source: str = "host"
    start_s: float = 0.0

    @property
    def read_from(self) -> str:
        """The same where no replica runs that could send them."""
        return "host" if self.source == "peers" else self.source


@dataclass(frozen=True)
class Step:
    """Replicas by their chips that stop, start, or change while they run; what that takes and leaves.

    ``moved_bytes``: weights that go to chips which did not hold them; ``read_bytes``: all that is read, with what
    engines that restart held before. ``seconds``: until requests in flight have ended, weights are there and
    engines have started (``None``: a source has no known speed). ``during``: while it goes on, ``after`` it.
    """

    stop: tuple[Replica, ...]
    start: tuple[Replica, ...]
    live: tuple[Replica, ...]
    moved_bytes: float
    read_bytes: float
    drain_s: float
    load_s: float | None
    start_s: float
    during: Evaluation
    after: Evaluation

    @property
    def seconds(self) -> float | None:
        """All of it, one after the other."""
        return None if self.load_s is None else self.drain_s + self.load_s + self.start_s


@dataclass(frozen=True)
class Steps:
    """A move in steps. ``first``: what runs before them (without what failed); ``order`` of the exchanges.

    ``stays``: replicas that nothing happens to.
    """

    first: Evaluation
    steps: tuple[Step, ...]
    order: Order
    stays: int

    @property
    def least_requests_per_s(self) -> float:
        """What is served at the worst moment, by the evaluator."""
        states = [
            self.first,
            *(state for step in self.steps for state in (step.during, step.after)),
        ]
        return min(state.priced.requests_per_s for state in states)


class Walk:
    """Makes the steps from one layout to another, both on chips of ``through``'s cluster.

    ``through``: the question that every state in between is judged by; ``after`` is judged by ``instance``.
    """

    def __init__(
        self,
        instance: Instance,
        through: Instance,
        layouts: tuple[Layout, Layout],
        asked: Asked,
    ) -> None:
        self.instance, self.through, self.asked = instance, through, asked
        self.before, self.after = layouts
        self.each = expert_bytes(instance)
        usable = instance.cluster.usable_ids
        self.had = {
            chip: held for chip, held in weights_by_chip(self.before).items() if chip in usable
        }
        self.judged = evaluate(instance, self.after)
        self.wanted = weights_by_chip(self.after, self.judged.priced)
        self.runs = [self.before.replicas[at] for at in standing(instance, self.before)]
        self.first = self._judge(self.runs, ())
        if self.runs and not self.first.priced.replicas:
            listed = "; ".join(str(violation) for violation in self.first.violations[:3])
            raise InstanceError(Problem("the running layout", f"cannot be priced: {listed}"))
        #: replicas that go on: old and new decision
        self.live: list[tuple[Replica, Replica]] = []
        by_chips = {one.chips: one for one in self.runs}
        self.new: list[Replica] = []
        for one in self.after.replicas:
            old = by_chips.get(one.chips)
            if old is not None and _goes_on(old, one):
                self.live.append((old, one))
            else:
                self.new.append(one)
        going = {old.chips for old, _ in self.live}
        self.old = [one for one in self.runs if one.chips not in going]

    @property
    def steps(self) -> Steps:
        """Exchanges in the best order, then what changes in replicas that run."""
        rate = {
            one.chips: float(price.service.requests_per_s)
            for one, price in [
                *zip(self.after.replicas, self.judged.priced.replicas, strict=True),
                *zip(self.runs, self.first.priced.replicas, strict=True),
            ]
        }
        fresh = {
            one.chips: float(price.service.requests_per_s)
            for one, price in zip(self.after.replicas, self.judged.priced.replicas, strict=True)
        }
        stays = [_part(old, rate[old.chips]) for old, _ in self.live]
        orders = Orders(
            stays,
            [_part(one, rate[one.chips]) for one in self.old],
            [_part(one, fresh[one.chips]) for one in self.new],
        )
        order = orders.best(self.through.scenario.rate or 0.0)
        going = [old for old, _ in self.live]
        old, started = list(self.old), list[Replica]()
        found: list[Step] = []
        state = self.first
        for exchange in order.exchanges:
            stop = [self.old[at] for at in exchange.stop]
            start = [self.new[at] for at in exchange.start]
            running = [*going, *old], list(started)
            old = [one for one in old if one not in stop]
            during = self._judge([*going, *old], started) if stop else state
            drain = self._drain_s(stop, running, state)
            moved, read, load = self._load(start, ([*going, *old], started))
            started += start
            last = not self._changes() and len(found) + 1 == len(order.exchanges)
            state = self.judged if last else self._judge([*going, *old], started)
            start_s = self.asked.start_s if start else 0.0
            found.append(
                Step(tuple(stop), tuple(start), (), moved, read, drain, load, start_s, during, state)
            )  # fmt: skip
        if self._changes():
            changed = [one for _, one in self._changes()]
            moved = sum(
                self.wanted[chip].fresh(self.had.get(chip), self.each)
                for one in changed
                for chip in one.chips
            )
            load = self._load_s(changed, (going, started), kept=True)
            found.append(
                Step((), (), tuple(changed), moved, moved, 0.0, load, 0.0, state, self.judged)
            )
        return Steps(self.first, tuple(found), order, len(self.live) - len(self._changes()))

    @cached_property
    def plain_restart(self) -> tuple[float, float | None]:
        """Bytes and seconds where everything stops, every chip reads its weights, and everything starts."""
        size = {chip: held.fresh(None, self.each) for chip, held in self.wanted.items()}
        load = read_s(self.instance, size, self.asked.read_from)
        drain = self._drain_s(self.runs, (self.runs, []), self.first)
        return sum(size.values()), None if load is None else drain + load + self.asked.start_s

    @cached_property
    def moved_bytes(self) -> float:
        """Weights that go to chips which do not hold them yet."""
        return sum(held.fresh(self.had.get(chip), self.each) for chip, held in self.wanted.items())

    def _changes(self) -> list[tuple[Replica, Replica]]:
        return [
            (old, new)
            for old, new in self.live
            if old.shape != new.shape
            or old.rank_sequences() != new.rank_sequences()
            or any(self.wanted[chip].experts != self.had[chip].experts for chip in new.chips)
        ]

    def _judge(self, old: Sequence[Replica], new: Sequence[Replica]) -> Evaluation:
        """The evaluator's word on replicas of both layouts together."""
        parts = [
            self.before.model_copy(update={"replicas": tuple(old)}),
            self.after.model_copy(update={"replicas": tuple(new)}),
        ]
        return evaluate(self.through, joined(parts))

    def _drain_s(
        self,
        stop: Sequence[Replica],
        running: tuple[Sequence[Replica], Sequence[Replica]],
        state: Evaluation,
    ) -> float:
        """Seconds until the last request on replicas that stop has ended, begun just before."""
        slowest = 0.0
        tokens = self.through.workload.output_tokens
        ends = {one.chips for one in stop}
        for at, replica in enumerate([*running[0], *running[1]]):
            if replica.chips in ends and at < len(state.priced.replicas):
                service = state.priced.replicas[at].service
                took = float(service.tpot_s) * tokens + state.priced.ttft_s(at)
                slowest = max(slowest, took)
        return slowest

    def _load(
        self, start: Sequence[Replica], running: tuple[Sequence[Replica], Sequence[Replica]],
    ) -> tuple[float, float, float | None]:  # fmt: skip
        """Bytes moved, bytes read, and seconds of that."""
        moved = read = 0.0
        for replica in start:
            for chip in replica.chips:
                moved += self.wanted[chip].fresh(self.had.get(chip), self.each)
                read += self.wanted[chip].fresh(None, self.each)
        return moved, read, self._load_s(start, running, kept=False)

    def _load_s(
        self, start: Sequence[Replica], running: tuple[Sequence[Replica], Sequence[Replica]],
        *, kept: bool,
    ) -> float | None:  # fmt: skip
        """Seconds in which replicas get their weights; ``kept``: chips keep what they hold."""
        there: dict[str, Weights] = dict(self.had) if kept else {}
        if self.asked.source != "peers":
            size = {
                chip: self.wanted[chip].fresh(there.get(chip), self.each)
                for one in start
                for chip in one.chips
            }
            return read_s(self.instance, size, self.asked.source)
        held = {chip: self.had[chip] for one in running[0] for chip in one.chips}
        held |= {chip: self.wanted[chip] for one in running[1] for chip in one.chips}
        sent = from_peers(start, [*running[0], *running[1]], (self.wanted, held, there), self.each)
        over = transfer_s(self.through, sent)
        rest = read_s(self.instance, sent.left, self.asked.read_from)
        return None if over is None or rest is None else max(over, rest)


def _goes_on(old: Replica, new: Replica) -> bool:
    """Whether an engine goes on: the same role, widths, layers and slots, and no more sequences than before."""
    widths = [
        (r.role, r.shape.tp, r.shape.ep, r.shape.pp, r.shape.attention_dp) for r in (old, new)
    ]
    places = [(r.place_in_flight, [(s.tier, s.chip) for s in r.idle_kv]) for r in (old, new)]
    stages = [[(s.layers, s.chips, s.slot_key) for s in r.stages] for r in (old, new)]
    return (
        widths[0] == widths[1]
        and places[0] == places[1]
        and stages[0] == stages[1]
        and new.shape.batch <= old.shape.batch
    )


def _part(replica: Replica, rate: float) -> Part:
    kind = (replica.role, repr(replica.shape), round(rate, 9), len(replica.chips))
    return Part(replica.role, rate, frozenset(replica.chips), kind)
