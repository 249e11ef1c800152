"""Hand-overs between domains share the sender's NICs, the target's, and the links of leaves to spines."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.replay.links import Links
from topology.scaleout.uplinks import Uplinks


def links(domain: float = 10.0, unit: float = 100.0) -> Links:
    """Four domains, two in each of two units."""
    return Links(Uplinks(np.full(4, domain), np.full(2, unit), np.array([0, 0, 1, 1])))


def test_alone_it_takes_what_the_slowest_cut_takes() -> None:
    assert links().sent_s(0, 1, 5.0, 20.0, 0.5) == pytest.approx(7.0)
    assert links().sent_s(0, 1, 5.0, 20.0, 3.0) == pytest.approx(8.0)
    assert links(unit=4.0).sent_s(0, 2, 5.0, 20.0, 0.5) == pytest.approx(10.0)
    assert links(unit=4.0).sent_s(0, 1, 5.0, 20.0, 0.5) == pytest.approx(7.0)


def test_two_that_send_to_one_share_its_links() -> None:
    own = links()
    assert own.sent_s(0, 3, 0.0, 20.0, 0.0) == pytest.approx(2.0)
    assert own.sent_s(1, 3, 0.0, 20.0, 0.0) == pytest.approx(4.0)
    assert own.sent_s(1, 2, 0.0, 20.0, 0.0) == pytest.approx(4.0)  # its own NICs are busy until 2


def test_domains_of_one_unit_share_its_spine_links() -> None:
    own = links(unit=10.0)
    assert own.sent_s(0, 2, 0.0, 20.0, 0.0) == pytest.approx(2.0)
    assert own.sent_s(1, 3, 0.0, 20.0, 0.0) == pytest.approx(4.0)
    assert own.sent_s(2, 0, 0.0, 20.0, 0.0) == pytest.approx(2.0)  # the other direction is free


def test_a_later_start_finds_links_free() -> None:
    own = links()
    own.sent_s(0, 1, 0.0, 20.0, 0.0)
    assert own.sent_s(0, 1, 9.0, 20.0, 0.0) == pytest.approx(11.0)
