"""Layers for unlike machines: the placement through which most tokens flow, and how far more could flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations

from costmodel.flow.judge import Range, problems, tokens_per_s
from costmodel.flow.question import FlowQuestion
from solver.clock import Clock, check_seed
from solver.flow.borders import Borders
from solver.flow.cover import Cover
from solver.flow.exact import settle, small
from solver.flow.groups import Group, groups_of, kinds_of, together
from solver.flow.network import Network, Ranges
from solver.flow.polish import polish
from solver.flow.rows import Rows
from solver.flow.sections import sections
from solver.flow.stand import stand
from topology.errors import NoFeasibleLayout, VerificationError

#: a bound this close above the value, relatively, is that value but for rounding
SAME = 1e-6
#: relative width between a flow that was reached and one that was not, at which the search ends
_CLOSE = 1e-4
#: rooms whose orders are all tried
_MOST_ROOMS = 3
#: rows whose links did not carry the flow, before the flow is given up
_MOST_MISSES = 40
#: small changes tried at the end, and the work for the last word, seconds of an idle core
_POLISH, _SETTLE_S = 3000, 60.0
#: the same where rooms are so many that rows do not see their links
_POLISH_LINKS = 20_000
#: flows tried between value and bound for what slow links exclude
_HALVINGS = 12


@dataclass(frozen=True)
class FlowFound:
    """A placement, what the judge says flows through it, and what at most flows through any (tokens/s)."""

    placement: dict[int, Range]
    tokens_per_s: float
    bound_tokens_per_s: float
    plain_bound_tokens_per_s: float
    wall_s: float

    @property
    def gap(self) -> float | None:
        """Bound over value, less one; ``None`` where nothing flows."""
        if self.tokens_per_s <= 0:
            return None
        return self.bound_tokens_per_s / self.tokens_per_s - 1

    @property
    def optimal(self) -> bool:
        """Whether no placement lets more flow (to a millionth)."""
        return self.gap is not None and self.gap <= SAME


class FlowSearch:
    """One search. ``best`` is what there is of an answer at any moment."""

    def __init__(self, question: FlowQuestion, *, clock: Clock, seed: int = 0, gap: float = 0.0):
        """Raises ``NoFeasibleLayout`` where the nodes together cannot hold the model."""
        check_seed(seed)
        self.question, self.clock, self.seed, self.gap = question, clock, seed, gap
        self.network = Network(question)
        self.kinds = kinds_of(question)
        self.cover = Cover(self.kinds, question.model.layers, clock=clock, seed=seed)
        ends = [
            sum(map(of, range(len(question.nodes)))) for of in (question.entry, question.leaving)
        ]
        self.bound = min(self.cover.plain, *ends)
        chain = self._chain()
        self._held = self.network.flow(chain), chain

    @property
    def flow(self) -> float:
        """Tokens/s of the best placement so far."""
        return self._held[0]

    def _chain(self) -> Ranges:
        """Nodes one after the other, each with all it can hold."""
        found: list[tuple[int, int] | None] = []
        first, layers = 0, self.question.model.layers
        for node in range(len(self.question.nodes)):
            last = min(layers, first + self.question.most_layers(node)) - 1
            found.append((first, last) if first < layers else None)
            first = last + 1
        if first < layers:
            message = (
                f"all nodes together hold {first} layers; {self.question.model.name} has {layers}"
            )
            raise NoFeasibleLayout(message)
        return found

    def run(self) -> FlowFound:
        """Search until the bound is met, the gap is small enough or the time is over."""
        self.bound = min(self.bound, self.cover.tighten())
        groups = groups_of(self.question, self.kinds, self.bound)
        rooms = len({group.room for group in groups})
        if rooms > 1:
            self._rows(groups if rooms <= _MOST_ROOMS else together(groups))
        else:
            self._rows(groups)
        if not self._enough():
            many = rooms > _MOST_ROOMS and not small(self.question)
            tries = _POLISH_LINKS if many else _POLISH
            flow, ranges = polish(
                self.network, self._held[1], tries=tries, clock=self.clock, seed=self.seed
            )
            self._take(flow, ranges)
        self._borders()
        if not self._enough() and small(self.question):
            self.bound, found = settle(
                self.question,
                self.flow,
                self.bound,
                clock=self.clock,
                seed=self.seed,
                limit_s=_SETTLE_S,
            )
            if found is not None:
                self._take(self.network.flow(found), found)
        return self.best()

    def _borders(self) -> None:
        """Lower the bound by what slow links exclude: to the value if they do, else as far as a few halvings show."""
        borders = Borders(self.question, self.kinds, clock=self.clock, seed=self.seed)
        if self._enough():
            return
        low = self.flow * (1 + SAME / 2)
        if borders.exclude(low):
            self.bound = min(self.bound, low)
        for _ in range(_HALVINGS):
            middle = (low + self.bound) / 2
            if self._enough():
                break
            if borders.exclude(middle):
                self.bound = min(self.bound, middle)
            else:
                low = middle

    def best(self) -> FlowFound:
        """The best placement so far, judged. Raises ``VerificationError`` where the judge contradicts."""
        counted, ranges = self._held
        placement = {node: held for node, held in enumerate(ranges) if held is not None}
        wrong = problems(self.question, placement)
        if wrong:
            raise VerificationError(f"the search placed layers wrongly: {wrong[0]}")
        flow = tokens_per_s(self.question, placement)
        if abs(flow - counted) > SAME * max(flow, 1.0) + 1000 * self.network.unit:
            raise VerificationError(f"flow {flow:.9g} tokens/s, the search counted {counted:.9g}")
        return self._found(placement, flow)

    def judge(self, placement: dict[int, Range]) -> FlowFound:
        """A placement of somebody else, with the bound. Raises ``InstanceError`` where it cannot be run."""
        flow = tokens_per_s(self.question, placement)
        self.bound = min(self.bound, self.cover.tighten())
        return self._found(placement, flow)

    def _found(self, placement: dict[int, Range], flow: float) -> FlowFound:
        bound = min(self.bound, self.cover.bound)
        if flow > bound * (1 + SAME):
            raise VerificationError(f"flow {flow:.9g} above its bound {bound:.9g} tokens/s")
        return FlowFound(placement, flow, max(flow, bound), self.cover.plain, self.clock.elapsed_s)

    def _enough(self) -> bool:
        return self.bound <= self.flow * (1 + max(SAME, self.gap)) or self.clock.over

    def _take(self, flow: float, ranges: Ranges) -> None:
        if flow > self.flow:
            self._held = flow, ranges

    def _rows(self, groups: list[Group]) -> None:
        """Rows of sections: first for the bound itself, then for flows between what was and was not reached."""
        attempt = self._attempts(groups)
        high = self.bound * (1 - 1e-9)
        if attempt(high):
            return
        while high - self.flow > _CLOSE * high and not self._enough():
            middle = (self.flow + high) / 2
            if not attempt(middle):
                high = middle

    def _attempts(self, groups: list[Group]) -> Callable[[float], bool]:
        """A function that tries to reach a flow and says whether it did."""
        rows = Rows(groups, self.network, clock=self.clock, seed=self.seed)
        rooms = sorted({group.room for group in groups})
        names = [kind.name for kind in self.kinds]

        def attempt(flow: float) -> bool:
            prices, total = self.cover.prices(flow)
            slack = total - self.question.model.layers
            if slack < -1e-6:
                return False
            own = [prices[names.index(group.kind.name)] for group in groups]
            found = sections(groups, own, slack + 1e-6, flow)
            for order in _orders(rooms):
                for _ in range(_MOST_MISSES):
                    row = None if self.clock.over else rows.find(found, order, flow)
                    if row is None:
                        break
                    ranges, carried = stand(row, groups, self.network)
                    self._take(self.network.flow(ranges), ranges)
                    if self.flow >= flow * (1 - 1e-8):
                        return True
                    slow = [(at, most) for at, most in carried if most < flow * (1 - 1e-9)]
                    if not slow:
                        break
                    for at, most in slow:
                        rows.learn(row, at, most)
            return False

        return attempt


def _orders(rooms: list[int]) -> Iterator[tuple[int, ...]]:
    """Rooms in every order, few or all of them."""
    for number in range(1, len(rooms) + 1):
        yield from permutations(rooms, number)


def place_layers(
    question: FlowQuestion, *, clock: Clock | None = None, seed: int = 0, gap: float = 0.0
) -> FlowFound:
    """The best placement found, with its bound. Raises ``NoFeasibleLayout``, ``InstanceError``."""
    return FlowSearch(question, clock=clock or Clock(), seed=seed, gap=gap).run()


def judged(
    question: FlowQuestion,
    placement: dict[int, Range],
    *,
    clock: Clock | None = None,
    seed: int = 0,
) -> FlowFound:
    """A given placement with the bound for its question. Raises ``NoFeasibleLayout``, ``InstanceError``."""
    return FlowSearch(question, clock=clock or Clock(), seed=seed).judge(placement)
