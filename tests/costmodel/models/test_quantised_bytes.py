"""Bytes of quantised checkpoints as they are read, beside a count that knows no reader (bits.py)."""

from __future__ import annotations

import pytest

from costmodel.models.load import read_model
from costmodel.models.summary import summarise
from tests.costmodel.models.bits import BY_HAND, SHAPES, counted_bytes
from tests.costmodel.models.test_mutated_lists import PACKAGED


@pytest.mark.parametrize("name", sorted({*SHAPES, *BY_HAND}))
def test_bytes_are_what_bits_per_module_say(name: str) -> None:
    entry = PACKAGED[name]
    spec = read_model(entry["config"], name, name, beside=entry.get("beside"))
    assert summarise(spec).weight_bytes == pytest.approx(counted_bytes(name), rel=0.02)


def test_every_quantised_config_is_counted() -> None:
    quantised = {
        name
        for name, entry in PACKAGED.items()
        if "beside" in entry
        or entry["config"].get("quantization_config")
        or (entry["config"].get("text_config") or {}).get("quantization_config")
    }
    assert quantised == set(SHAPES) | set(BY_HAND)
    assert len(quantised) == 56
