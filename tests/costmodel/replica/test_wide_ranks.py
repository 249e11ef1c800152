"""An attention rank over several domains, as servers of two nodes start with ``--tp 16``: judged, searched, exported."""

from __future__ import annotations

from pathlib import Path

import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.layout import KvShare, Layout, Replica, Role, Shape, Stage
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo, Workload
from rackfit.exporters.export import export_layout, write_files
from rackfit.exporters.launch.engine_limits import under_engine
from rackfit.importers.deployment import build_layout, import_deployment
from solver.answer import SearchResult
from solver.clock import Clock
from solver.rounds import Search
from solver.search import search
from solver.shapes import shapes
from tests.costmodel.apart.by_hand import lying
from tests.rackfit.importers.test_wrapped import found
from topology.errors import NoFeasibleLayout

BATCH = 64


def asked(model: str = "llama-3.1-8b", cluster: str = "hgx-h100@2") -> Instance:
    workload = Workload(input_tokens=1000, output_tokens=200)
    return resolve_instance(Scenario(model=model, cluster=cluster, workload=workload))


def replica(
    instance: Instance, role: Role, chips: tuple[str, ...], ranks: int = 1, batch: int = BATCH
) -> Replica:
    """One stage of whole layers; sequences spread over the ranks, at home on the first chip of each."""
    tp = len(chips) // ranks
    return Replica(
        role=role,
        shape=Shape(tp=tp, ep=1, pp=1, attention_dp=ranks, batch=batch),
        stages=(Stage(layers=(0, len(instance.model.layers) - 1), chips=chips),),
        kv=tuple(KvShare(chip=chip, sequences=batch // ranks) for chip in chips[::tp]),
    )


@pytest.mark.parametrize("ranks", [1, 2])
def test_sums_go_between_domains_at_the_rate_of_the_graph(ranks: int) -> None:
    """Twice a rank's part leaves each chip: half of the tensor per chip, all of it per domain."""
    instance = asked()
    wide = ("r0g0", "r0g1", "r1g0", "r1g1", "r0g2", "r0g3", "r1g2", "r1g3")[: 4 * ranks]
    near = ("r0g0", "r0g1", "r0g2", "r0g3", "r1g0", "r1g1", "r1g2", "r1g3")[: 4 * ranks]
    prefill = replica(instance, "prefill", ("r0g7",), batch=8)
    slow, quick = (
        evaluate(instance, Layout(replicas=(prefill, replica(instance, "decode", chips, ranks))))
        for chips in (wide, near)
    )
    assert not slow.violations
    assert slow.tpot_s is not None
    assert quick.tpot_s is not None
    layers, hidden = len(instance.model.layers), instance.operations.hidden_size
    tensor = BATCH / ranks * hidden * 2
    rate = instance.cluster.rate("all-reduce", wide[:4])
    efficiency = instance.profile.for_chip("h100")
    part = slow.priced.replicas[1].stages[0].parts["all_reduce"]
    ramp = efficiency.reduce_ramp_s * 2 / 3 * tensor / (tensor + 2**20)
    once = rate.latency_s + ramp + tensor * rate.s_per_byte / efficiency.all_reduce
    assert part == pytest.approx(2 * layers * once)
    assert part > quick.priced.replicas[1].stages[0].parts["all_reduce"]
    out = ranks * 2 * layers * tensor / slow.tpot_s
    assert slow.priced.passes.out.tolist() == pytest.approx([out, out])
    assert not quick.priced.passes.out.any()


def test_attention_apart_from_its_experts_keeps_a_rank_in_one_domain() -> None:
    instance = asked("gpt-oss-20b")
    chips = [f"r{domain}g{place}" for domain in (0, 1) for place in range(4)]
    layout = lying(instance, chips[:2] + chips[4:6], chips[2:4], batches=2, per_rank=16)
    (one,) = layout.replicas
    shape = one.shape.model_copy(update={"tp": 4, "attention_dp": 1, "batch": 64})
    kv = (KvShare(chip="r0g0", sequences=64),)
    wide = layout.model_copy(
        update={"replicas": (one.model_copy(update={"shape": shape, "kv": kv}),)}
    )
    broken = [
        str(one) for one in evaluate(instance, wide).violations if one.rule == "shape_matches"
    ]
    assert any("tp shards lie in different domains" in line for line in broken)


@pytest.mark.parametrize(
    ("engine", "command"),
    [
        ("sglang", "python3 -m sglang.launch_server --model-path m --tp 16 --nnodes 2 --node-rank 0 --max-running-requests 64"),
        ("vllm", "vllm serve m --tensor-parallel-size 16 --max-num-seqs 64"),
    ],
)  # fmt: skip
def test_a_server_of_two_nodes_is_read_and_written(
    engine: str, command: str, tmp_path: Path
) -> None:
    instance = under_engine(asked("deepseek-v3"), engine)
    servers = found(engine, "run.sh", command + "\n", tmp_path)
    imported = build_layout(instance, servers)
    assert any("tp 16 find no room in one domain each: 8 chips" in note for note in imported.notes)
    first = evaluate(instance, imported.layout)
    assert not [one for one in first.violations if one.rule != "engine_runs"]
    exported = export_layout(instance, imported.layout, engine)
    write_files(exported.files, tmp_path / "out")
    again = import_deployment(instance, engine, tmp_path / "out").layout
    assert evaluate(instance, again).usd_per_m_output_tokens == first.usd_per_m_output_tokens


def test_a_rank_takes_equal_parts_of_domains_that_are_not_whole(tmp_path: Path) -> None:
    workload = Workload(input_tokens=1000, output_tokens=200)
    scenario = Scenario(
        model="llama-3.1-8b", cluster="hgx-h100@3", workload=workload, failed=("r0g1",)
    )
    instance = resolve_instance(scenario)
    servers = found("vllm", "run.sh", "vllm serve m -tp 16 --max-num-seqs 64\n", tmp_path)
    (one,) = build_layout(instance, servers).layout.replicas
    homes = [chip.split("g")[0] for chip in one.chips]
    assert homes == ["r1"] * 8 + ["r2"] * 8


def test_the_proof_says_which_of_such_ranks_it_leaves_out() -> None:
    line = "not covered: attention ranks over several domains with unequal numbers of chips in each"
    for cluster, said in (("hgx-h100@2", True), ("hgx-h100", False)):
        certificate = search(asked(cluster=cluster), clock=Clock()).certificate
        assert (line in certificate.covers) is said


def searched_anew(question: Scenario) -> SearchResult:
    """The answer of a search that keeps nothing of others."""
    found = Search(resolve_instance(question), Clock(), 0.01, 0, None).run()
    assert found is not None
    return found


@pytest.mark.parametrize("engine", [None, "vllm", "sglang", "trtllm"])
def test_a_tight_target_takes_a_rank_of_two_nodes(
    engine: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """43 ms is the least that eight chips reach: nothing else fits, and on four nodes other layouts cost much more at 45 ms."""
    workload = Workload(input_tokens=2000, output_tokens=500)
    question = Scenario(
        model="llama-3.1-405b", cluster="hgx-h100@2", workload=workload, pay="used",
        slo=Slo(ttft=5.0, tpot=0.04), engine=engine,
    )  # fmt: skip
    found = search(resolve_instance(question), clock=Clock())
    assert found.status == "optimal"
    (replica,) = found.layout.replicas
    assert (replica.role, replica.shape.tp, replica.shape.pp) == ("mixed", 16, 1)
    more = question.model_copy(
        update={"cluster": "hgx-h100@4", "slo": Slo(ttft=5.0, tpot=0.045), "engine": None}
    )
    if engine is None:
        found = search(resolve_instance(more), clock=Clock())
        assert ("decode", 16) in {(r.role, r.shape.tp) for r in found.layout.replicas}
        monkeypatch.setattr(shapes, "ranks_may_span", lambda *_: False)
        with pytest.raises(NoFeasibleLayout, match=r"43\.4 ms is the least"):
            searched_anew(question)
        wide = found.evaluation.usd_per_m_output_tokens
        narrow = searched_anew(more).evaluation.usd_per_m_output_tokens
        assert wide is not None
        assert narrow is not None
        assert wide < 0.6 * narrow
