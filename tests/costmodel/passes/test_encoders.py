"""Images and sound pass the model's encoders before prefill: time, memory and money of that."""

from __future__ import annotations

import pytest

from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Workload
from costmodel.replica.serving import schedule
from costmodel.replica.stage_memory import stage_memory
from solver.clock import Clock
from solver.search import search
from topology.errors import InstanceError

MODEL, CLUSTER, PATCHES, TP = "qwen3-vl-235b-a22b", "hgx-b200", 2304, 8


def _question(images: float, model: str = MODEL, **sound: int) -> Instance:
    workload = Workload(
        input_tokens=3000, output_tokens=300, images=images, image_patches=PATCHES, **sound
    )
    return resolve_instance(
        Scenario(model=model, cluster=CLUSTER, workload=workload, profile="physics")
    )


def _prefill(instance: Instance) -> Evaluation:
    return evaluate(instance, plain_layout(instance, "prefill", tp=TP, batch=1))


def test_two_images_delay_a_first_token_by_their_encoding() -> None:
    plain, seen = _question(0), _question(2)
    tower = seen.model.vision
    assert tower is not None
    chip = seen.cluster.usable[0].chip
    per_patch = 2 * tower.params + 4 * PATCHES * tower.width * tower.depth
    computed = 2 * PATCHES * per_patch / TP / chip.flops_per_s["bf16"]
    read = tower.num_bytes / TP / chip.hbm_bytes_per_s
    assert computed > read
    # a request that just missed a pass waits one and is in the next
    late, early = _prefill(seen).ttft_s, _prefill(plain).ttft_s
    assert late is not None
    assert early is not None
    assert late - early == pytest.approx(2 * computed, rel=1e-6)


def test_the_encoder_takes_memory_only_where_there_are_images() -> None:
    plain, seen = _question(0), _question(0.5)
    tower = seen.model.vision
    assert tower is not None
    weights = []
    for one in (plain, seen):
        replica = plain_layout(one, "mixed", tp=TP, batch=8).replicas[0]
        plan = schedule("mixed", one.workload, one.limits, 8)
        weights.append(float(stage_memory(one, replica, plan)[0]["weights"][0]))
    assert weights[1] - weights[0] == pytest.approx(tower.num_bytes / TP, rel=1e-6)


def test_a_layout_found_for_images_is_verified_and_costs_more() -> None:
    found = [search(_question(images), clock=Clock(60.0), gap=0.01) for images in (0, 20)]
    assert all(one.status == "optimal" and not one.evaluation.violations for one in found)
    usd = [one.evaluation.usd_per_m_output_tokens for one in found]
    assert usd[0] is not None
    assert usd[1] is not None
    assert usd[1] > 1.01 * usd[0]


@pytest.mark.parametrize(("images", "frames", "key"), [(1, 0, "images"), (0, 9, "audio_frames")])
def test_a_model_without_the_tower_is_refused(images: float, frames: int, key: str) -> None:
    with pytest.raises(InstanceError, match=f"workload.{key}"):
        _ = _question(images, "llama-3.1-8b", audio_frames=frames).operations
