"""Every decoder class of transformers, as counted on the meta device, beside what is read here."""

from __future__ import annotations

import pytest

from costmodel.models.load import read_model
from costmodel.models.spec import Attention, LinearState
from costmodel.models.summary import summarise
from tests.costmodel.models.architectures import (
    CACHE_QUIRKS,
    ENCODERS,
    HALVES_OF_ENCODER_DECODERS,
    REFUSED,
    counts,
    decoders,
    quirk,
)
from topology.errors import InstanceError

_BUILT = [
    (kind, variant)
    for kind, entry in decoders().items()
    for variant, found in entry["variants"].items()
    if "params" in found
]
_READ = [(kind, variant) for kind, variant in _BUILT if kind not in REFUSED]


@pytest.mark.parametrize("kind", sorted({kind for kind, _ in _READ}))
def test_parameters_and_cache_are_the_class_s(kind: str) -> None:
    for variant, found in decoders()[kind]["variants"].items():
        if "params" not in found:
            continue
        reason = quirk(kind, variant)
        try:
            spec = read_model(found["config"], kind, f"{kind} {variant}")
        except InstanceError:
            assert reason is not None, variant
            continue
        right = summarise(spec).total_params == pytest.approx(found["params"], rel=5e-3)
        assert right or reason, variant
        parts = [part for layer in spec.layers for part in layer.sublayers]
        for length, tensors in found.get("cache", {}).items():
            ours = sum(
                part.stored_tokens(int(length)) * part.kv_elements
                + part.index_elements * int(length)
                for part in parts
                if isinstance(part, Attention)
            )
            names = ("keys", "values", "key_cache", "value_cache", "indexer_keys")
            grown = sum(num for name, num in tensors.items() if name in names)
            has_state = any(isinstance(part, LinearState) for part in parts)
            same = ours == grown and has_state == (set(tensors) - set(names) != set())
            assert same or kind in CACHE_QUIRKS, (variant, length)


def test_a_class_that_is_not_read_is_refused_by_name() -> None:
    refused = (
        {kind for kind, _ in _BUILT if kind in REFUSED} | ENCODERS | HALVES_OF_ENCODER_DECODERS
    )
    for kind in refused:
        for variant, found in counts().get(kind, {"variants": {}})["variants"].items():
            if "config" in found:
                with pytest.raises(InstanceError, match="read"):
                    read_model(found["config"], kind, f"{kind} {variant}")


def test_nineteen_of_twenty_configs_of_decoders_are_read() -> None:
    assert len(_BUILT) > 400
    assert len(_READ) >= 0.95 * len(_BUILT)
    explained = [pair for pair in _READ if quirk(*pair)]
    assert len(explained) <= 0.05 * len(_BUILT)


def test_qwen3_moe_without_head_dim_takes_hidden_size_over_heads() -> None:
    config = decoders()["qwen3_moe"]["variants"]["default"]["config"]
    assert "head_dim" not in config
    spec = read_model(config, "qwen3_moe", "config.json")
    attention = next(p for p in spec.layers[0].sublayers if isinstance(p, Attention))
    assert attention.decode_qk_dim == config["hidden_size"] // config["num_attention_heads"] == 64


def test_gated_ffn_with_squared_relu_has_three_matrices() -> None:
    found = decoders()["bitnet"]["variants"]["default"]
    assert found["config"]["hidden_act"] == "relu2"
    spec = read_model(found["config"], "bitnet", "config.json")
    assert summarise(spec).total_params == found["params"]
