"""Pipeline stages in decode: T27-T29, T60."""

import numpy as np
import pytest

from costmodel.blackboard.trains import fill_drain_bubble, stage_utilisation
from costmodel.replica.serving import PipelineTime


def pipeline(stages, total_s=20e-3, hop_s=0.0):
    return PipelineTime(
        np.asarray(total_s), np.asarray(total_s / stages), np.asarray(hop_s * stages)
    )


@pytest.mark.parametrize("stages", [1, 2, 4, 8])
def test_t27_stages_change_neither_latency_nor_throughput_per_rack(stages):
    period = float(pipeline(stages).period_s(stages))
    assert period == pytest.approx(20e-3, rel=0.001)
    batch = 100
    per_rack = stages * batch / period / stages
    assert per_rack == pytest.approx(batch / 20e-3, rel=0.001)


def test_t28_hops_add_to_every_token():
    assert float(pipeline(4, hop_s=2.5e-3).period_s(4)) == pytest.approx(30e-3)


@pytest.mark.parametrize(("microbatches", "busy"), [(1, 0.25), (2, 0.5), (4, 1.0), (8, 1.0)])
def test_t29_microbatches_in_flight_keep_racks_busy(microbatches, busy):
    assert stage_utilisation(microbatches, 4) == pytest.approx(busy)


@pytest.mark.parametrize(("microbatches", "bubble"), [(1, 0.75), (4, 0.43), (12, 0.20)])
def test_t60_plain_pipeline_bubble(microbatches, bubble):
    assert fill_drain_bubble(microbatches, 4) == pytest.approx(bubble, abs=0.005)
