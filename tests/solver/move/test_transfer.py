"""Seconds of weights that chips send each other, beside numbers worked out by hand."""

from __future__ import annotations

import pytest

from costmodel.change.joined import on_chips
from costmodel.change.loading import read_bytes_per_s, read_s
from costmodel.change.transfer import Sent, from_peers, transfer_s
from costmodel.change.weights import expert_bytes, weights_by_chip
from costmodel.evaluate import evaluate
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from tests.costmodel.replica.test_cut_experts import layout as cut_layout

GB = 1e9


@pytest.fixture(scope="module")
def instance() -> Instance:
    return resolve_instance(
        Scenario(model="deepseek-v2-lite", cluster="hgx-h100@3", workload="chat")
    )


def sent(**pairs: float) -> Sent:
    """``r0g0_r1g0=1`` is a gigabyte from the one chip to the other."""
    found = Sent()
    for name, size in pairs.items():
        source, chip = name.split("_")
        found.between[source, chip] += size * GB
    return found


def test_a_chip_sends_to_one_at_a_time(instance: Instance) -> None:
    link = instance.cluster.chip("r0g0").chip.scale_up_bytes_per_s
    near = transfer_s(instance, sent(r0g0_r0g1=1))
    assert near == pytest.approx(GB / link, rel=0.01)
    assert transfer_s(instance, sent(r0g0_r0g1=1, r0g0_r0g2=1)) == pytest.approx(2 * near)
    assert transfer_s(instance, sent(r0g1_r0g0=1, r0g2_r0g0=1)) == pytest.approx(2 * near)
    assert transfer_s(instance, sent(r0g0_r0g1=1, r0g2_r0g3=1)) == pytest.approx(near)


def test_between_nodes_the_nic_is_the_limit(instance: Instance) -> None:
    nic = instance.cluster.chip("r0g0").chip.nic_bytes_per_s
    one = transfer_s(instance, sent(r0g0_r1g0=1))
    assert one == pytest.approx(GB / nic, rel=0.01)
    every = {f"r0g{i}_r{1 + i % 2}g{i}": 1.0 for i in range(8)}
    assert transfer_s(instance, sent(**every)) == pytest.approx(one, rel=0.01)
    # twice as much from every chip: the node's NICs together carry no more
    twice = every | {f"r0g{i}_r{2 - i % 2}g{i}": 1.0 for i in range(8)}
    assert transfer_s(instance, sent(**twice)) == pytest.approx(2 * one, rel=0.01)


def test_what_a_new_replica_takes_is_all_of_its_weights(instance: Instance) -> None:
    old = plain_layout(instance, "mixed", tp=1, attention_dp=4, batch=64)
    (replica,) = old.replicas
    other = on_chips(replica, {f"r0g{i}": f"r1g{i}" for i in range(4)})
    after = old.model_copy(update={"replicas": (replica, other)})
    wanted = weights_by_chip(after, evaluate(instance, after).priced)
    each = expert_bytes(instance)
    found = from_peers([other], [replica], (wanted, wanted, {}), each)
    assert not found.left
    for chip in other.chips:
        size = sum(amount for (_, to), amount in found.between.items() if to == chip)
        assert size == pytest.approx(wanted[chip].fresh(None, each))
    alone = from_peers([other], [], (wanted, {}, {}), each)
    assert sum(alone.left.values()) == pytest.approx(sum(found.between.values()))


def test_slices_of_a_replica_that_cuts_its_experts_are_whole_ones_elsewhere() -> None:
    """They were read from hosts, as if no chip that runs held them."""
    asked = {"model": "qwen3-30b-a3b", "cluster": "hgx-h100@2", "workload": "chat"}
    instance = resolve_instance(Scenario.model_validate(asked))
    whole = plain_layout(instance, "mixed", tp=1, attention_dp=2, batch=8)
    (running,) = cut_layout(instance, cut=True, tp=1, ranks=4).replicas
    other = on_chips(whole.replicas[0], {f"r0g{i}": f"r1g{i}" for i in range(2)})
    both = whole.model_copy(update={"replicas": (running, other)})
    weights = weights_by_chip(both, evaluate(instance, both).priced)
    each = expert_bytes(instance)
    found = from_peers([other], [running], (weights, weights, {}), each)
    assert not found.left
    for chip in other.chips:
        taken = [found.between[source, chip] for source in running.chips]
        assert sum(taken) == pytest.approx(weights[chip].fresh(None, each))
        assert taken == pytest.approx([taken[0]] * 4), "every chip has as large a slice"
    # and the other way round
    back = from_peers([running], [other], (weights, weights, {}), each)
    assert not back.left
    for chip in running.chips:
        size = sum(back.between[source, chip] for source in other.chips)
        assert size == pytest.approx(weights[chip].fresh(None, each))


def test_reading_takes_as_long_as_the_slowest_chip(instance: Instance) -> None:
    host = read_bytes_per_s(instance, "r0g0", "host")
    flash = read_bytes_per_s(instance, "r0g0", "flash")
    assert host is not None
    assert flash is not None
    size = {"r0g0": 3 * GB, "r0g1": GB, "r0g2": 0.0}
    assert read_s(instance, size) == pytest.approx(3 * GB / host)
    assert read_s(instance, size, "flash") == pytest.approx(3 * GB / flash)
