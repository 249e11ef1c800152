"""What was priced with drafted tokens is launched with as many."""

import json

import pytest
import yaml

from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.speculation import Speculative
from costmodel.question.workload import Workload
from rackfit.exporters.export import ExportError, export_layout, write_files
from rackfit.exporters.launch.deployment import ExportOptions
from rackfit.exporters.launch.options import option_table
from rackfit.importers.deployment import import_deployment
from tests.rackfit.exporters.loaders import trtllm_problems
from topology.catalogue import data_dir


@pytest.fixture(scope="module")
def asked():
    """A mixed replica of GLM-4.5-Air on one node that drafts two tokens."""
    scenario = Scenario(
        model="glm-4.5-air",
        cluster="hgx-h200",
        workload=Workload(input_tokens=2000, output_tokens=500),
        speculative=Speculative(draft_tokens=2, acceptance=0.7),
    )
    instance = resolve_instance(scenario)
    return instance, plain_layout(instance, "mixed", tp=8, attention_dp=1, batch=16)


@pytest.fixture(scope="module")
def files(asked):
    """Files of it, by target."""
    return lambda target: export_layout(*asked, target, allow_approximate=True).files


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_a_command_with_drafts_is_read_back(asked, files, engine, tmp_path):
    """vLLM's option is JSON, which its reader was said to take for a number."""
    write_files(files(engine), tmp_path / "out")
    (read,) = import_deployment(asked[0], engine, tmp_path / "out").layout.replicas
    assert read.shape.batch == 16


def test_vllm_and_sglang_draft_as_many_tokens(files):
    words = files("vllm")["commands.sh"]
    start = words.index("--speculative-config")
    text = words[start : words.index("}", start) + 1].split(" ", 1)[1].strip("'\"")
    assert json.loads(text) == {"method": "mtp", "num_speculative_tokens": 2}
    words = files("sglang")["commands.sh"].replace("\\\n", " ").split()
    values = {word: words[place + 1] for place, word in enumerate(words[:-1])}
    assert values["--speculative-num-steps"] == "2"
    assert values["--speculative-num-draft-tokens"] == "3"
    assert values["--speculative-eagle-topk"] == "1"
    for engine in ("vllm", "sglang"):
        names = [name for name in option_table(engine).options if "speculative" in name]
        assert names


def test_tensorrt_llm_has_room_for_drafts_in_a_pass(files):
    (engine,) = [
        yaml.safe_load(text) for name, text in files("trtllm").items() if name.startswith("engine-")
    ]
    drafts = {"decoding_type": "MTP", "max_draft_len": 2}
    assert engine["speculative_config"] == drafts
    assert engine["max_num_tokens"] >= 3 * 16


@pytest.mark.parametrize(
    ("draft", "names"),
    [
        ("qwen3-32b-eagle3", {"vllm": "eagle3", "sglang": "EAGLE3", "trtllm": "Eagle3"}),
        ("qwen3-8b", {"vllm": "draft_model", "sglang": "STANDALONE", "trtllm": "Draft_Target"}),
    ],
)
@pytest.mark.parametrize("path", ["", "/elsewhere/head"])
def test_what_drafts_beside_the_model_is_named(draft, names, path, tmp_path):
    scenario = Scenario(
        model="qwen3-32b",
        cluster="hgx-h200",
        workload=Workload(input_tokens=2000, output_tokens=500),
        speculative=Speculative(draft_tokens=3, acceptance=0.7, draft=draft),
    )
    instance = resolve_instance(scenario)
    layout = plain_layout(instance, "mixed", tp=8, attention_dp=1, batch=16)
    options = ExportOptions("/srv/qwen3-32b", draft_path=path)
    where = path or f"/srv/{draft}"
    told = {}
    for engine in names:
        files = export_layout(instance, layout, engine, options, allow_approximate=True).files
        write_files(files, tmp_path / engine)
        # what is read back is what was priced
        read = import_deployment(instance, engine, tmp_path / engine)
        assert not [note for note in read.notes if "drafts" in note]
        told[engine] = "\n".join(files.values()).replace("\\\n", " ")
    vllm = {"method": names["vllm"], "num_speculative_tokens": 3, "model": where}
    assert json.dumps(vllm) in told["vllm"]
    assert f"--speculative-algorithm {names['sglang']} " in " ".join(told["sglang"].split())
    assert f"--speculative-draft-model-path {where}" in " ".join(told["sglang"].split())
    (engine,) = [yaml.safe_load(text) for name, text in files.items() if name.startswith("engine-")]
    assert engine["speculative_config"] == {
        "decoding_type": names["trtllm"], "max_draft_len": 3, "speculative_model": where,
    }  # fmt: skip
    assert engine.get("disable_overlap_scheduler", False) == (draft == "qwen3-8b")
    facts = option_table("trtllm").data
    assert trtllm_problems(engine, facts["fields"], facts["choices"]) == []


def test_tensorrt_llm_refuses_heads_of_the_first_eagle(tmp_path):
    head = json.loads((data_dir("drafts") / "qwen3-32b-eagle3.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps(head | {"architectures": ["EagleLlamaForCausalLM"]}))
    scenario = Scenario(
        model="qwen3-32b",
        cluster="hgx-h200",
        workload=Workload(input_tokens=2000, output_tokens=500),
        speculative=Speculative(draft_tokens=3, acceptance=0.7, draft=str(path)),
    )
    instance = resolve_instance(scenario)
    layout = plain_layout(instance, "mixed", tp=8, attention_dp=1, batch=16)
    with pytest.raises(ExportError, match="a head of the first EAGLE"):
        export_layout(instance, layout, "trtllm", allow_approximate=True)
    words = export_layout(instance, layout, "vllm", allow_approximate=True).files["commands.sh"]
    assert '"method": "eagle"' in words


def test_sglang_refuses_a_draft_model_beside_attention_in_ranks():
    """Its server ends at once with such options; a head drafts there."""
    for draft, refused in (("deepseek-v3", True), ("deepseek-v3-eagle3", False)):
        scenario = Scenario(
            model="deepseek-v3",
            cluster="hgx-b200",
            workload=Workload(input_tokens=2000, output_tokens=500),
            weight_dtype="fp4",
            speculative=Speculative(draft_tokens=3, acceptance=0.7, draft=draft),
        )
        instance = resolve_instance(scenario)
        for ranks in (1, 8):
            layout = plain_layout(instance, "mixed", tp=8 // ranks, attention_dp=ranks, batch=16)
            if refused and ranks > 1:
                with pytest.raises(ExportError, match="one rank would do"):
                    export_layout(instance, layout, "sglang", allow_approximate=True)
            elif not refused:
                export_layout(instance, layout, "sglang", allow_approximate=True)


def test_a_port_of_an_engine_drafts_as_the_engine_does():
    """vLLM-Ascend takes vLLM's options, and no question is priced under it."""
    scenario = Scenario(
        model="qwen3-32b",
        cluster="cloudmatrix384",
        workload=Workload(input_tokens=2000, output_tokens=500),
        speculative=Speculative(draft_tokens=3, acceptance=0.7, draft="qwen3-32b-eagle3"),
    )
    instance = resolve_instance(scenario)
    layout = plain_layout(instance, "mixed", tp=8, attention_dp=1, batch=16)
    files = export_layout(instance, layout, "vllm-ascend", allow_approximate=True).files
    assert '"method": "eagle3"' in "".join(files.values())
