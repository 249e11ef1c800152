"""Published deployments that no fit saw."""

from statistics import median

import pytest

from costmodel.measured.published import compare, published_deployments
from costmodel.profile import load_profile

DEPLOYMENTS = published_deployments()


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda one: one.id)
def test_physics_is_faster_than_what_was_published_and_than_what_is_predicted(deployment):
    bound = compare(deployment, load_profile("physics"))
    calibrated = compare(deployment, load_profile("calibrated"))
    assert bound.error <= calibrated.error
    assert bound.error <= 0


def test_small_batches_of_one_node_are_within_15_percent():
    node = [one for one in DEPLOYMENTS if "TP8 EP8" in one.id]
    errors = [abs(compare(one, load_profile("calibrated")).error) for one in node]
    assert len(errors) == 5
    assert median(errors) <= 0.15
    assert max(errors) <= 0.15
