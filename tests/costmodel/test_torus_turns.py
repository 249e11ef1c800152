"""The judge: a layout mirrored, turned or moved along rings on a torus gets the same figures."""

from __future__ import annotations

import random

import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Scenario, resolve_instance
from tests.topology.test_torus_symmetry import images


def on(layout: Layout, places: list[int]) -> Layout:
    """The layout of one replica on these places of the first domain."""
    (replica,) = layout.replicas
    names = {c: f"r0g{p}" for c, p in zip(replica.chips, places, strict=True)}
    stages = tuple(
        stage.model_copy(update={"chips": tuple(names[c] for c in stage.chips)})
        for stage in replica.stages
    )
    kv = tuple(share.model_copy(update={"chip": names[share.chip]}) for share in replica.kv)
    moved = replica.model_copy(update={"stages": stages, "kv": kv})
    return layout.model_copy(update={"replicas": (moved,)})


@pytest.mark.parametrize("cluster", ["tpu-v6e-4x4", "tpu-v7-2x2x4", "trn2"])
@pytest.mark.parametrize(
    ("model", "tp", "attention_dp"), [("llama-3.1-8b", 8, 1), ("gpt-oss-20b", 2, 3)]
)
def test_a_layout_mirrored_or_turned_takes_equally_long(
    cluster: str, model: str, tp: int, attention_dp: int
) -> None:
    question = {
        "model": model,
        "cluster": cluster,
        "workload": {"input_tokens": 1000, "output_tokens": 200, "expert_load": "uniform"},
    }
    instance = resolve_instance(Scenario.model_validate(question))
    fabric = instance.cluster.domains[0].fabric
    layout = plain_layout(instance, "mixed", tp=tp, attention_dp=attention_dp, batch=12)
    turns, draw = list(images(fabric)), random.Random(cluster + model)
    for _ in range(3):
        places = draw.sample(range(len(fabric.chips)), tp * attention_dp)
        here = evaluate(instance, on(layout, places))
        for image in draw.sample(turns, 4):
            there = evaluate(instance, on(layout, [image(place) for place in places]))
            for figure in ("ttft_s", "tpot_s", "requests_per_s", "usd_per_m_output_tokens"):
                assert getattr(there, figure) == pytest.approx(getattr(here, figure), rel=1e-9)
