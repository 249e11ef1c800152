"""The table of docs/apart.md: a row for every question, and rows that are what a run computes."""

from __future__ import annotations

import re

import pytest

from benchmarks.apart import BEGIN, END, HEAD, PAGE, PROFILES, QUESTIONS, row


def rows() -> list[str]:
    """The lines of the table on the page."""
    return PAGE.read_text().split(BEGIN)[1].split(END)[0].splitlines()


def test_the_page_has_a_row_for_every_question_with_gaps_of_one_per_cent_at_most() -> None:
    found = rows()
    assert found[: len(HEAD)] == HEAD
    asked = [
        f"| {cluster} | {model}, {tpot * 1000:g} ms | {profile} |"
        for cluster, model, tpot in QUESTIONS
        for profile in PROFILES
    ]
    assert [
        line[: len(start)] for line, start in zip(found[len(HEAD) :], asked, strict=True)
    ] == asked
    gaps = [float(gap) for line in found for gap in re.findall(r"\d \((\d+\.\d)%\)", line)]
    assert len(gaps) == 3 * len(asked)
    assert max(gaps) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "profile"), [(question, profile) for question in QUESTIONS for profile in PROFILES]
)
def test_a_row_is_what_a_run_computes(question: tuple[str, str, float], profile: str) -> None:
    """If this fails: make bench-apart"""
    assert row(*question, profile) in rows()
