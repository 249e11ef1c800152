"""Heads and models that draft for another: their parameters, what they hold and cost, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costmodel.models import load_model
from costmodel.models.drafts import load_drafter
from costmodel.models.spec import Attention, Drafter
from costmodel.models.summary import bytes_of, layer_bytes, summarise
from costmodel.passes.communication import GroupRates
from costmodel.passes.group import ChipGroup
from costmodel.passes.pass_time import pass_time
from costmodel.passes.tokens import Tokens
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.profile import Efficiency
from costmodel.question.scenario import Scenario, load_scenario
from costmodel.question.speculation import Speculative
from costmodel.question.workload import Workload
from costmodel.replica import memory
from topology.catalogue import catalogue_names, data_dir
from topology.errors import InstanceError

NO_TRAFFIC = GroupRates(*(np.zeros(()) for _ in GroupRates.__dataclass_fields__))
HEADS = catalogue_names("drafts", (".json",))
#: one layer for Llama 3.1 8B, as published heads are
EAGLE3: dict[str, Any] = json.loads((data_dir("drafts") / "llama-3.1-8b-eagle3.json").read_text())


def head_bytes(drafter: Drafter) -> float:
    """Bytes of a head without the embedding of its model."""
    spec = drafter.spec
    return sum(map(layer_bytes, spec.layers)) + bytes_of(spec.head) + bytes_of(drafter.once)


def asked(draft: str | None, model: str = "llama-3.1-70b", cluster: str = "hgx-h200") -> Instance:
    """A question with three drafts, or without any."""
    drafts = None if draft is None else Speculative(draft_tokens=3, acceptance=0.7, draft=draft)
    return resolve_instance(
        Scenario(
            model=model,
            cluster=cluster,
            workload=Workload(input_tokens=2000, output_tokens=500),
            speculative=drafts,
        )
    )


@pytest.mark.parametrize("name", HEADS)
def test_heads_fit_their_models(name: str) -> None:
    drafter = load_drafter(name, load_model(name.partition("-eagle3")[0]))
    assert drafter.kind == "eagle3"
    assert not drafter.spec.embedding
    assert len(drafter.once) == 1


def test_bytes_are_those_of_published_files() -> None:
    """EAGLE3-LLaMA3.1-Instruct-8B has 850 MB; MiniMax-M3-EAGLE3-GQA 6,149,993,396 bytes with an embedding."""
    small = load_drafter("llama-3.1-8b-eagle3", load_model("llama-3.1-8b"))
    assert head_bytes(small) == pytest.approx(850e6, rel=0.001)
    target = load_model("minimax-m3")
    found = head_bytes(load_drafter("minimax-m3-eagle3-gqa", target))
    table = 2 * target.vocab_size * target.hidden_size
    assert found + table == pytest.approx(6_149_993_396, rel=1e-5)


def test_forms_of_a_head(tmp_path: Path) -> None:
    target = load_model("llama-3.1-8b")

    def read(data: dict[str, Any]) -> Drafter:
        path = tmp_path / "head.json"
        path.write_text(json.dumps(data))
        return load_drafter(str(path), target)

    plain = read(EAGLE3)
    layers = {k: v for k, v in EAGLE3.items() if k not in ("architectures", "draft_vocab_size")}
    nested = {
        "speculators_model_type": "eagle3",
        "draft_vocab_size": 32000,
        "transformer_layer_config": layers,
    }
    assert head_bytes(read(nested)) == head_bytes(plain)
    # a head of the first EAGLE: the model's LM head, and its fusion in every run
    old = read({"model_type": "eagle", "model": layers})
    assert (old.kind, old.spec.head, old.once) == ("eagle", (), ())
    square = 2 * 2 * 4096 * 4096  # bytes of two vectors joined
    narrower = 2 * 4096 * (4096 + 2 * 1024)  # of attention that reads one vector instead of two
    own = head_bytes(plain) - bytes_of(plain.spec.head) - bytes_of(plain.once)
    assert head_bytes(old) == pytest.approx(own + square - narrower, rel=1e-4)
    latent = {
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    }
    mla = read(EAGLE3 | latent).spec.layers[0].sublayers[0]
    assert isinstance(mla, Attention)
    down = {w.name: w.params for w in mla.weights}["query down"]
    assert down == 1536 * 2 * 4096


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 5120}, "hidden_size: reads hidden states of 5120, those of llama-3.1-8b have 4096"),
        ({"target_hidden_size": 2048}, "target_hidden_size: reads hidden states of 2048"),
        ({"num_hidden_layers": 40}, "num_hidden_layers: a head has 1 to 8, got 40"),
        ({"intermediate_size": "wide"}, "intermediate_size: expected an integer"),
        ({"draft_vocab_size": -1}, "draft_vocab_size: must be from 1"),
        ({"num_experts": 64}, "num_experts: heads with a mixture of experts are not read"),
        ({"eagle_config": 5}, "eagle_config: expected an object"),
        ({"eagle_aux_hidden_state_layer_ids": ["x"]}, "expected layer numbers"),
        ({"architectures": "LlamaForCausalLMEagle3", "hidden_size": 8}, "reads hidden states of 8"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(EAGLE3 | change))
    with pytest.raises(InstanceError, match=message):
        load_drafter(str(tmp_path), load_model("llama-3.1-8b"))


def test_unknown_names_and_other_tokenizers() -> None:
    target = load_model("llama-3.1-8b")
    with pytest.raises(InstanceError, match="unknown draft 'nobody'; known: deepseek-v3-eagle3"):
        load_drafter("nobody", target)
    with pytest.raises(InstanceError, match="drafts need the tokenizer of the model"):
        load_drafter("qwen3-8b", target)
    # tables of one tokenizer may be padded otherwise
    assert load_drafter("qwen2.5-7b", load_model("qwen2.5-72b")).kind == "model"


@pytest.mark.parametrize("draft", ["llama-3.1-70b-eagle3", "llama-3.1-8b"])
def test_a_draft_is_held_and_takes_its_time(draft: str) -> None:
    instance = asked(draft)
    held = float(memory.draft_weight_bytes(instance.operations, 1.0, 8.0))
    drafter = instance.model.drafter
    assert drafter is not None
    published = (
        summarise(drafter.spec).weight_bytes if drafter.kind == "model" else head_bytes(drafter)
    )
    vectors = 1e-3  # norms lie on every chip and are no product
    assert held == pytest.approx(published, rel=vectors)
    # one sequence: three runs read layers and head three times, the fusion once, beside the model's own head
    operations, chip = instance.operations, instance.cluster.chips[0].chip
    group = ChipGroup.of(operations, 1, 1, chip, Efficiency(), NO_TRAFFIC)
    timed = pass_time(group, [], Tokens(decode=1.0, context=1.0, verified=4.0), [], record=True)
    layers = sum(part.weight_bytes for kind, count in operations.draft.layers for part in kind.matmuls
                 for _ in range(int(count)))  # fmt: skip
    once = sum(part.weight_bytes for part in operations.draft.once)
    head = sum(part.weight_bytes for part in operations.draft.own.head)
    read = operations.head_bytes + 3 * (layers + head) + once
    assert float(timed.total_s("per_op")) == pytest.approx(read / chip.hbm_bytes_per_s, rel=0.01)


BLOCK = "drafts a whole block of tokens in one pass"
UNKNOWN = "is no draft that is known: EAGLE and EAGLE-3 heads and whole text generators"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architectures": ["DFlashDraftModel"], "dflash_config": {"mask_token_id": 1}, "block_size": 16},
         f"dflash_config: says that 'DFlashDraftModel' {BLOCK}"),
        ({"architectures": ["DSparkDraftModel"], "block_size": 7}, f"block_size: says that 'DSparkDraftModel' {BLOCK}"),
        ({"architectures": ["Qwen3ForCausalLM"], "num_target_layers": 36}, f"num_target_layers: says .* {BLOCK}"),
        ({"architectures": ["LlamaForCausalLM"], "pard_token": 7}, f"pard_token: says that 'LlamaForCausalLM' {BLOCK}"),
        ({"ptd_token_id": 7}, f"ptd_token_id: says that 'LlamaForCausalLMEagle3' {BLOCK}"),
        ({"architectures": ["PEagleDraftModel"]}, f"architectures: 'PEagleDraftModel' {BLOCK}"),
        ({"speculators_model_type": "p-eagle"}, f"speculators_model_type: 'p-eagle' {BLOCK}"),
        ({"architectures": [], "speculators_model_type": "mlp"}, f"speculators_model_type: 'mlp' {UNKNOWN}"),
        ({"architectures": ["DominoDraftModel"]}, f"architectures: 'DominoDraftModel' {UNKNOWN}"),
        ({"architectures": ["MedusaModel"], "model_type": "medusa"}, f"architectures: 'MedusaModel' {UNKNOWN}"),
    ],
)  # fmt: skip
def test_other_drafts_are_refused_by_name(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(EAGLE3 | change))
    with pytest.raises(InstanceError, match=message):
        load_drafter(str(path), load_model("llama-3.1-8b"))


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"architectures": ["Eagle3LlamaForCausalLM"]}, "eagle3"),
        ({"architectures": ["Eagle3DraftModel"], "speculators_model_type": "eagle3"}, "eagle3"),
        ({"architectures": ["EagleSpeculator"]}, "eagle"),
        ({"architectures": ["LlamaForCausalLMEagle"]}, "eagle"),
        ({"architectures": ["LlamaForCausalLM"]}, "model"),
        ({"architectures": None}, "model"),
    ],
)
def test_names_of_what_drafts_a_token_in_a_run(
    change: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(EAGLE3 | change))
    assert load_drafter(str(path), load_model("llama-3.1-8b")).kind == kind


def test_warnings_of_a_draft_are_said(tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    path.write_text(
        json.dumps(EAGLE3 | {"architectures": ["LlamaForCausalLM"], "draft_vocab_size": 7})
    )
    found = asked(str(path), model="llama-3.1-8b")
    assert found.model.named_warnings == (
        "small: warning: draft_vocab_size = 7 is not understood and was not used",
    )


def test_the_question_with_a_draft_is_another(tmp_path: Path) -> None:
    (tmp_path / "heads").mkdir()
    (tmp_path / "heads" / "config.json").write_text(json.dumps(EAGLE3))
    (tmp_path / "q.yaml").write_text(
        "model: llama-3.1-8b\ncluster: hgx-h200\nworkload: chat\n"
        "speculative: {draft_tokens: 3, acceptance: 0.7, draft: ./heads}\n"
    )
    scenario = load_scenario(str(tmp_path / "q.yaml"))
    found = resolve_instance(scenario)
    assert found.model.drafter is not None
    assert found.model.drafter.spec.name == "heads"
    wider = EAGLE3 | {"intermediate_size": 28672}
    (tmp_path / "heads" / "config.json").write_text(json.dumps(wider))
    assert resolve_instance(scenario).digest != found.digest
