"""Traces and descriptions of traffic: what is read, what is refused, what is drawn."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from costmodel.question.traffic import table, trace
from costmodel.question.traffic.description import Arrivals, Lengths
from costmodel.question.traffic.load import at_random, load_traffic, traffic_names
from costmodel.question.traffic.requests import Requests
from costmodel.question.traffic.trace import read_trace
from costmodel.question.workload import Workload
from costmodel.replay.prefix_cache import PrefixCache
from topology.errors import InstanceError

HEAD = "t_s,input_tokens,output_tokens\n"


@pytest.mark.parametrize("name", traffic_names())
def test_shipped_traffic_is_read(name: str) -> None:
    found = load_traffic(name)
    assert len(found) > 1000
    assert (np.diff(found.arrival_s) >= 0).all()
    assert found.input_tokens.min() >= 1
    assert found.output_tokens.min() >= 1


def test_figures_of_the_shipped_traces() -> None:
    """Requests and mean lengths as their publishers' files have them."""
    azure = load_traffic("azure-conversation-2023")
    assert len(azure) == 9_739
    assert azure.input_tokens.mean() == pytest.approx(1237.2, abs=0.1)
    assert azure.output_tokens.mean() == pytest.approx(221.3, abs=0.1)
    mooncake = load_traffic("mooncake-conversation")
    assert len(mooncake) == 5_606
    assert mooncake.input_tokens.mean() == pytest.approx(12_934, abs=1)
    cache = PrefixCache()
    hit = 0
    for ids, sizes in zip(mooncake.blocks, mooncake.block_sizes, strict=True):
        hit += cache.known(ids, sizes)
        cache.use(ids, sizes)
    # a cache that never forgets and starts empty
    assert hit / mooncake.input_tokens.sum() == pytest.approx(0.347, abs=0.001)


def test_batches_are_spread_over_their_time() -> None:
    times = load_traffic("mooncake-conversation").arrival_s
    assert len(np.unique(times)) > 0.99 * len(times)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("t_s,input_tokens\n0,1\n", 1, "columns missing: output_tokens"),
        (HEAD + "0,5,5\n2,5,5\n1,5,5\n", 4, "sort the requests by time"),
        (HEAD + "0,5,5\n1,-5,5\n", 3, "input_tokens: expected a whole number from 1, got '-5'"),
        (HEAD + "0,5,5\n1,5,0\n", 3, "output_tokens: expected a whole number from 1, got '0'"),
        (HEAD + "nan,5,5\n", 2, "t_s: expected seconds from 0, got 'nan'"),
        (HEAD + "inf,5,5\n", 2, "t_s: expected seconds from 0, got 'inf'"),
        (HEAD + "-1,5,5\n", 2, "t_s: expected seconds from 0"),
        (HEAD + "0,5,5\n1,5\n", 3, "2 cells under 3 columns"),
        (HEAD + "0,5.5,5\n", 2, "input_tokens: expected a whole number"),
        (HEAD + "0,9999999999,5\n", 2, "input_tokens: expected a whole number"),
        ("t_s,input_tokens,output_tokens,session\n0,5,5,\n", 2, "session is empty"),
        ("t_s,input_tokens,output_tokens,hash_ids\n0,5,5,a b\n", 2, "hash_ids"),
        ("# block_tokens: x\n" + HEAD + "0,5,5\n", 1, "block_tokens: expected a whole number"),
    ],
)
def test_a_bad_trace_is_refused_at_its_line(
    text: str, line: int, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InstanceError) as refused:
        read_trace(path)
    assert [problem.place for problem in refused.value.problems] == [f"{path}:{line}"]
    assert message in str(refused.value)


def test_all_problems_of_a_trace_are_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(HEAD + "".join(f"{i},0,1\n" for i in range(100)))
    with pytest.raises(InstanceError) as refused:
        read_trace(path)
    assert len(refused.value.problems) == 10


def test_too_many_requests_are_refused_at_their_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "MOST_REQUESTS", 50)
    path = tmp_path / "long.csv.gz"
    path.write_bytes(gzip.compress((HEAD + "1,2,3\n" * 60).encode()))
    with pytest.raises(InstanceError, match=r"long.csv.gz:52: more than 50 requests"):
        read_trace(path)


def test_a_file_that_unpacks_to_much_more_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "MOST_TEXT", 10_000)
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress((HEAD + "1,2,3\n" * 60_000).encode()))
    with pytest.raises(InstanceError, match="more than 10,000 characters"):
        read_trace(path)


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08broken", b"", b"not gzip"])
def test_a_broken_archive_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.csv.gz"
    path.write_bytes(content)
    with pytest.raises(InstanceError):
        read_trace(path)


def test_unknown_traffic_names_what_there_is() -> None:
    with pytest.raises(InstanceError, match="known: azure-code-2023"):
        load_traffic("nonesuch")


def test_described_lengths_have_the_quantiles_that_were_given() -> None:
    rng = np.random.default_rng(0)
    drawn = Lengths(p50=1020, p90=2600, p99=4100).draw(200_000, rng)
    for share, value in ((0.5, 1020), (0.9, 2600), (0.99, 4100)):
        assert np.quantile(drawn, share) == pytest.approx(value, rel=0.02)
    drawn = Lengths(mean=210, std=160).draw(200_000, rng)
    assert drawn.mean() == pytest.approx(210, rel=0.02)
    assert drawn.std() == pytest.approx(160, rel=0.03)


@pytest.mark.parametrize(("process", "cv"), [("poisson", 1.0), ("gamma", 3.0), ("constant", 0.0)])
def test_arrivals_have_their_rate_and_variation(process: str, cv: float) -> None:
    arrivals = Arrivals.model_validate({"process": process, "rate": 20.0, "cv": cv or 1.0})
    gaps = arrivals.gaps_s(400_000, np.random.default_rng(0))
    assert gaps.mean() == pytest.approx(0.05, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, abs=0.05)


def test_a_rate_stretches_every_gap_alike() -> None:
    plain, fast = load_traffic("azure-code-2023"), load_traffic("azure-code-2023", rate=50.0)
    assert fast.rate == pytest.approx(50.0)
    np.testing.assert_allclose(fast.arrival_s * fast.rate, plain.arrival_s * plain.rate)


def test_a_split_deals_out_each_request_once_whatever_it_is() -> None:
    count, rng = 20_000, np.random.default_rng(0)
    whole = Requests(
        np.arange(count, dtype=float), rng.integers(1, 1000, count), rng.integers(1, 100, count),
        np.zeros(count, dtype=np.int64),
    )  # fmt: skip
    parts = whole.split((0.2, 0.5, 0.3), 4)
    assert np.array_equal(
        np.sort(np.concatenate([own.arrival_s for own in parts])), whole.arrival_s
    )
    for own, share in zip(parts, (0.2, 0.5, 0.3), strict=True):
        assert len(own) / count == pytest.approx(share, abs=0.01)
        assert own.input_tokens.mean() == pytest.approx(whole.input_tokens.mean(), rel=0.03)
        assert np.array_equal(own.input_tokens, whole.input_tokens[own.arrival_s.astype(int)])
    again = whole.split((0.2, 0.5, 0.3), 4)
    assert all(np.array_equal(a.arrival_s, b.arrival_s) for a, b in zip(parts, again, strict=True))
    assert len(whole.split((1.0, 0.0), 1)[0]) == count


def test_requests_by_chance_are_refused_where_a_replay_could_not_tell_their_times_apart() -> None:
    workload = Workload(input_tokens=100, output_tokens=10)
    assert at_random(workload, 1e-6, 0).rate == pytest.approx(1e-6)
    with pytest.raises(InstanceError, match=r"from 0\.000001 per second on, got 1e-07"):
        at_random(workload, 1e-7, 0)
