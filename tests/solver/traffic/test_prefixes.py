"""Answers for traffic whose prompts share prefixes: HBM alone, and a host tier where it pays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costmodel.question.scenario import Scenario
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Workload
from costmodel.replay.replay import Course, replay
from costmodel.replay.targets import Targets, judged
from rackfit.report.traffic_words import traffic_lines
from solver.answer import SearchResult
from solver.clock import Clock
from solver.rounds import Search
from solver.shapes.shapes import ROLES
from solver.traffic import prefixes
from solver.traffic.asked import Asked, questions
from solver.traffic.fleets import Fleets
from solver.traffic.prefixes import search_prefixes
from solver.traffic.search import search_traffic
from topology.errors import InstanceError

BLOCK, BLOCKS, DOCUMENTS = 512, 16, 600


def prompts(cluster: str = "hgx-h100", model: str = "llama-3.1-8b") -> tuple[Scenario, Requests]:
    """Questions about documents that come round: more of them than HBM holds."""
    rng = np.random.default_rng(5)
    documents = np.concatenate([rng.permutation(DOCUMENTS) for _ in range(4)])
    count = len(documents)
    requests = Requests(
        arrival_s=np.cumsum(rng.exponential(1 / 12, count)),
        input_tokens=np.full(count, BLOCK * BLOCKS + 200),
        output_tokens=rng.integers(50, 150, count),
        cached_tokens=np.zeros(count, dtype=np.int64),
        blocks=[[int(n) * BLOCKS + i for i in range(BLOCKS)] for n in documents],
        block_sizes=[[BLOCK] * BLOCKS] * count,
    )
    workload = Workload(input_tokens=10, output_tokens=10)
    return Scenario(model=model, cluster=cluster, workload=workload), requests


TARGETS = Targets(4.0, 0.2, 0.99)


@pytest.fixture(scope="module")
def kept() -> tuple[Asked, SearchResult]:
    """A question whose prompts share prefixes, and an answer with a host tier."""
    scenario, requests = prompts()
    asked = Asked(requests, TARGETS, prefixes="any")
    answer = search_traffic(scenario, replace(asked, prefixes="host"), clock=Clock(), gap=9.0)
    return asked, answer


def cheaper(answer: SearchResult, factor: float) -> SearchResult:
    """The same answer at another cost."""
    usd = answer.evaluation.usd_per_m_output_tokens
    assert usd is not None
    evaluation = replace(answer.evaluation, usd_per_m_output_tokens=usd * factor)
    return replace(answer, evaluation=evaluation)


@pytest.mark.parametrize(("factor", "tier"), [(1.2, "host"), (1.0, "hbm"), (0.9, "hbm")])
def test_a_host_tier_is_chosen_where_it_pays_and_the_answer_says_what_it_saves(
    kept: tuple[Asked, SearchResult],
    factor: float,
    tier: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, answer = kept
    asks: list[str] = []

    def found_for(_: Scenario, asked: Asked, **__: object) -> SearchResult:
        asks.append(asked.prefixes)
        return cheaper(answer, factor if asked.prefixes == "hbm" else 1.0)

    monkeypatch.setattr(prefixes, "search_traffic", found_for)
    found = prefixes.search_prefixes(prompts()[0], asked, clock=Clock(), gap=9.0)
    assert asks == ["hbm", "host"]
    assert found.traffic is not None
    use = found.traffic.prefixes
    assert use is not None
    assert use.tier == tier
    cost, alone = found.evaluation.usd_per_m_output_tokens, use.hbm_usd_per_m_output_tokens
    assert cost is not None
    assert alone is not None
    document = {
        "traffic": {
            **{k: v for k, v in vars(found.traffic).items() if k not in ("met", "targets")},
            "prefixes": vars(use),
        },
        "replay": found.traffic.met.as_dict(),
        "evaluation": {"usd_per_m_output_tokens": cost},
    }
    said = [line for line in traffic_lines(document) if line.startswith("prefixes")]
    assert len(said) == 1
    saved = f"that saves ${alone - cost:.4f} per million output tokens against HBM alone"
    assert (saved in said[0]) == (tier == "host")


def test_the_answer_is_that_of_a_replay_with_the_tier(kept: tuple[Asked, SearchResult]) -> None:
    asked, answer = kept
    assert answer.instance is not None
    assert answer.traffic is not None
    course = Course.of(answer.instance, routing="prefix-aware", host_tier=True)
    met = replay(answer.instance, answer.layout, asked.requests, course)
    assert judged(met, TARGETS).meets
    assert met.prefix_hit_rate == answer.traffic.met.prefix_hit_rate
    without = replace(course, host_tier=False)
    assert met.prefix_hit_rate > 0.5
    assert replay(answer.instance, answer.layout, asked.requests, without).prefix_hit_rate < 0.1
    # most of what is reused is found, and no more than there is
    use = prefixes._best(asked, {"host": answer})
    assert use is not None
    assert use.traffic is not None
    assert use.traffic.prefixes is not None
    assert met.prefix_hit_rate <= use.traffic.prefixes.most_hit_rate + 1e-12
    entry = [one for one in answer.layout.replicas if one.role != "decode"]
    tier = answer.instance.cluster.chips[0].chip.tier("host")
    assert tier is not None
    bytes_ = sum(len(one.chips) for one in entry) * tier.bytes
    assert use.traffic.prefixes.host_bytes == pytest.approx(bytes_)


def test_steady_questions_leave_out_what_a_cache_that_never_forgets_has() -> None:
    scenario, requests = prompts()
    whole, kept = (
        questions(scenario, Asked(requests, TARGETS, prefixes=one)).every.workload
        for one in ("off", "hbm")
    )
    assert whole.spread is not None
    assert kept.spread is not None
    # three of four rounds are known but for what follows the document
    assert whole.spread.new_tokens == BLOCK * BLOCKS + 200
    assert kept.spread.new_tokens == pytest.approx(BLOCK * BLOCKS / 4 + 200)
    assert kept.spread.context == whole.spread.context


def test_what_has_no_prefixes_or_no_host_tier_is_refused() -> None:
    scenario, requests = prompts()
    with pytest.raises(InstanceError, match="no hash_ids"):
        search_prefixes(
            scenario, Asked(requests.whole_prompts(), TARGETS, prefixes="hbm"), clock=Clock()
        )
    other, requests = prompts("gaudi3")
    with pytest.raises(InstanceError, match="has a host tier: ask for hbm"):
        search_prefixes(other, Asked(requests, TARGETS, prefixes="host"), clock=Clock())


def test_replicas_on_which_a_long_prompt_is_late_alone_are_left_out() -> None:
    """One request in fifty has a hundred times the others' prompt: as many may not be late."""
    scenario, requests = prompts()
    count = len(requests)
    tokens = np.where(np.arange(count) % 50, 600, 60_000)
    long = replace(requests.whole_prompts(), input_tokens=tokens)
    asked = Asked(long.at_rate(40.0), Targets(60.0, 0.012))
    plain = Search(questions(scenario, asked).spread, Clock(), 0.5, 0, None)
    plain.run()
    needs = dict.fromkeys(ROLES, 1.0)
    free = Fleets(plain, asked.steady, asked.targets, 0)
    assert free.least(needs) is not None
    assert not free.slow
    assert free.long_one.input_tokens.tolist() == [60_000]
    strict = Fleets(plain, asked.steady, Targets(0.5, 0.012), 0)
    fleet = strict.least(needs)
    assert strict.slow
    rows = [plain.shapes.row(item.shape) for item, _ in fleet.stands] if fleet else []
    assert not any(
        ROLES[row["role"]] == "prefill" and (row["tp"], row["pp"]) in strict.slow for row in rows
    )
