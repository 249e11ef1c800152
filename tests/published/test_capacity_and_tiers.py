"""What fits where, and where idle KV goes: T30, T37-T39, T49, T59."""

from dataclasses import replace

import pytest

from costmodel.blackboard.capacity import kv_bytes_per_chip, longest_context, weight_bytes_per_chip
from costmodel.blackboard.retention import (
    break_even_hold_s,
    may_share_a_tier,
    suited_tier,
    write_premiums,
)
from costmodel.models import load_model
from costmodel.passes.communication import GroupRates
from costmodel.passes.group import ChipGroup
from costmodel.passes.operations import operations_of
from costmodel.passes.pass_time import pass_time
from costmodel.passes.tokens import Tokens
from costmodel.question.profile import Efficiency
from costmodel.replica import memory
from topology import load_chip


@pytest.mark.parametrize(("stages", "gigabytes"), [(1, 15.6), (2, 7.8), (4, 3.9), (8, 1.95)])
def test_t30_stages_divide_weights_but_not_kv(stages, gigabytes):
    assert weight_bytes_per_chip(1e12, 64, stages) / 1e9 == pytest.approx(gigabytes, rel=0.01)
    assert kv_bytes_per_chip(2000, 1e5, 1667, 64, stages) / 1e9 == pytest.approx(5.21, rel=0.01)


def test_t37_recompute_against_holding_in_hbm():
    # 2.25e15 multiplies per second
    assert break_even_hold_s(1e11, 4.5e15, 192e9, 2048) == pytest.approx(4170, rel=0.02)
    assert break_even_hold_s(1e11, 4.5e15, 192e9, 1667) == pytest.approx(5120, rel=0.02)
    own = break_even_hold_s(37e9, 1.979e15, 80e9, 70_272)
    assert own == pytest.approx(43, rel=0.02)


def test_t38_tier_nearest_to_the_hold():
    lecture = {"hbm": 20e-3, "ddr": 5.0, "flash": 60.0, "disk": 3600.0}
    assert suited_tier(lecture, 300) == "flash"
    assert suited_tier(lecture, 3600) == "disk"
    devices = {
        "lpddr": 480e9 / 0.5e12,
        "ddr5": 2e12 / 0.4e12,
        "nvme": 3.84e12 / 14e9,
        "qlc": 30e12 / 7e9,
        "hdd": 24e12 / 0.28e9,
    }
    assert suited_tier(devices, 300) == "nvme"
    assert suited_tier(devices, 3600) == "qlc"


def test_t39_cache_prices_point_to_two_tiers():
    premiums = write_premiums({"five minutes": 6.25 / 5, "one hour": 10 / 5})
    assert premiums["five minutes"] == pytest.approx(0.25)
    assert premiums["one hour"] == pytest.approx(1.0)
    assert premiums["one hour"] / premiums["five minutes"] == pytest.approx(4)
    assert not may_share_a_tier(premiums["five minutes"], premiums["one hour"], 300, 3600)
    assert 1 + write_premiums({"hit": 0.5 / 5})["hit"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("kv_heads", "head_dim", "shard", "contexts"),
    [
        (64, 128, "heads", {128: 1320, 512: 330}),
        (1, 256, "heads", {128: 660, 512: 165}),
        (1, 256, "batch", {128: 43_000, 512: 10_700}),
    ],
)
def test_t49_longest_context_of_palm(kv_heads, head_dim, shard, contexts):
    room = 0.3 * 32 * 2**30
    for batch, stated in contexts.items():
        found = longest_context(room, batch, 118, kv_heads, head_dim, 2, chips=64, shard=shard)
        assert found == pytest.approx(stated, rel=0.02)


def test_t59_sharing_kv_over_layers_saves_bytes_but_not_reads():
    """A cache that m layers share is stored once; each layer still reads it."""
    shared_by = 4
    spec = load_model("llama-3.1-8b")
    layers = tuple(
        layer
        if index % shared_by == 0
        else replace(
            layer,
            sublayers=tuple(
                replace(part, owns_cache=False) if hasattr(part, "owns_cache") else part
                for part in layer.sublayers
            ),
        )
        for index, layer in enumerate(spec.layers)
    )
    own, shared = operations_of(spec), operations_of(replace(spec, layers=layers))
    stored, read = [], []
    for operations in (own, shared):
        kinds = [(kind, float(len(kind.layers))) for kind in operations.kinds]
        stored.append(float(memory.kv_bytes_per_sequence(operations, kinds, 1.0, 8192)))
        timed = pass_time(
            ChipGroup.of(operations, 1, 1, load_chip("h100"), Efficiency(), GroupRates(*[0.0] * 6)), kinds,
            Tokens(decode=16.0, context=8192.0), [None] * len(kinds),
        )  # fmt: skip
        read.append(float(timed.kv_s))
    assert stored[0] / stored[1] == pytest.approx(shared_by)
    assert read[0] == pytest.approx(read[1])
