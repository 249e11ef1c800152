"""Every rule has two sides of one name, and fires on a layout that is planted to break it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import costmodel.rules
import solver.rules
from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance, Scenario, resolve_instance
from costmodel.question.workload import Limits
from solver.clock import Clock
from solver.search import search
from tests.solver.enumeration import pools

#: layouts as plain data
Data = dict[str, Any]
#: a question and a layout changed so that one rule is broken
Plant = Callable[[Instance, Data], tuple[Instance, Data]]

JUDGED = sorted(entry.name for entry in pkgutil.iter_modules(costmodel.rules.__path__))


def test_every_rule_has_two_sides() -> None:
    assert sorted(solver.rules.rules()) == JUDGED
    every = costmodel.rules.rules(structure=True) | costmodel.rules.rules(structure=False)
    assert sorted(every) == JUDGED
    for rule in solver.rules.rules().values():
        assert rule.OF in ("replica", "fleet")
        assert len(rule.HOLDS.split()) > 3
        assert rule.__doc__


def question(folder: Path, name: str, **network: Any) -> Instance:
    """A mixture on two nodes of four, of which both serve prompts and answers."""
    path = folder / f"{name}.yaml"
    node = {
        "fabric": {"kind": "nvswitch", "links_per_switch": [5, 4, 4, 5]},
        "chips": [{"chip": "h100", "count": 4}],
        "count": 2,
    }
    network = {"kind": "leaf-spine", **network}
    path.write_text(yaml.safe_dump({"name": name, "domains": [node], "scale_out": network}))
    asked = {
        "model": "gpt-oss-20b",
        "cluster": str(path),
        "workload": {"input_tokens": 1000, "output_tokens": 200},
        "slo": {"tpot": 0.02, "ttft": 1.0},
    }
    return resolve_instance(Scenario.model_validate(asked))


def scenario(instance: Instance, **changed: Any) -> Instance:
    """The question with other options."""
    return replace(instance, scenario=instance.scenario.model_copy(update=changed))


def slo(instance: Instance, **changed: float) -> Instance:
    """The question with other targets."""
    return scenario(instance, slo=instance.scenario.slo.model_copy(update=changed))


def apart(instance: Instance, data: Data) -> Data:
    """A layout of one prefill replica in the first domain and one decode replica in the second."""
    one = next(r for r in data["replicas"] if r["role"] in ("decode", "mixed"))
    own = pools(instance)
    width = sum(len(stage["chips"]) for stage in one["stages"])

    def moved(role: str, chips: list[str]) -> Data:
        old = [chip for stage in one["stages"] for chip in stage["chips"]]
        names = dict(zip(old, chips[:width], strict=True))
        stages = [{**s, "chips": [names[c] for c in s["chips"]]} for s in one["stages"]]
        kv = [{**share, "chip": names[share["chip"]]} for share in one["kv"]]
        if role == "prefill":  # one prompt
            kv = [{"chip": kv[0]["chip"], "tier": "hbm", "sequences": 1}]
        batch = 1 if role == "prefill" else one["shape"]["batch"]
        shape = {**one["shape"], "batch": batch}
        return {**one, "role": role, "stages": stages, "kv": kv, "shape": shape}

    return {**data, "replicas": [moved("prefill", own[0]), moved("decode", own[1])]}


def edit(change: Callable[[Data], None]) -> Plant:
    """A plant that changes the layout alone."""

    def plant(instance: Instance, data: Data) -> tuple[Instance, Data]:
        change(data)
        return instance, data

    return plant


def first(data: Data) -> Data:
    """The first replica."""
    return data["replicas"][0]  # type: ignore[no-any-return]


def no_links(instance: Instance, data: Data) -> tuple[Instance, Data]:
    """Prefill and decode in domains that no NIC joins."""
    folder = Path(instance.scenario.cluster).parent
    cut = yaml.safe_load(Path(instance.scenario.cluster).read_text())
    (folder / "cut.yaml").write_text(yaml.safe_dump({**cut, "failed": ["r0g*.nic"]}))
    changed = scenario(instance, cluster=str(folder / "cut.yaml"))
    return resolve_instance(changed.scenario), apart(instance, data)


def slow_links(instance: Instance, data: Data) -> tuple[Instance, Data]:
    """A rate that the replicas could serve, and the leaves cannot carry."""
    data = apart(instance, data)
    slow = question(Path(instance.scenario.cluster).parent, "slow", oversubscription=10_000)
    priced = evaluate(slow, Layout.model_validate(data)).priced
    assert priced.held_back_by_links
    able = min(priced.prefill_per_s, priced.decode_per_s)
    return scenario(slow, rate=0.99 * able), data


def crowd(data: Data) -> None:
    """More sequences than any chip holds."""
    first(data)["shape"]["batch"] += 10**6
    first(data)["kv"][0]["sequences"] += 10**6


def idle(data: Data) -> Data:
    """Conversations that wait in host memory, where the workload keeps none."""
    return {**first(data)["kv"][0], "tier": "host", "idle": True}


def in_stages(instance: Instance, data: Data) -> tuple[Instance, Data]:
    """A decode replica in two stages, for an engine whose KV transfer takes one."""
    one = next(r for r in data["replicas"] if len(r["stages"]) == len(r["stages"][0]["chips"]) == 1)
    chips, half = pools(instance)[0][:2], len(instance.model.layers) // 2
    layers = [[0, half - 1], [half, len(instance.model.layers) - 1]]
    stages = [
        {**one["stages"][0], "layers": part, "chips": [chip]}
        for part, chip in zip(layers, chips, strict=True)
    ]
    kv = [{**one["kv"][0], "chip": chips[0]}]
    shape = {**one["shape"], "pp": 2}
    staged = {**one, "role": "decode", "stages": stages, "kv": kv, "shape": shape}
    return scenario(instance, engine="vllm"), {**data, "replicas": [staged]}


def limited(**limits: int) -> Plant:
    """A replica in two stages, each in a domain, under a limit."""

    def plant(instance: Instance, data: Data) -> tuple[Instance, Data]:
        _, staged = in_stages(instance, data)
        (one,) = staged["replicas"]
        for stage, chips in zip(one["stages"], pools(instance), strict=False):
            stage["chips"] = chips[:1]
        one["kv"] = [{"chip": one["stages"][0]["chips"][0], "sequences": one["shape"]["batch"]}]
        kept = instance.limits.model_dump() | limits
        return scenario(instance, limits=Limits(**kept)), staged

    return plant


def unmeasured(instance: Instance, data: Data) -> tuple[Instance, Data]:
    """A replica in two stages, which nobody ran, for a question that keeps to what was measured."""
    _, staged = in_stages(instance, data)
    return scenario(instance, within_measured=True), staged


PLANTS: dict[str, list[Plant]] = {
    "both_pools": [edit(lambda data: [r.update(role="decode") for r in data["replicas"]])],  # type: ignore[arg-type,return-value]
    "chips_once": [edit(lambda data: data["replicas"].append(first(data)))],
    "chips_usable": [edit(lambda data: first(data)["stages"][0]["chips"].__setitem__(0, "r9g9"))],
    "engine_runs": [in_stages],
    "experts_placed": [edit(lambda data: next(iter(data["expert_maps"].values())).popitem())],
    "hbm_capacity": [edit(lambda data: crowd(data))],
    "kv_bytes": [edit(lambda data: first(data)["kv"][0].update(bytes=1.0))],
    "kv_placed": [edit(lambda data: first(data)["shape"].update(batch=1))],
    "kv_tiers": [edit(lambda data: first(data)["kv"].append(idle(data)))],
    "layers_covered": [edit(lambda data: first(data)["stages"][-1]["layers"].__setitem__(1, 2))],
    "limits": [
        limited(max_pipeline_stages=1),
        limited(max_domains_per_replica=1),
        limited(max_sequences_per_rank=1),
    ],
    "rate_served": [lambda instance, data: (scenario(instance, rate=1e9), data)],
    "shape_matches": [edit(lambda data: first(data)["shape"].update(tp=7))],
    "tpot_target": [lambda instance, data: (slo(instance, tpot=1e-6), data)],
    "ttft_target": [lambda instance, data: (slo(instance, ttft=1e-6), data)],
    "uplink_capacity": [no_links, slow_links],
    "within_measured": [unmeasured],
} | {
    file.stem.removeprefix("plant_"): [importlib.import_module(f"{__package__}.{file.stem}").plant]
    for file in Path(__file__).parent.glob("plant_*.py")
}


@pytest.mark.parametrize("rule", JUDGED)
def test_every_rule_fires(rule: str, tmp_path: Path) -> None:
    instance = question(tmp_path, "two")
    layout = search(instance, clock=Clock(60)).layout
    assert evaluate(instance, layout).violations == ()
    for plant in PLANTS[rule]:
        changed, data = plant(instance, layout.model_dump(mode="json"))
        found = {v.rule for v in evaluate(changed, Layout.model_validate(data)).violations}
        assert rule in found


def test_a_decode_replica_over_domains_is_reached_in_each_of_them(tmp_path: Path) -> None:
    instance = question(tmp_path, "two")
    prefill = plain_layout(instance, "prefill", tp=1, batch=1)
    decode = plain_layout(instance, "decode", tp=1, attention_dp=2, batch=8, first_chip=3)
    (one,) = decode.replicas
    assert one.stages[0].chips == (pools(instance)[0][-1], pools(instance)[1][0])
    own = one.stages[0].model_copy(update={"expert_map": "decode"})
    (maps,) = decode.expert_maps.values()
    layout = Layout(
        replicas=(*prefill.replicas, one.model_copy(update={"stages": (own,)})),
        expert_maps={**prefill.expert_maps, "decode": maps},
    )
    found = evaluate(slo(instance, tpot=10.0), layout)
    assert found.violations == ()
    assert found.priced.transfer_s[0] is not None
    assert found.priced.crossings.out[0] > 0
