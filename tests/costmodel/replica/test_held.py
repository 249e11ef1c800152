"""KV in tiers: hand-sized cases of Little's law, reloads, streamed caches, and the rule that checks them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.layout import KvShare, Layout
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.replica.held import (
    all_new,
    blend,
    conversation_bytes,
    hit_share,
    price_all_placed,
    returning,
)
from costmodel.replica.kv_bytes import bytes_by_chip
from costmodel.replica.replica import price_replica
from costmodel.replica.serving import Service
from topology.errors import InstanceError

HOLD = {"input_tokens": 4000, "output_tokens": 500, "cached_tokens": 3000,
        "hold_s": 100, "return_rate": 0.5}  # fmt: skip


def service(rate: float, ttft: float = 0.0, mean: float = 0.0) -> Service:
    return Service(*(np.asarray(value) for value in (rate, 0.01, ttft, mean)))


def asked(**changes: Any) -> Instance:
    scenario = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": HOLD,
                "kv_tiers": ["host", "flash", "disk"]}  # fmt: skip
    return resolve_instance(Scenario.model_validate(scenario | changes))


def mixed(*idle: dict[str, Any], batch: int = 8, tier: str = "hbm") -> Layout:
    """One mixed replica of Llama-3.1-8B on one chip."""
    kv = [{"chip": "r0g0", "tier": tier, "sequences": batch}, *idle]
    stage = {"layers": [0, 31], "chips": ["r0g0"]}
    shape = {"tp": 1, "ep": 1, "pp": 1, "attention_dp": 1, "batch": batch}
    replica = {"role": "mixed", "shape": shape, "stages": [stage], "kv": kv}
    return Layout.model_validate({"replicas": [replica]})


def waiting(tier: str, count: int) -> dict[str, Any]:
    return {"chip": "r0g0", "tier": tier, "idle": True, "sequences": count}


def rate(instance: Instance, layout: Layout) -> float:
    found = evaluate(instance, layout)
    assert found.violations == ()
    assert found.requests_per_s is not None
    return found.requests_per_s


def test_hits_grow_from_none_to_all_that_return() -> None:
    new, back = service(2.0), service(8.0)
    room = np.array([0.0, 0.5, 1.0, 2.0, 3.2, 100.0])
    hits = hit_share(new, back, 0.5, room)
    rates = blend(new, back, hits, 0.0).requests_per_s
    assert hits[0] == 0.0
    assert rates[0] == 2.0
    # half of the requests find their KV: 1 / (0.5 / 2 + 0.5 / 8) = 3.2, which then are all kept
    assert hits[-1] == 0.5
    assert rates[-1] == pytest.approx(3.2)
    assert rates[4] == pytest.approx(3.2)
    assert np.all(np.diff(rates) >= -1e-12)
    # where room is short, what is kept per second is the room: hits = return rate x kept / rate
    assert np.allclose((hits * rates)[:4], 0.5 * room[:4])
    assert rates[2] == pytest.approx(2.0 + 0.5 * 1.0 * (1 - 2.0 / 8.0))


def test_worst_first_token_waits_for_the_longest_pass_and_the_reload() -> None:
    new, back = service(2.0, ttft=0.5, mean=0.4), service(8.0, ttft=0.2, mean=0.15)
    without = blend(new, back, 0.25, 0.0)
    assert float(without.ttft_s) == pytest.approx(0.3 + 0.2)
    slow = blend(new, back, 0.25, 0.45)
    assert float(slow.ttft_s) == pytest.approx((0.2 - 0.1 + 0.45) + 0.2)


def test_little_law_and_recompute() -> None:
    instance = asked()
    nothing = rate(instance, mixed())
    some = rate(instance, mixed(waiting("flash", 50)))
    much = rate(instance, mixed(waiting("flash", 5000)))
    first = price_replica(all_new(instance), mixed(), mixed().replicas[0]).service
    later = price_replica(returning(instance), mixed(), mixed().replicas[0]).service
    new, back = float(first.requests_per_s), float(later.requests_per_s)
    assert nothing == pytest.approx(new)
    assert much == pytest.approx(1 / (0.5 / new + 0.5 / back))
    assert some == pytest.approx(new + 0.5 * 50 / 100 * (1 - new / back))


def test_idle_kv_in_hbm_takes_room() -> None:
    instance = asked()
    plain, kept = (evaluate(instance, layout).priced.replicas[0].stages[0].memory["kv"]
                   for layout in (mixed(), mixed(waiting("hbm", 10))))  # fmt: skip
    assert kept - plain == pytest.approx(10 * conversation_bytes(instance))
    # 32 layers, 8 heads of 128, keys and values in bf16
    assert conversation_bytes(instance) == 3000 * 32 * 8 * 128 * 2 * 2


def test_evaluation_says_what_waits_and_what_it_costs() -> None:
    instance = asked()
    (use,) = evaluate(instance, mixed(waiting("flash", 50))).kv_tiers
    flash = instance.cluster.chips[0].chip.tier("flash")
    assert flash is not None
    assert (use.tier, use.idle, use.sequences) == ("flash", True, pytest.approx(50))
    assert use.bytes == pytest.approx(50 * conversation_bytes(instance))
    assert use.usd_per_hour == pytest.approx(use.bytes * flash.usd_per_byte_hour)
    assert use.reload_s == pytest.approx(conversation_bytes(instance) / flash.read_bytes_per_s)
    assert use.read_share == pytest.approx(0.5 * 50 / 100 * use.reload_s)
    (memory,) = evaluate(instance, mixed(waiting("host", 50))).kv_tiers
    assert memory.usd_per_hour == 0  # the chip's price has paid for it
    assert memory.rent_usd_per_hour > 0


def test_streamed_caches_cost_time_and_no_hbm() -> None:
    instance = asked(workload="chat")
    inside, outside = (evaluate(instance, mixed(tier=tier)) for tier in ("hbm", "host"))
    assert inside.tpot_s is not None
    assert outside.tpot_s is not None
    stage = outside.priced.replicas[0].stages[0]
    assert float(stage.memory["kv"].max()) == 0.0
    host = instance.cluster.chips[0].chip.tier("host")
    assert host is not None
    read = 8 * instance.workload.decode_context * 32 * 8 * 128 * 2 * 2 / host.read_bytes_per_s
    assert read < outside.tpot_s < read + inside.tpot_s
    assert outside.kv_tiers[0].idle is False


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (mixed(waiting("host", 10**4)), "chip r0g0 needs 3932.2 GB of host, has 256.0 GB"),
        (mixed(waiting("disk", 4 * 10**4)), "idle KV reads"),
        (mixed(tier="disk", batch=10**6), "of disk, has 30000.0 GB"),
        (mixed(waiting("host", 5), tier="host"), "no bandwidth is left for reloads"),
    ],
)
def test_what_does_not_fit_a_tier_is_a_violation(layout: Layout, message: str) -> None:
    found = evaluate(asked(), layout).violations
    assert any(v.rule == "kv_tiers" and message in v.message for v in found), found


def test_missing_tiers_and_needless_idle_kv_are_violations() -> None:
    bare = asked(cluster="tpu-v7", kv_tiers=[])
    data = mixed(waiting("host", 5)).model_dump(mode="json")
    first = bare.cluster.chips[0].id
    for place in data["replicas"][0]["kv"]:
        place["chip"] = first
    data["replicas"][0]["stages"][0]["chips"] = [first]
    found = evaluate(bare, Layout.model_validate(data)).violations
    assert any("has no tier host" in v.message for v in found), found
    found = evaluate(asked(workload="chat"), mixed(waiting("host", 5))).violations
    assert any("no hold_s" in v.message for v in found), found


def test_tiers_change_nothing_where_they_are_not_used() -> None:
    """A layout without KV in tiers is priced alike on chips with and without them."""
    instance = asked(workload="chat")
    bare = {p.chip: p.chip.model_copy(update={"tiers": ()}) for p in instance.cluster.chips}
    domains = [
        replace(d, chips=tuple(replace(p, chip=bare[p.chip]) for p in d.chips),
                usable=tuple(replace(p, chip=bare[p.chip]) for p in d.usable))
        for d in instance.cluster.domains
    ]  # fmt: skip
    cluster = type(instance.cluster)(instance.cluster.name, domains, instance.cluster.network)
    without = replace(instance, cluster=cluster)
    assert evaluate(without, mixed()).as_dict() == evaluate(instance, mixed()).as_dict()


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (HOLD | {"return_rate": None}, "needs return_rate"),
        (HOLD | {"cached_tokens": 0}, "and cached_tokens"),
        (HOLD | {"hold_s": None}, "give hold_s too"),
        (HOLD | {"hold_s": "2 years"}, "expected a quantity in s"),
        (HOLD | {"hold_s": 4e8}, "more than a year"),
        (HOLD | {"return_rate": 2}, "at most 1"),
    ],
)
def test_what_a_hold_needs(workload: dict[str, Any], message: str) -> None:
    from topology.catalogue import checked

    data = {key: value for key, value in workload.items() if value is not None}
    scenario = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": data}
    with pytest.raises(InstanceError, match=message), checked("test"):
        Scenario.model_validate(scenario)


def test_modules_that_draft_keep_caches_where_the_model_does() -> None:
    """One more layer's cache, also of conversations that wait, and the room of a tier is checked with it."""
    drafts = {"draft_tokens": 2, "acceptance": 0.7}
    instance = asked(model="glm-4.5-air", cluster="hgx-h200", speculative=drafts)
    layers = len(instance.model.layers)
    one_layer = 3000 * 8 * 128 * 2 * 2
    assert conversation_bytes(instance) == (layers + 1) * one_layer
    assert conversation_bytes(asked(model="glm-4.5-air", cluster="hgx-h200")) == layers * one_layer
    host = instance.cluster.chips[0].chip.tier("host")
    assert host is not None
    most = int(host.bytes // (8 * layers * one_layer))

    def broken(count: int) -> list[str]:
        layout = plain_layout(instance, "mixed", tp=8, attention_dp=1, batch=8)
        (replica,) = layout.replicas
        waits = KvShare(chip=replica.chips[0], tier="host", idle=True, sequences=8 * 8 * count)
        kept = replica.model_copy(update={"kv": (*replica.kv, waits)})
        found = evaluate(instance, layout.model_copy(update={"replicas": (kept,)})).violations
        return [one.message for one in found if "GB of host" in one.message]

    assert broken(most * layers // (layers + 1) - 1) == []
    assert broken(most)


def test_drafting_reads_its_cache_from_the_tier() -> None:
    """In flight in host memory: HBM holds no cache, and the tier the modules' too."""
    drafts = {"draft_tokens": 1, "acceptance": 0.7}
    instance = asked(
        model="glm-4.5-air", cluster="hgx-h200", speculative=drafts, workload={"input_tokens": 4000, "output_tokens": 500},
    )  # fmt: skip
    layout = plain_layout(instance, "decode", tp=1, attention_dp=8, batch=64)
    (replica,) = layout.replicas
    away = replica.model_copy(
        update={
            "kv": tuple(
                share.model_copy(update={"tier": "host", "bytes": None}) for share in replica.kv
            )
        }
    )
    (there,) = price_all_placed(instance, layout, [away])
    (here,) = price_all_placed(instance, layout, [replica])
    assert float(there.stages[0].memory["kv"].max()) == 0.0
    sizes = [sum(bytes_.values()) for _, bytes_ in bytes_by_chip(instance, away)]
    assert sizes == pytest.approx(here.stages[0].memory["kv"])
    assert there.service.tpot_s > here.service.tpot_s
