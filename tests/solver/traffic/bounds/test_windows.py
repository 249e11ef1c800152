"""Layers with a window do less for unlike lengths than for their mean: the bound for traffic counts on it."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.question.instance import Instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Workload
from costmodel.replay.targets import Targets
from solver.bounds.apart import whole_replicas
from solver.clock import Clock
from solver.known import Known
from solver.search import search
from solver.traffic.asked import Asked, questions
from solver.traffic.bounds.least_cost import least_cost
from solver.traffic.bounds.windows import least_share


def of_two_lengths(short: int, long: int) -> Requests:
    """As many short prompts as long ones, eleven tokens each in answer."""
    count = 100
    return Requests(
        np.arange(count) / 10.0,
        np.tile([short, long], count // 2),
        np.full(count, 11),
        np.zeros(count, dtype=np.int64),
    )


def asked(model: str, requests: Requests) -> Instance:
    workload = Workload(input_tokens=10, output_tokens=10)
    base = Scenario(model=model, cluster="hgx-h100", workload=workload)
    return questions(base, Asked(requests, Targets(1.0, 0.03, 1.0))).every


def test_without_windows_the_mean_context_is_exact() -> None:
    requests = of_two_lengths(100, 10_000)
    assert least_share(asked("llama-3.1-8b", requests), requests, 0.0) == 1.0


def test_a_window_is_read_as_often_as_contexts_reach_it() -> None:
    requests = of_two_lengths(100, 10_000)
    instance = asked("gpt-oss-20b", requests)
    (window,) = {
        attention.window
        for kind in instance.operations.kinds
        for attention in kind.attentions
        if attention.window
    }
    assert 111 < window < 5000
    # of a short request 100 to 111 entries are read, of a long one the window; half of the steps are of each
    read = ((100 + 111) / 2 + window) / 2 / window
    kept = (111 + window) / 2 / window
    # a prompt token of a long prompt meets the window, as it does at the mean; a short prompt has 1 % of them
    assert least_share(instance, requests, 0.0) == pytest.approx(read * kept, rel=0.02)


def test_alike_contexts_beyond_the_window_are_exact() -> None:
    requests = of_two_lengths(9_000, 10_000)
    found = least_share(asked("gpt-oss-20b", requests), requests, 0.0)
    assert found == pytest.approx(1.0, abs=0.01)


def test_a_rate_that_layouts_may_serve_beyond_their_prices_needs_no_chip_more() -> None:
    requests = of_two_lengths(100, 10_000)
    workload = Workload(input_tokens=10, output_tokens=10)
    base = Scenario(model="gpt-oss-20b", cluster="hgx-h100", workload=workload)
    own = questions(base, Asked(requests, Targets(None, 0.03, 1.0)))
    known = Known(own.every, Clock(), 0.0, 0, None)
    served = whole_replicas(known.items.best(), known.classes)
    assert served is not None
    # more than a chip serves by its price, less than it may serve of these
    a_chip = float(served[1])
    rate = a_chip * (1.0 + 1.0 / own.share) / 2
    wanted = Asked(requests.at_rate(rate), Targets(None, 0.03, 1.0))
    own = questions(base, wanted)
    assert own.share < 0.9
    found = search(own.every, clock=Clock(), gap=0.0, brief=True)
    bound = least_cost(own, wanted, found, Clock(), 0, 1).usd_per_m_output_tokens
    price = own.every.cluster.usable[0].chip.usd_per_hour
    chips = bound * rate * 3600.0 * own.every.workload.output_tokens / 1e6 / price
    assert chips == pytest.approx(1.0)
