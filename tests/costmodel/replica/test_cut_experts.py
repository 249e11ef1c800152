"""Experts that are cut over all chips of a stage, as engines start without expert parallelism (``ep`` 1, 0 slots a chip)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from costmodel.change.loading import loading
from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout, spread
from costmodel.question.engine import in_order
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.replica.exchanges import moved_in
from solver.place.build import build_replica
from solver.shapes.shapes import ROLES


def asked(model: str = "qwen3-30b-a3b", load: str = "skewed", **more: object) -> Instance:
    workload = {"input_tokens": 2000, "output_tokens": 500, "expert_load": load}
    data = {"model": model, "cluster": "hgx-h200", "workload": workload, **more}
    return resolve_instance(Scenario.model_validate(data))


def layout(
    instance: Instance, *, cut: bool, tp: int = 8, ranks: int = 1, pp: int = 1, batch: int = 64
) -> Layout:
    """A mixed replica on the first chips, experts in order or cut."""
    moe, width = instance.operations.moe, tp * ranks
    assert moe is not None
    chips = [one.id for one in instance.cluster.usable][: width * pp]
    parts = [chips[at : at + width] for at in range(0, width * pp, width)]
    ends = np.cumsum([0, *spread(instance.operations.num_layers, pp)]).tolist()
    stages = [(first, last - 1) for first, last in pairwise(ends)]
    slots: Sequence[int] = (0,) * width if cut else spread(moe.num_experts, width)
    row = in_order(moe.num_experts, moe.num_experts)
    maps = {} if cut else {"m": dict.fromkeys(instance.operations.moe_layers, row)}
    sizes = {"role": ROLES.index("mixed"), "tp": tp, "attention_dp": ranks, "pp": pp}
    replica = build_replica(
        instance, sizes, spread(batch, ranks), stages, tuple(slots), parts, None if cut else ["m"] * pp
    )  # fmt: skip
    return Layout(replicas=(replica,), expert_maps=maps)


def held(instance: Instance) -> Instance:
    """The same where caches hold what lies between kernels."""
    profile = instance.profile
    chips = {
        name: own.model_copy(update={"activations": None}) for name, own in profile.chips.items()
    }
    return replace(instance, profile=profile.model_copy(update={"chips": chips}))


@pytest.mark.parametrize(("tp", "pp"), [(8, 1), (4, 2), (2, 1)])
def test_evenly_loaded_whole_experts_cost_less_by_what_every_chip_hands_on(
    tp: int, pp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slices have outputs of full width and are read slower; nothing else tells them from whole experts."""
    instance = asked(load="uniform")
    whole, cut = (
        evaluate(instance, layout(instance, cut=one, tp=tp, pp=pp)) for one in (False, True)
    )
    assert whole.usd_per_m_output_tokens is not None
    assert cut.usd_per_m_output_tokens is not None
    assert cut.usd_per_m_output_tokens > 1.01 * whole.usd_per_m_output_tokens
    monkeypatch.setattr("costmodel.passes.routed.NARROW_S_PER_B", 0.0)
    instance = held(instance)
    whole, cut = (
        evaluate(instance, layout(instance, cut=one, tp=tp, pp=pp)) for one in (False, True)
    )
    assert not cut.violations
    for name in ("usd_per_m_output_tokens", "ttft_s", "tpot_s", "requests_per_s"):
        assert getattr(cut, name) == pytest.approx(getattr(whole, name), rel=1e-12)


def test_loads_do_not_tell_chips_apart() -> None:
    instance = held(asked())
    whole, cut = (evaluate(instance, layout(instance, cut=one)) for one in (False, True))
    assert cut.usd_per_m_output_tokens is not None
    assert whole.usd_per_m_output_tokens is not None
    assert cut.usd_per_m_output_tokens < whole.usd_per_m_output_tokens
    (stage,) = cut.priced.replicas[0].stages
    assert len(set(stage.memory["experts"].tolist())) == 1
    (before,) = whole.priced.replicas[0].stages
    assert stage.memory["experts"].sum() == pytest.approx(before.memory["experts"].sum(), rel=1e-12)


@pytest.mark.parametrize(("tp", "ranks"), [(8, 1), (2, 4)])
def test_no_chip_has_more_tokens_of_a_cut_expert_than_another(tp: int, ranks: int) -> None:
    """That a pass's finitely many tokens fall unevenly is nothing to chips that share all of them."""
    noisy = asked()
    quiet = replace(noisy, profile=noisy.profile.routed_as("uniform"))
    own = layout(noisy, cut=True, tp=tp, ranks=ranks)
    first, second = evaluate(noisy, own), evaluate(quiet, own)
    for name in ("usd_per_m_output_tokens", "ttft_s", "tpot_s", "requests_per_s"):
        assert getattr(first, name) == getattr(second, name)
    assert first.priced.replicas[0].stages[0].imbalance == pytest.approx(1.0)


def test_every_chip_needs_every_token_where_there_are_several_ranks() -> None:
    """Collectives where an engine says which; without one, gathering too."""
    free = asked()
    bound = asked(engine="vllm")
    for instance in (free, bound):
        cut = evaluate(instance, layout(instance, cut=True, tp=1, ranks=8))
        assert not cut.violations
    ways = [
        moved_in(free, layout(free, cut=one, tp=1, ranks=8).replicas[0]) for one in (True, False)
    ]
    assert [way.gathers for way in ways] == [True, False]


def test_what_does_not_fit_the_shape_is_broken() -> None:
    instance = asked()
    good = layout(instance, cut=True)
    (replica,) = good.replicas
    wide = replica.model_copy(update={"shape": replica.shape.model_copy(update={"ep": 8})})
    found = evaluate(instance, good.model_copy(update={"replicas": (wide,)})).violations
    assert any("ep is 8; it is 1 where each expert is cut" in str(one) for one in found)
    bare = replica.stages[0].model_copy(update={"slots_per_chip": None})
    none = replica.model_copy(update={"stages": (bare,)})
    found = evaluate(instance, good.model_copy(update={"replicas": (none,)})).violations
    assert {one.rule for one in found} >= {"experts_placed", "shape_matches"}
    odd = asked("qwen3-235b-a22b-fp8")
    found = evaluate(odd, layout(odd, cut=True, tp=4, ranks=2)).violations
    assert any(
        "1536 columns of an expert in blocks of 128 are not cut evenly over all 8" in str(one)
        for one in found
    )


def test_an_engine_runs_cut_experts_whichever_it_places() -> None:
    for engine in ("vllm", "sglang", "trtllm"):
        instance = asked(engine=engine)
        assert not evaluate(instance, layout(instance, cut=True)).violations


def test_other_slices_are_other_weights() -> None:
    """Nothing is loaded for the same slices; all slices of experts for other widths, and for whole experts."""
    instance = asked()
    eight, four = layout(instance, cut=True), layout(instance, cut=True, tp=4)
    whole = layout(instance, cut=False)
    judged = {id(one): evaluate(instance, one) for one in (eight, four, whole)}
    same = loading(eight, instance, eight, judged[id(eight)], same_model=True)
    assert same.total_bytes == 0
    for other in (four, whole):
        moved = loading(eight, instance, other, judged[id(other)], same_model=True)
        experts = sum(
            float(stage.memory["experts"].sum())
            for stage in judged[id(other)].priced.replicas[0].stages
        )
        assert moved.total_bytes >= experts * (1 - 1e-9)
    # attention of as many shards stays where it is
    assert moved.total_bytes == pytest.approx(experts, rel=1e-9)
