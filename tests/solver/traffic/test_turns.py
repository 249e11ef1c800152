"""The order in which ways to serve traffic are looked at."""

from types import SimpleNamespace

import pytest

from costmodel.replay.targets import Targets
from solver.traffic.few import Few
from solver.traffic.turns import Turns
from topology.errors import NoFeasibleLayout


class Way:
    """A way that promises a fleet."""

    def __init__(self, ttft_s, usd_per_hour):
        self.ttft_s, self.usd_per_hour, self.failed = ttft_s, usd_per_hour, None
        self.order, self.shortest = "first-come", None
        self.judge = SimpleNamespace(runs=())

    def promises(self):
        return self.usd_per_hour, 0.0


def with_shortest(way, usd_per_hour):
    """The same way with another that promises so much with the shortest prompt first."""
    way.shortest = Way(way.ttft_s, usd_per_hour)
    way.shortest.order = "shortest"
    return way


def cheap_enough(usd_per_hour):
    return False


def timed(order):
    """What is looked at by the time to a first token."""
    return [(way, hurry) for way, hurry in order if not isinstance(hurry, Few)]


def turns_of(*ways, elapsed_s=0.0, fullest=False, spare=0):
    turns = Turns.__new__(Turns)
    clock = SimpleNamespace(limit_s=60.0, elapsed_s=elapsed_s)
    turns.how = SimpleNamespace(clock=clock, fullest=fullest)
    turns.ways, turns.chunks, turns._promised = list(ways), [], {}
    turns.free, turns._small = [], {}
    turns.asked = SimpleNamespace(targets=Targets(5.0, 0.05, 0.99), spare=spare)
    return turns


@pytest.mark.parametrize(("ttft_s", "apt"), [(3.0, 0.6), (6.0, 0.35)])
def test_the_cheapest_replicas_come_second_where_they_leave_little_time_to_wait(ttft_s, apt):
    slow, dear = Way(ttft_s, 10.0), Way(ttft_s, 20.0)
    every = list(turns_of(slow, dear).one_by_one(lambda: False, lambda: dear, cheap_enough))
    order = timed(every)
    assert order[:4] == [(slow, apt), (slow, 1.0), (dear, apt), (dear, 1.0)]
    assert order[4][0] is dear
    assert len(order) == len(set(order)) == 8
    # small fleets come before other ways are opened, and last once more
    assert [at for at, one in enumerate(every) if one not in order] == [0, 1, 10, 11]
    assert every[:2] == every[-2:]
    assert [way for way, _ in every[-2:]] == [slow, dear]


def test_replicas_that_leave_time_to_wait_are_looked_at_once():
    dear, cheap = Way(2.0, 20.0), Way(2.0, 10.0)
    order = timed(turns_of(dear, cheap).one_by_one(lambda: False, lambda: None, cheap_enough))
    assert order[:2] == [(cheap, 1.0), (dear, 1.0)]
    assert sum(hurry == 1.0 for _, hurry in order) == 2


@pytest.mark.parametrize(
    ("elapsed_s", "stands", "opened"),
    [(20.0, False, True), (30.0, False, False), (30.0, True, True)],
)
def test_what_is_open_is_looked_at_where_it_is_late_and_nothing_stands(elapsed_s, stands, opened):
    """Opening a way takes a search of its own: on large tori that was all the time there is."""
    first, second = Way(3.0, 20.0), Way(3.0, 10.0)
    turns = turns_of(first, elapsed_s=elapsed_s)
    turns.chunks = [4096]

    def another():
        turns.chunks.clear()
        turns.ways.append(second)
        return second

    turns._open = another
    order = timed(turns.one_by_one(lambda: False, lambda: first if stands else None, cheap_enough))
    assert order[0][0] is (second if opened else first)
    assert (second in {way for way, _ in order}) == opened


def test_for_what_carries_most_ways_are_opened_one_by_one_and_without_hope_left_out():
    first, hopeless, last = Way(6.0, float("inf")), Way(2.0, float("inf")), Way(2.0, 30.0)
    turns, more = turns_of(first, fullest=True), [hopeless, last]
    turns.chunks = [4096, 2048]

    def another():
        turns.chunks.pop(0)
        return more.pop(0)

    turns._open = another
    order = turns.one_by_one(lambda: False, lambda: None, cheap_enough)
    assert timed(next(order) for _ in range(3)) == [(first, 0.35), (first, 1.0)]
    assert len(more) == 2, "no way is opened before the first was looked at"
    assert list(order) == [(last, 1.0)]


def test_for_what_carries_most_no_way_is_opened_once_one_has_an_answer():
    turns = turns_of(Way(2.0, 10.0), fullest=True)
    turns.chunks = [4096]
    assert len(timed(turns.one_by_one(lambda: True, lambda: None, cheap_enough))) == 1
    assert turns.chunks


def test_ways_without_a_steady_answer_are_looked_at_for_small_fleets_alone():
    first, free = Way(2.0, 10.0), Way(2.0, 10.0)
    turns = turns_of(first)
    turns.free = [free]
    order = list(turns.one_by_one(lambda: False, lambda: None, cheap_enough))
    assert [way for way, hurry in order if isinstance(hurry, Few)] == [first, free, first, free]
    assert all(way is first for way, _ in timed(order))
    free.failed = NoFeasibleLayout("none is steady")
    alone = turns_of(free)
    assert [
        isinstance(hurry, Few)
        for _, hurry in alone.one_by_one(lambda: False, lambda: None, cheap_enough)
    ] == [True] * 2


def first_two(turns):
    """Which ways are looked at, each once, before others with other replicas."""
    return list(
        dict.fromkeys(
            way for way, _ in timed(turns.one_by_one(lambda: False, lambda: None, cheap_enough))
        )
    )


def test_long_prompts_are_put_off_where_that_promises_to_be_cheaper():
    dear, cheap = with_shortest(Way(2.0, 20.0), 20.0), with_shortest(Way(2.0, 15.0), 10.0)
    assert first_two(turns_of(dear, cheap)) == [cheap.shortest, cheap, dear, dear.shortest]


def test_long_prompts_are_not_put_off_where_that_promises_no_less_than_what_stands():
    first = with_shortest(Way(2.0, 20.0), 12.0)
    for stands, looked_at in ((12.0, [first]), (13.0, [first.shortest, first])):
        order = turns_of(first).one_by_one(
            lambda: False, lambda: None, lambda usd, stands=stands: usd >= stands
        )
        assert list(dict.fromkeys(way for way, _ in timed(order))) == looked_at


def test_after_a_loss_requests_come_first_as_they_come():
    dear, cheap = with_shortest(Way(2.0, 20.0), 20.0), with_shortest(Way(2.0, 15.0), 10.0)
    assert first_two(turns_of(dear, cheap, spare="node")) == [
        cheap, dear, cheap.shortest, dear.shortest,
    ]  # fmt: skip


def test_a_way_whose_first_tokens_leave_time_comes_first_as_requests_come():
    easy = with_shortest(Way(0.1, 20.0), 10.0)
    assert first_two(turns_of(easy)) == [easy, easy.shortest]


def test_for_what_carries_most_long_prompts_are_put_off_last():
    first, last = with_shortest(Way(2.0, 30.0), 20.0), with_shortest(Way(2.0, 30.0), float("inf"))
    assert first_two(turns_of(first, last, fullest=True)) == [first, first.shortest]


def test_ways_without_a_steady_answer_have_small_fleets_alone_in_either_order():
    first, free = Way(2.0, 10.0), with_shortest(Way(2.0, 10.0), 5.0)
    turns = turns_of(first)
    turns.free = [free]
    order = list(turns.one_by_one(lambda: False, lambda: free, cheap_enough))
    assert [way for way, hurry in order if isinstance(hurry, Few)][-1] is free.shortest
    free.failed = NoFeasibleLayout("none is steady")
    again = turns_of(first)
    again.free = [free]
    for own in (order, again.one_by_one(lambda: False, lambda: free, cheap_enough)):
        looked_at = {way for way, _ in timed(own)}
        assert free.shortest not in looked_at
    assert looked_at == {first}


def test_other_replicas_are_looked_at_in_the_order_of_prompts_that_found_the_best():
    way = with_shortest(Way(3.0, 20.0), 10.0)
    order = timed(turns_of(way).one_by_one(lambda: False, lambda: way.shortest, cheap_enough))
    assert [own for own, hurry in order if hurry in (0.35, 0.2)] == [
        way.shortest, way.shortest, way, way,
    ]  # fmt: skip
