"""Options as the engines' own parsers take them, files of options, and words that guides leave to their readers."""

from __future__ import annotations

from pathlib import Path

import pytest

from costmodel.evaluate import evaluate
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.exporters.export import export_layout, write_files
from rackfit.exporters.launch.engine_limits import under_engine
from rackfit.importers.change import placed_anew
from rackfit.importers.deployment import build_layout
from rackfit.importers.files import read_servers
from rackfit.importers.servers import FoundServer
from rackfit.importers.unpriced import Drafts, remark, weight_format
from tests.rackfit.importers.test_wrapped import found
from topology.errors import InstanceError


def one(engine: str, text: str, folder: Path) -> FoundServer:
    (server,) = found(engine, "run.sh", text, folder)
    return server


def test_vllm_takes_underscores_beginnings_and_keys_behind_dots(tmp_path: Path) -> None:
    """As its ``FlexibleArgumentParser`` does; guides for MTP and multimodal models are full of them."""
    server = one(
        "vllm",
        "vllm serve zai-org/GLM-4.7-FP8 --tensor_parallel_size 8 --max-num-seq 64 --speculative-config.method mtp "
        "--speculative_config.num_speculative_tokens=2 --eplb-config.num_redundant_experts 8 --no-enable-expert-parallel "
        "--limit-mm-per-prompt.video 0 -cc.pass_config.fuse_rope_kvcache=True --compilation-config.sizes+ 1,2\n",
        tmp_path,
    )
    assert (server.tp, server.batch, server.spare) == (8, 64, 8)
    assert server.drafts == Drafts("mtp", 2)
    assert server.sharded_experts
    assert server.weights == "fp8"
    assert not server.notes
    nested = (
        "vllm serve m -tp 2 --kv-transfer-config.kv_role kv_producer --kv-transfer-config.a.b.c 1"
    )
    assert one("vllm", nested, tmp_path).role == "prefill"
    deep = "vllm serve m -tp 2 --kv-transfer-config" + ".a" * 4000 + " 1"
    assert "not understood: --kv-transfer-config.a" in one("vllm", deep, tmp_path).notes[0]


def test_a_word_that_begins_several_options_is_none_of_them(tmp_path: Path) -> None:
    server = one("vllm", "vllm serve m -tp 2 --data-parallel 8\n", tmp_path)
    assert server.attention_dp == 1
    assert server.notes == ("run.sh:1: not understood: --data-parallel",)


def test_sglang_takes_beginnings_and_names_values_of_other_versions(tmp_path: Path) -> None:
    command = "python -m sglang.launch_server --model-path m --tp 8 --speculative-algo EAGLE --speculative-num-steps 3"
    server = one(
        "sglang", f"{command} --reasoning-parser of-tomorrow --tp_extra 3> log.txt\n", tmp_path
    )
    assert server.drafts == Drafts("eagle", 3)
    assert server.notes == ("run.sh:1: not understood: --tp_extra, --reasoning-parser of-tomorrow",)
    with pytest.raises(InstanceError, match="--moe-a2a-backend: expected one of"):
        one("sglang", f"{command} --moe-a2a-backend of-tomorrow", tmp_path)
    joined = one("sglang", f"{command} --disable-radix-cache> log.txt 2>&1 &\n", tmp_path)
    assert not joined.notes


def test_words_that_a_guide_leaves_to_its_reader(tmp_path: Path) -> None:
    command = "vllm serve org/model --port <prefill_port> -tp 2 --data-parallel-size <ranks>\n"
    with pytest.raises(InstanceError, match="--data-parallel-size: is <ranks>, which the file"):
        one("vllm", command, tmp_path)
    server = one("vllm", command.replace("<ranks>", "4 < /dev/null"), tmp_path)
    assert (server.tp, server.attention_dp) == (2, 4)
    assert server.notes == ("run.sh:1: left out, as only the shell knows their values: --port",)


OPTIONS = "tensor-parallel-size: 4\nenable-expert-parallel: true\nspeculative-config: {method: mtp, num_speculative_tokens: 1}\n"


@pytest.mark.parametrize("written", [True, False], ids=["here-document", "beside"])
def test_a_file_of_options_counts_and_the_command_over_it(written: bool, tmp_path: Path) -> None:
    text = "vllm serve m --config $DIR/options.yaml --max-num-seqs 32 -tp 8\n"
    if written:
        text = f"DIR=conf\ncat > $DIR/options.yaml <<EOF\n{OPTIONS}EOF\n{text}"
    else:
        (tmp_path / "options.yaml").write_text(OPTIONS)
        text = f"DIR=/elsewhere\n{text}"
    server = one("vllm", text, tmp_path)
    assert (server.tp, server.batch, server.sharded_experts) == (8, 32, False)
    assert server.drafts == Drafts("mtp", 1)
    assert not server.notes
    assert one("vllm", text.replace(" -tp 8", ""), tmp_path).tp == 4


def test_a_file_of_options_that_is_not_there_is_named(tmp_path: Path) -> None:
    server = one("vllm", "vllm serve m -tp 2 --config gone.yaml\n", tmp_path)
    assert server.notes == ("run.sh:1: options in the file of --config are not read",)
    (tmp_path / "gone.yaml").write_text("- 1\n")
    with pytest.raises(InstanceError, match="expected options, each with its value"):
        one("vllm", "vllm serve m -tp 2 --config gone.yaml\n", tmp_path)


def test_trtllm_takes_options_and_its_file_over_them(tmp_path: Path) -> None:
    """Written anew after scripts of InferenceX (benchmarks/single_node): a file from a here-document, sizes as options."""
    text = """CONC=16
MAX_BATCH=$(( CONC > 64 ? CONC : 64 ))
cat << EOF > extra.yaml
cuda_graph_config: {enable_padding: true, batch_sizes: [${LIST%, }]}
enable_attention_dp: true
kv_cache_config:
    dtype: fp8
EOF
mpirun -n 1 --oversubscribe trtllm-serve nvidia/DeepSeek-R1-NVFP4-v2 --port=8000 --trust_remote_code --backend=pytorch \\
    --max_batch_size $MAX_BATCH --max_num_tokens=4096 --tp_size=8 --ep_size 8 \\
    --kv_cache_free_gpu_memory_fraction 0.8 --extra_llm_api_options=extra.yaml > $SERVER_LOG 2>&1 &
printf '%q ' trtllm-serve x | tee log
"""
    server = one("trtllm", text, tmp_path)
    assert (server.tp, server.attention_dp, server.batch) == (1, 8, 64 * 8)
    assert (server.prefill_tokens, server.kv_dtype, server.memory_fraction) == (4096, "fp8", 0.8)
    assert (server.weights, server.sharded_experts) == ("fp4", False)
    assert not server.notes
    again = text.replace(
        "    dtype: fp8\n", "    free_gpu_memory_fraction: 0.6\nmax_batch_size: 4\n"
    )
    assert (
        one("trtllm", again, tmp_path).memory_fraction,
        one("trtllm", again, tmp_path).batch,
    ) == (
        0.6,
        4 * 8,
    )
    for value in (
        "'false'",
        "$DP_ATTENTION",
    ):  # a word is no yes; the engine reads the first as a no
        open_flag = text.replace("enable_attention_dp: true", f"enable_attention_dp: {value}")
        with pytest.raises(InstanceError, match="enable_attention_dp: expected true or false, got"):
            one("trtllm", open_flag, tmp_path)
    alone = one("trtllm", "trtllm-serve serve org/m --tp_size 4\n", tmp_path)
    assert (alone.tp, alone.sharded_experts, alone.weights) == (4, True, None)


@pytest.mark.parametrize(
    ("quantization", "model", "weights"),
    [
        (None, "nvidia/DeepSeek-R1-FP4", "fp4"),
        (None, "/models/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic/", "fp8"),
        (None, "org/Kimi-K2.5-MXFP4", "fp4"),
        (None, "org/model-AWQ", "int4"),
        ("fp8", "org/model-AWQ", "fp8"),
        (None, "deepseek-ai/DeepSeek-R1", None),
        (None, None, None),
    ],
)
def test_names_of_checkpoints_say_their_format(
    quantization: str | None, model: str | None, weights: str | None
) -> None:
    assert weight_format(quantization, model) == weights


@pytest.mark.parametrize("method", ["mtp", "nextn", "deepseek_mtp", "ernie_mtp", "qwen3_next_mtp"])
def test_modules_of_the_model_itself_are_told_from_others(method: str) -> None:
    from costmodel.question.speculation import Speculative

    own = Speculative(draft_tokens=1, acceptance=0.8)
    beside = own.model_copy(update={"draft": "qwen3-32b-eagle3"})
    assert remark("x", Drafts(method, 1), own) == ()
    assert remark("x", Drafts(method, 1), beside)
    for other in ("eagle3", "ngram", "dspark"):
        assert remark("x", Drafts(other, 1), own)
    assert remark("x", Drafts("ngram", 1), beside)
    assert remark("x", Drafts("eagle", 1), own) == remark("x", Drafts("eagle", 1), beside) == ()


def test_fewer_sequences_than_stages_are_priced_as_one_for_each(tmp_path: Path) -> None:
    asked = {"model": "llama-3.1-405b", "cluster": "hgx-h200@4", "workload": "chat"}
    instance = resolve_instance(Scenario.model_validate(asked))
    server = one("vllm", "vllm serve m -tp 8 -pp 2 --max-num-seqs 1\n", tmp_path)
    told = build_layout(instance, [server])
    assert told.layout.replicas[0].shape.batch == 2
    assert (
        "run.sh:1: 2 sequences are priced for 1, 1 on each of 1 ranks in each of 2 microbatches"
        in told.notes
    )


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_experts_that_a_server_cuts_are_priced_cut_and_written_so(
    engine: str, tmp_path: Path
) -> None:
    """A server without expert parallelism: its layout, the files that are exported of it, and these read again."""
    asked = {"model": "qwen3-30b-a3b", "cluster": "hgx-h200", "workload": "chat"}
    instance = under_engine(resolve_instance(Scenario.model_validate(asked)), engine)
    command = {
        "vllm": "vllm serve m -tp 4 --max-num-seqs 32",
        "sglang": "python -m sglang.launch_server --model-path m --tp 4 --max-running-requests 32",
        "trtllm": "trtllm-serve m --tp_size 4 --max_batch_size 32",
    }[engine]
    told = build_layout(instance, [one(engine, command, tmp_path)])
    (replica,) = told.layout.replicas
    assert replica.cuts_experts
    assert replica.shape.ep == 1
    assert not told.layout.expert_maps
    assert not [note for note in told.notes if "expert" in note]
    before = evaluate(instance, told.layout)
    assert not before.violations
    exported = export_layout(instance, told.layout, engine)
    assert exported.loss == 0.0
    write_files(exported.files, tmp_path / "out")
    again = build_layout(instance, read_servers(engine, tmp_path / "out"))
    assert again.layout.replicas[0].cuts_experts
    assert evaluate(instance, again.layout).tpot_s == pytest.approx(before.tpot_s, rel=1e-12)
    kept, why = placed_anew(instance, told.layout)
    assert (kept, why) == (None, "each expert is cut over all chips; there is none to place")


def test_experts_that_cannot_be_cut_evenly_are_priced_whole(tmp_path: Path) -> None:
    asked = {
        "model": "qwen3-30b-a3b",
        "cluster": "hgx-h200",
        "workload": "chat",
        "failed": ["r0g7"],
    }
    instance = resolve_instance(Scenario.model_validate(asked))
    seven = FoundServer("x", "mixed", tp=1, attention_dp=7, pp=1, batch=7, sharded_experts=True)
    told = build_layout(instance, [seven])
    assert told.layout.replicas[0].shape.ep == 7
    assert any("768 columns of an expert are not cut evenly over 7 chips" in n for n in told.notes)


def test_a_cut_through_blocks_of_scales_is_told(tmp_path: Path) -> None:
    """FP8 experts of 768 columns in blocks of 128: slices of 192 do not load, those of 384 do."""
    asked = {"model": "qwen3-30b-a3b-fp8", "cluster": "hgx-h200", "workload": "chat"}
    instance = resolve_instance(Scenario.model_validate(asked))
    for tp, loads in ((2, True), (4, False)):
        server = FoundServer(
            "x", "mixed", tp=tp, attention_dp=1, pp=1, batch=4, sharded_experts=True
        )
        told = build_layout(instance, [server])
        assert told.layout.replicas[0].cuts_experts == loads
        assert any("in blocks of 128, which engines do not load" in n for n in told.notes) != loads


@pytest.mark.parametrize("name", ["{}/secret.yaml", "../secret.yaml", "sub/../../secret.yaml"])
def test_files_of_other_places_are_not_read(name: str, tmp_path: Path) -> None:
    """A command comes from elsewhere; what lies on the machine beside its folder is not read."""
    (tmp_path / "secret.yaml").write_text("tensor-parallel-size: 8\nmoe_config: {}\n")
    folder = tmp_path / "commands"
    (folder / "sub").mkdir(parents=True)
    path = name.format(tmp_path)
    server = one("vllm", f"vllm serve m -tp 2 --config {path}\n", folder)
    assert server.tp == 2
    assert server.notes == ("run.sh:1: options in the file of --config are not read",)
    location = f"python -m sglang.launch_server --tp 2 --init-expert-location {path}\n"
    with pytest.raises(InstanceError, match="no such file beside the command"):
        one("sglang", location, folder)
    with pytest.raises(InstanceError, match="no such file"):
        one("trtllm", f"trtllm-serve m --config {path}\n", folder)
    balancer = f"cat > c.yaml <<EOF\nmoe_config: {{load_balancer: {path}}}\nEOF\ntrtllm-serve m --config c.yaml\n"
    with pytest.raises(InstanceError, match="no such file"):
        one("trtllm", balancer, folder)
    (tmp_path / "map.yaml").write_text("num_slots: 8\n")
    written = f"cat > {tmp_path}/c.yaml <<EOF\nmoe_config: {{load_balancer: map.yaml}}\nEOF\n"
    with pytest.raises(InstanceError, match="no such file"):
        one("trtllm", f"{written}trtllm-serve m --config {tmp_path}/c.yaml\n", folder)
    (folder / "secret.yaml").write_text("tensor-parallel-size: 4\n")
    assert one("vllm", f"vllm serve m --config {path}\n", folder).tp == 4
