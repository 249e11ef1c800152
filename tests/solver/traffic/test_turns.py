"""The order in which ways to serve traffic are looked at."""

from types import SimpleNamespace

import pytest

from costmodel.replay.targets import Targets
from solver.traffic.turns import Turns


class Way:
    """A way that promises a fleet."""

    def __init__(self, ttft_s, usd_per_hour):
        self.ttft_s, self.usd_per_hour = ttft_s, usd_per_hour
        self.judge = SimpleNamespace(runs=())

    def promises(self):
        return self.usd_per_hour, 0.0


def turns_of(*ways):
    turns = Turns.__new__(Turns)
    turns.ways, turns.chunks, turns._promised = list(ways), [], {}
    turns.asked = SimpleNamespace(targets=Targets(5.0, 0.05, 0.99))
    return turns


@pytest.mark.parametrize(("ttft_s", "apt"), [(3.0, 0.6), (6.0, 0.35)])
def test_the_cheapest_replicas_come_second_where_they_leave_little_time_to_wait(ttft_s, apt):
    slow, dear = Way(ttft_s, 10.0), Way(ttft_s, 20.0)
    order = list(turns_of(slow, dear).one_by_one(lambda: False, lambda: dear))
    assert order[:4] == [(slow, apt), (slow, 1.0), (dear, apt), (dear, 1.0)]
    assert order[4][0] is dear
    assert len(order) == len(set(order)) == 8


def test_replicas_that_leave_time_to_wait_are_looked_at_once():
    dear, cheap = Way(2.0, 20.0), Way(2.0, 10.0)
    order = list(turns_of(dear, cheap).one_by_one(lambda: False, lambda: None))
    assert order[:2] == [(cheap, 1.0), (dear, 1.0)]
    assert sum(hurry == 1.0 for _, hurry in order) == 2
