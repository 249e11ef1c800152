"""Requests drawn from a table of hours: what the table says of each hour, and what cannot be drawn."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from costmodel.question.traffic.day import HOUR_S, Day, Hours, draw_day
from costmodel.question.traffic.description import BothLengths, Lengths
from costmodel.question.traffic.load import load_traffic, read_traffic
from costmodel.question.traffic.requests import Requests
from costmodel.question.traffic.reuse import known_before
from topology.catalogue import data_dir
from topology.errors import InstanceError

HEAD = "requests,input_tokens,output_tokens,known_prefix\n"
LENGTHS = BothLengths(input=Lengths(p50=900, p90=1800), output=Lengths(mean=60, std=50))


def drawn(folder: Path, table: str, seed: int = 0, **day: float) -> Requests:
    (folder / "h.csv").write_text(table)
    described = Day.model_validate({"hours": "h.csv", **day})
    return draw_day(described, Hours.read(folder / "h.csv"), LENGTHS, seed)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_ragpulse_day_hour_by_hour(seed: int) -> None:
    """Requests as published, means within the rounding of the table, ideal hits within half a point."""
    requests = load_traffic("ragpulse-day", seed=seed)
    table = Hours.read(data_dir("traffic") / "ragpulse_day_hours.csv")
    known = known_before(requests)
    hours = (requests.arrival_s // HOUR_S).astype(int)
    for hour in range(24):
        rows = hours == hour
        assert rows.sum() == table.requests[hour]
        assert requests.input_tokens[rows].mean() == pytest.approx(
            table.input_tokens[hour], abs=0.5
        )
        assert requests.output_tokens[rows].mean() == pytest.approx(
            table.output_tokens[hour], abs=0.5
        )
        share = known[rows].sum() / requests.input_tokens[rows].sum()
        assert share == pytest.approx(table.known_prefix[hour], abs=0.005)
    # the day's totals as published beside the table
    assert len(requests) == 537_600
    assert requests.input_tokens.sum() == pytest.approx(1_476_413_952, rel=5e-4)
    assert requests.output_tokens.sum() == pytest.approx(160_730_624, rel=5e-4)
    assert requests.longest <= 7_599
    assert requests.arrival_s[-1] < 24 * HOUR_S


def test_lengths_of_the_ragpulse_day_are_spread_as_its_file_says() -> None:
    requests, file = load_traffic("ragpulse-day"), read_traffic("ragpulse-day")
    assert file.lengths is not None
    for lengths, found in (
        (file.lengths.input, requests.input_tokens),
        (file.lengths.output, requests.output_tokens),
    ):
        for share, value in lengths.quantiles():
            # each hour is scaled to its own mean, and a day has 1,050 requests of their own
            assert np.quantile(found, share) == pytest.approx(value, rel=0.2)


def test_a_seed_says_the_requests(tmp_path: Path) -> None:
    table = HEAD + "9,700,40,0.3\n11,900,50,0.2\n"
    first, again, other = (drawn(tmp_path, table, seed, copies=4) for seed in (5, 5, 6))
    assert (first.arrival_s == again.arrival_s).all()
    assert list(first.blocks) == list(again.blocks)
    assert (first.arrival_s != other.arrival_s).any()


def test_what_prompts_share(tmp_path: Path) -> None:
    """A block has one size; the rest of a prompt is its own; blocks are whole prompts."""
    requests = drawn(tmp_path, HEAD + "30,700,40,0.3\n33,900,50,0.4\n", copies=3, block_tokens=16)
    sizes: dict[int, int] = {}
    uses: Counter[int] = Counter()
    for ids, own, given in zip(
        requests.blocks, requests.block_sizes, requests.input_tokens, strict=True
    ):
        assert sum(own) == given
        uses.update(ids)
        assert all(sizes.setdefault(one, size) == size for one, size in zip(ids, own, strict=True))
        assert all(size % 16 == 0 for size in own[:-1])
    assert all(uses[ids[-1]] == 1 for ids in requests.blocks)
    # each of three copies has a stem of its own
    assert len({ids[0] for ids in requests.blocks if len(ids) > 1}) == 3


def test_an_hour_without_known_prefixes_or_requests(tmp_path: Path) -> None:
    requests = drawn(tmp_path, HEAD.replace(",known_prefix", "") + "0,1,1\n6,700,40\n", copies=2)
    assert len(requests) == 6
    assert not len(requests.blocks)
    assert requests.arrival_s.min() >= HOUR_S


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("requests,input_tokens\n1,2\n", r"h.csv:1: columns missing: output_tokens"),
        (HEAD + "4,9,9,0.1\n4,nan,9,0.1\n", r"h.csv:3: input_tokens: expected a number from 1"),
        (HEAD + "4,9,9,1.5\n", r"h.csv:2: known_prefix: expected a number from 0 to 1"),
        (HEAD + "-4,9,9,0\n", r"h.csv:2: requests: expected a whole number from 0"),
        (HEAD + "0,9,9,0\n", r"0 requests; expected 1 to 1,000,000"),
        (HEAD + "900000,9,9,0\n900000,9,9,0\n", r"1,800,000 requests; expected 1 to"),
        (HEAD + "3,9,9,0\n", r"3 requests are no whole number for each of 2 copies"),
        (HEAD + "9,99,99,0\n" + "1,99,99,0\n" * 3, r"h.csv:3: 1 requests are too few for 4 copies"),
        (HEAD + "4,5000,9,0\n", r"h.csv:2: input_tokens: no lengths up to \d+ have a mean of 5000"),
        (HEAD * 2, r"h.csv:2: requests: expected"),
        (HEAD + "4,9,9,0\n" * 800, r"h.csv:746: more than 744 hours"),
    ],
)
def test_tables_that_are_refused(table: str, message: str, tmp_path: Path) -> None:
    copies = 4 if "1,99,99" in table else 2
    with pytest.raises(InstanceError, match=message):
        drawn(tmp_path, table, copies=copies, longest=3000)


def test_a_day_needs_lengths_and_nothing_else_beside(tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text(HEAD + "4,90,9,0\n")
    day = "day: {hours: h.csv, copies: 2"
    lengths = "lengths: {input: {fixed: 90}, output: {fixed: 9}}\n"
    for text, message in (
        (f"{day}}}\n", "day and lengths"),
        (f"{day}}}\narrivals: {{rate: 2}}\n{lengths}", "day and lengths"),
        (f"{day}, shift: 2 h}}\n{lengths}", "expected at most half an hour"),
        (f"{day}, copies_: 3}}\n{lengths}", "copies_"),
    ):
        (tmp_path / "t.yaml").write_text(text)
        with pytest.raises(InstanceError, match=message):
            load_traffic(str(tmp_path / "t.yaml"))
    (tmp_path / "t.yaml").write_text(f"{day}}}\n{lengths}")
    assert len(load_traffic(str(tmp_path / "t.yaml"))) == 4
