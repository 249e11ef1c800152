"""Numbers in sentences: no power of ten, and no rounding that claims more than is known."""

from __future__ import annotations

import pytest

from rackfit.wording import at_least, at_most, counted
from topology.quantity import figure


@pytest.mark.parametrize(
    ("value", "digits", "towards", "text"),
    [
        (2440.0, 3, "nearest", "2,440"),
        (43.567, 4, "nearest", "43.57"),
        (0.0012345, 3, "nearest", "0.00123"),
        (999.96, 4, "nearest", "1,000"),
        (8.7001, 3, "up", "8.71"),
        (8.7, 3, "up", "8.7"),
        (0.1 + 0.2, 1, "up", "0.3"),
        (0.8759, 3, "down", "0.875"),
        (1e6, 6, "nearest", "1,000,000"),
        (0.0, 3, "up", "0"),
        (float("inf"), 3, "nearest", "inf"),
    ],
)
def test_figures(value: float, digits: int, towards: str, text: str) -> None:
    assert figure(value, digits, towards) == text  # type: ignore[arg-type]


def test_shares_that_nothing_exceeds_are_rounded_up() -> None:
    assert at_most(0.00534) == "0.54%"
    assert at_most(0.0053) == "0.53%"
    assert at_most(2.2e-16) == "0.01%"
    assert at_most(1.4e-5, 3) == "0.002%"
    assert at_most(float("inf")) == "inf%"
    assert at_most(0.133, 1) == "13.3%"


def test_money_that_nothing_costs_less_than_is_rounded_down() -> None:
    assert at_least(0.43118) == "0.4311"
    assert at_least(0.4311) == "0.4311"
    assert at_least(2146.567, 2) == "2,146.56"
    assert at_least(float("inf")) == "inf"


def test_one_is_one() -> None:
    assert [counted(number, "unit") for number in (1, 2, 1000)] == [
        "1 unit",
        "2 units",
        "1,000 units",
    ]
