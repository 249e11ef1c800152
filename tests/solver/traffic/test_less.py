"""Asking for less, pool by pool."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from solver.shapes.shapes import ROLES
from solver.traffic.judge import Verdict
from solver.traffic.less import Less

NEEDS = {"prefill": 1.44, "decode": 1.21, "mixed": 1.0}


def verdict(*missed: str) -> Verdict:
    return cast(Verdict, SimpleNamespace(meets=not missed, missed=missed))


def less() -> Less:
    return Less(dict.fromkeys(ROLES, 1.0), NEEDS)


def test_half_of_the_way_in_ratios_until_that_is_as_much() -> None:
    own = less()
    trial = own.trial("prefill")
    assert trial == pytest.approx({**NEEDS, "prefill": 1.2, "decode": 1.21})
    own.judged("prefill", trial, verdict("prefill"))
    assert own.met == NEEDS
    assert own.trial("prefill") == pytest.approx(
        {**NEEDS, "prefill": (1.44 * 1.2) ** 0.5, "decode": 1.21}
    )
    while (more := own.trial("prefill")) is not None:
        own.judged("prefill", more, verdict())
    assert own.met["prefill"] == pytest.approx(1.2, rel=0.005)


def test_a_pool_of_which_less_was_asked_unseen_has_what_met_the_targets_again() -> None:
    """Less decode cost as much, so that no fleet was replayed: with less prefill it was decode that was too slow."""
    own = less()
    for role in ("decode", "prefill"):
        trial = own.trial(role)
        assert trial is not None
        if role == "decode":
            own.as_dear(trial)
            assert trial["decode"] == pytest.approx(1.1)
        else:
            assert trial == pytest.approx({**NEEDS, "prefill": 1.2, "decode": 1.1})
            own.judged(role, trial, verdict("decode", "mixed"))
    # prefill did not fail, and decode did with what was asked
    assert own.trial("prefill") == pytest.approx({**NEEDS, "prefill": 1.2, "decode": 1.21})
    assert own.trial("decode") == pytest.approx(
        {**NEEDS, "prefill": 1.44, "decode": (1.21 * 1.1) ** 0.5}
    )
    assert own.met == NEEDS


def test_what_missed_with_all_that_met_before_is_the_pool_with_less() -> None:
    own = less()
    trial = own.trial("prefill")
    assert trial is not None
    own.judged("prefill", trial, verdict("decode", "mixed"))
    assert own.trial("prefill") == pytest.approx(
        {**NEEDS, "prefill": (1.44 * 1.2) ** 0.5, "decode": 1.21}
    )


def test_what_does_not_stand_failed() -> None:
    own = less()
    trial = own.trial("decode")
    assert trial is not None
    own.judged("decode", trial, None)
    assert own.trial("decode") == pytest.approx(
        {**NEEDS, "prefill": 1.44, "decode": (1.21 * 1.1) ** 0.5}
    )
