"""95 configs of released models as a public package carries them: all read, sizes as their names say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costmodel.models import load_model
from costmodel.models.spec import Attention
from costmodel.models.summary import summarise
from tests.costmodel.models.named_sizes import EXPLAINED, off
from tests.costmodel.models.test_mutated_lists import PACKAGED, _read


def test_all_are_read_and_are_as_large_as_their_names_say() -> None:
    assert len(PACKAGED) == 95
    wrong = {name for name, entry in PACKAGED.items() if off(name, summarise(_read(name, entry)))}
    assert wrong == set(EXPLAINED)


def test_muse_glimmer_has_an_output_gate_four_norms_and_windows() -> None:
    name = "meta-models--Muse-Glimmer-30B"
    spec = _read(name, PACKAGED[name])
    h, heads, kv, width, layers = 6656, 32 * 128, 2 * 128, 19968, 52
    layer = h * (3 * heads + 2 * kv + 3 * width + 4)  # query, gate and output; key and value; FFN
    assert summarise(spec).total_params == layers * layer + 2 * 202048 * h + h
    attentions = [
        part for la in spec.layers for part in la.sublayers if isinstance(part, Attention)
    ]
    assert [part.window for part in attentions] == [2048, 2048, 2048, None] * 13
    assert not [note for note in spec.notes if "not understood" in note and "layer_rope" in note]


def test_no_quantised_config_leaves_a_doubt() -> None:
    for name, entry in PACKAGED.items():
        doubts = [w for w in _read(name, entry).warnings if "quantisation settings" in w]
        assert doubts == [], name


@pytest.mark.parametrize(("size", "warns"), [(509_300_000_000, False), (475_300_000_000, True)])
def test_the_index_beside_a_config_checks_the_count(tmp_path: Path, size: int, warns: bool) -> None:
    folder = tmp_path / "flash"
    folder.mkdir()
    entry = PACKAGED["deepseek-ai--DeepSeek-V4.1-Flash"]
    (folder / "config.json").write_text(json.dumps(entry["config"]))
    index = {"metadata": {"total_size": size}, "weight_map": {}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    spec = load_model(folder)
    assert "the checkpoint's index states" in spec.notes[0]
    assert bool([w for w in spec.warnings if "index states" in w]) is warns
