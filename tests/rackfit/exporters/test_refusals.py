"""What a target cannot say is named and refused; what is deployed instead is priced."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

import rackfit.exporters.registry as registry
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo, Workload
from rackfit.documents.result import Result
from rackfit.exporters.export import export_layout, write_files
from rackfit.exporters.launch.hosts import Hosts, read_host_names
from rackfit.importers.deployment import build_layout
from rackfit.importers.servers import FoundServer
from topology.errors import ExportError, InstanceError


def _instance(model: str, cluster: str) -> Instance:
    return resolve_instance(
        Scenario(
            model=model,
            cluster=cluster,
            workload=Workload(input_tokens=1000, output_tokens=200),
            slo=Slo(),
        )
    )


def _layout(instance: Instance, *servers: FoundServer) -> Layout:
    return build_layout(instance, servers).layout


@pytest.fixture(scope="module")
def moe() -> Instance:
    """A small mixture of experts on two nodes."""
    return _instance("qwen3-30b-a3b", "hgx-h100@2")


def _uneven(instance: Instance) -> Layout:
    """128 experts on three chips of one server: 43, 43 and 42 slots."""
    return _layout(instance, FoundServer("x", "mixed", tp=1, attention_dp=3, pp=1, batch=30))


@pytest.mark.parametrize("target", ["sglang", "trtllm", "vllm-ascend", "dynamo"])
def test_uneven_slots_are_refused_and_padded(moe: Instance, target: str) -> None:
    layout = _uneven(moe)
    with pytest.raises(ExportError, match="42 to 43 expert slots per chip"):
        export_layout(moe, layout, target)
    exported = export_layout(moe, layout, target, allow_approximate=True)
    slots = {stage.slots() for replica in exported.layout.replicas for stage in replica.stages}
    assert slots == {(43, 43, 43)}
    assert exported.deployed.feasible
    assert exported.limits
    assert exported.files


def test_what_ails_many_replicas_is_told_once(moe: Instance) -> None:
    servers = (
        FoundServer(f"x{at}", "mixed", tp=1, attention_dp=3, pp=1, batch=30) for at in range(5)
    )
    with pytest.raises(ExportError) as stop:
        export_layout(moe, _layout(moe, *servers), "sglang")
    (_, line, _) = str(stop.value).splitlines()
    assert line.startswith(
        "  mixed-0 stage 0, mixed-1 stage 0, mixed-2 stage 0 and 2 more: 42 to 43"
    )


def test_trtllm_refuses_attention_split_both_ways(moe: Instance) -> None:
    layout = _layout(moe, FoundServer("x", "mixed", tp=2, attention_dp=2, pp=1, batch=8))
    with pytest.raises(ExportError, match="enable_attention_dp is for all ranks") as stop:
        export_layout(moe, layout, "trtllm", allow_approximate=True)
    assert "--allow-approximate" not in str(stop.value)
    assert "cannot express this layout, nor one near it" in str(stop.value)
    words = export_layout(moe, layout, "sglang").files["commands.sh"]
    assert "--tp-size 4" in words
    assert "--attn-dp-size 2" in words
    assert "--enable-dense-mlp-attn-tp" in words


@pytest.mark.parametrize(
    ("tp", "flag"), [(2, "--enable-dense-mlp-attn-tp"), (1, "--moe-dense-tp-size 1")]
)
def test_sglang_keeps_dense_layers_on_a_rank_beside_cut_experts(
    moe: Instance, tp: int, flag: str
) -> None:
    """They are priced on the rank's own chips; by itself SGLang shards them over all ranks."""
    server = FoundServer(
        "x", "mixed", tp=tp, attention_dp=2, pp=1, batch=8, sharded_experts=True
    )  # fmt: skip
    layout = _layout(moe, server)
    assert layout.replicas[0].cuts_experts
    exported = export_layout(moe, layout, "sglang")
    words = exported.files["commands.sh"]
    assert flag in words
    assert "--ep-size" not in words
    gathered = [note for note in exported.notes if "by collectives" in note]
    (note,) = gathered
    assert note.startswith(f"experts cut over {2 * tp} chips exchange tokens by collectives (none)")
    assert "takes all tokens" in note


def test_trtllm_refuses_spare_slots_without_attention_dp(moe: Instance) -> None:
    layout = _layout(moe, FoundServer("x", "mixed", tp=4, attention_dp=1, pp=1, spare=4, batch=8))
    with pytest.raises(ExportError, match="spare slots have no other place"):
        export_layout(moe, layout, "trtllm", allow_approximate=True)


@pytest.mark.parametrize("target", ["sglang", "dynamo"])
@pytest.mark.parametrize(("model", "spare"), [("mixtral-8x7b", 0), ("qwen3-next-80b-a3b", 4)])
def test_sglang_refuses_what_a_class_does_not_load(model: str, spare: int, target: str) -> None:
    """Mixtral's class reads no placement, Qwen3-Next's has no redundant experts: neither is left out in silence."""
    instance = _instance(model, "hgx-h200")
    server = FoundServer("x", "mixed", tp=1, attention_dp=4, pp=1, spare=spare, batch=8)
    layout = _layout(instance, server)
    turned = {
        name: {layer: row[::-1] for layer, row in rows.items()}
        for name, rows in layout.expert_maps.items()
    }
    layout = layout.model_copy(update={"expert_maps": turned})
    with pytest.raises(ExportError, match=f"the class of {model}"):
        export_layout(instance, layout, target)
    exported = export_layout(instance, layout, target, allow_approximate=True)
    moe = instance.operations.moe
    assert moe is not None
    (replica,) = exported.layout.replicas
    (rows,) = exported.layout.expert_maps.values()
    assert set(rows.values()) == {tuple(range(moe.num_experts))}
    assert {stage.slots() for stage in replica.stages} == {(moe.num_experts // 4,) * 4}


def test_vllm_refuses_stages_in_a_decode_server(moe: Instance) -> None:
    layout = _layout(
        moe,
        FoundServer("p", "prefill", tp=1, attention_dp=1, pp=1, batch=1),
        FoundServer("d", "decode", tp=1, attention_dp=1, pp=2, batch=8),
    )
    with pytest.raises(ExportError, match="2 stages in a decode server"):
        export_layout(moe, layout, "vllm", allow_approximate=True)


def test_vllm_refuses_ranks_of_a_dense_model() -> None:
    instance = _instance("llama-3.1-8b", "hgx-h100")
    layout = _layout(instance, FoundServer("x", "mixed", tp=2, attention_dp=2, pp=1, batch=8))
    with pytest.raises(ExportError, match="data-parallel ranks of a dense model"):
        export_layout(instance, layout, "vllm", allow_approximate=True)
    assert export_layout(instance, layout, "sglang").files


def test_mixed_chips_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "two-kinds.yaml"
    path.write_text(
        "name: two-kinds\ntitle: two kinds of chips in one node\n"
        "domains:\n  - rack: node\n    fabric: {kind: nvswitch, links_per_switch: [5, 4, 4, 5]}\n"
        "    chips:\n      - {chip: h100, count: 4}\n      - {chip: h200, count: 4}\n"
        "provenance: {domains: assumed}\nsources: ['made up for a test']\n"
    )
    instance = _instance("llama-3.1-8b", str(path))
    layout = _layout(instance, FoundServer("x", "mixed", tp=8, attention_dp=1, pp=1, batch=8))
    for target in ("sglang", "trtllm", "vllm", "dynamo"):
        with pytest.raises(ExportError, match="mixes h100, h200"):
            export_layout(instance, layout, target, allow_approximate=True)


def test_a_padded_layout_that_no_longer_fits_is_refused(
    moe: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = _uneven(moe)
    target = registry.exporter("sglang")
    monkeypatch.setattr(
        target,
        "approximate",
        lambda instance, given: given.model_copy(
            update={"replicas": (given.replicas[0], given.replicas[0])}
        ),
    )
    with pytest.raises(ExportError, match=r"breaks a rule: .*is used 2 times"):
        export_layout(moe, layout, "sglang", allow_approximate=True)


def test_two_exporters_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        registry.importlib, "import_module", lambda name: SimpleNamespace(NAME="same")
    )
    with pytest.raises(ExportError, match="two exporters are called 'same'"):
        registry.exporters()


def test_unknown_target_lists_the_known(deepseek: Result) -> None:
    with pytest.raises(InstanceError, match=f"known: {', '.join(sorted(registry.exporters()))}$"):
        export_layout(deepseek.instance, deepseek.layout, "sgalng")


def test_a_broken_layout_is_not_exported(moe: Instance) -> None:
    with pytest.raises(InstanceError, match="no replica"):
        export_layout(moe, Layout(replicas=()), "json")


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    write_files({"a.txt": "a", "sub/b.sh": "#!/bin/sh"}, out)
    assert (out / "sub" / "b.sh").read_text() == "#!/bin/sh"
    assert (out / "sub" / "b.sh").stat().st_mode & 0o100
    with pytest.raises(InstanceError, match="not an empty folder"):
        write_files({"a.txt": "again"}, out)
    assert (out / "a.txt").read_text() == "a"
    with pytest.raises(InstanceError):
        write_files({"good": "1", "good/inside": "2"}, tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new"]


def test_host_names_replace_the_made_up_ones(tmp_path: Path, moe: Instance) -> None:
    path = tmp_path / "hosts.txt"
    path.write_text("# two nodes\nalpha\nbeta.example.org\n")
    hosts = Hosts(moe.cluster, None, read_host_names(path))
    assert hosts.of("r0g7").host == "alpha"
    assert hosts.of("r1g0").host == "beta.example.org"
    with pytest.raises(InstanceError, match="3 names, 3 of them different, for 2 hosts"):
        Hosts(moe.cluster, None, ["a", "b", "c"])
    path.write_text("alpha; rm -rf /\nbeta\n")
    with pytest.raises(InstanceError, match="is not a host name"):
        read_host_names(path)


def test_names_a_user_gives_cannot_escape(moe: Instance) -> None:
    from rackfit.exporters.launch.deployment import ExportOptions

    layout = _layout(moe, FoundServer("x", "mixed", tp=1, attention_dp=1, pp=1, batch=8))
    options = ExportOptions(model_path="/m/$(touch x) 'y'", image="i, kind: {Evil: x} # &a")
    for target in ("sglang", "vllm", "trtllm"):
        line = export_layout(moe, layout, target, options).files["commands.sh"].splitlines()[-1]
        assert "'/m/$(touch x) '\"'\"'y'\"'\"''" in line
    text = export_layout(moe, layout, "dynamo", options).files["deployment.yaml"]
    graph = list(yaml.safe_load_all(text))[-1]
    front = graph["spec"]["services"]["Frontend"]["extraPodSpec"]["mainContainer"]
    assert front["image"] == "i, kind: {Evil: x} # &a"
