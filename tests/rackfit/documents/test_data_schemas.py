"""Shipped data files pass the published schemas, and a schema accepts no more than its reader."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import TypeAdapter

from rackfit.documents.schema import FOLDER
from topology.builders.base import builders
from topology.catalogue import data_dir
from topology.chip import Chip
from topology.quantity import (
    SPELLINGS,
    Bytes,
    BytesPerSecond,
    ExponentialsPerSecond,
    FlopsPerSecond,
    Seconds,
    UsdPerHour,
    Watts,
    parse_quantity,
)  # fmt: skip
from topology.scaleout.base import network_kinds

KINDS = (
    "chip",
    "cluster",
    "flow",
    "model",
    "plan",
    "profile",
    "scenario",
    "tier",
    "traffic",
    "workload",
)
SHIPPED = [
    (kind, path)
    for kind in KINDS
    for path in sorted(data_dir(kind if kind == "traffic" else f"{kind}s").iterdir())
    if path.suffix in (".yaml", ".json")
]
FIELDS = {
    Bytes: "B", BytesPerSecond: "B/s", FlopsPerSecond: "FLOP/s", ExponentialsPerSecond: "exp/s", Seconds: "s",
    Watts: "W", UsdPerHour: "USD/h",
}  # fmt: skip
LINE = "# yaml-language-server: $schema="


def _validator(kind: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((FOLDER / f"{kind}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


VALIDATORS = {kind: _validator(kind) for kind in KINDS}


def _data(path: Path) -> Any:
    text = path.read_text()
    return json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)


@pytest.mark.parametrize(("kind", "path"), SHIPPED, ids=lambda value: getattr(value, "name", value))
def test_shipped_files_pass(kind: str, path: Path) -> None:
    assert [error.message for error in VALIDATORS[kind].iter_errors(_data(path))] == []


def test_shipped_yaml_names_its_schema_for_editors() -> None:
    for kind, path in SHIPPED:
        if path.suffix == ".yaml":
            first = path.read_text().splitlines()[0]
            assert first.startswith(LINE), path
            named = (path.parent / first.removeprefix(LINE)).resolve()
            assert named == (FOLDER / f"{kind}.schema.json").resolve()


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        ("chip", "h100", {"hbm_bytes": "80 GB/s"}),
        ("chip", "h100", {"hbm_bytes_per_s": "3.35 TB"}),
        ("chip", "h100", {"hbm_bytes_per_s": 0}),
        ("chip", "h100", {"flops_per_s": {"fp8": "1 PFLOP/s"}}),
        ("chip", "h100", {"flops_per_s": {"bf16": 1e15, "fp7": 1e15}}),
        ("chip", "h100", {"colour": "green"}),
        ("chip", "h100", {"provenance": {"power_w": "guessed"}}),
        ("chip", "h100", {"tiers": [5]}),
        ("chip", "h100", {"tiers": [{"name": "mine", "kind": "host"}]}),
        ("tier", "local-nvme", {"kind": "tape"}),
        ("tier", "local-nvme", {"bytes": "4 TB/s"}),
        ("tier", "local-nvme", {"usd_per_byte": -1}),
        ("tier", "local-nvme", {"seek_s": "1 ms"}),
        ("cluster", "hgx-h100", {"scale_out": {"kind": "rail"}}),
        ("cluster", "hgx-h100", {"scale_out": {"spines": 4}}),
        ("cluster", "hgx-h100", {"domains": []}),
        ("cluster", "hgx-h100", {"domains": [{"fabric": {"kind": "nvswitch"}, "chips": []}]}),
        ("workload", "chat", {"input_tokens": 0}),
        ("workload", "chat", {"output_token": 10}),
        ("traffic", "chat-poisson", {"arrival": {"rate": 1}}),
        ("profile", "physics", {"combination": "sum"}),
        ("profile", "physics", {"default": {"hbm": 1.2}}),
        ("model", "llama-3.1-8b", {"num_hidden_layers": "32"}),
        ("model", "llama-3.1-8b", {"vocab_size": 2**30}),
    ],
)
def test_wrong_files_do_not(kind: str, name: str, change: dict[str, object]) -> None:
    path = next(path for known, path in SHIPPED if known == kind and path.stem == name)
    assert list(VALIDATORS[kind].iter_errors({**_data(path), **change}))


def test_every_fabric_and_network_is_in_the_schema() -> None:
    text = json.dumps(VALIDATORS["cluster"].schema)
    for kind in (*builders(), *network_kinds()):
        assert f'"const": "{kind}"' in text


@pytest.mark.parametrize("unit", sorted(SPELLINGS))
def test_what_a_pattern_takes_is_read(unit: str) -> None:
    field = next(field for field, known in FIELDS.items() if known == unit)
    pattern = re.compile(TypeAdapter(field).json_schema()["anyOf"][1]["pattern"])
    texts = [f"{number}{gap}{end}" for number in ("2", "2.5") for gap in ("", " ") for end in
             (*SPELLINGS[unit], "")]  # fmt: skip
    texts += ["2e3", "2.5E-3", f"2e+3 {unit}"]
    taken = [text for text in texts if pattern.match(text)]
    assert len(taken) > len(texts) / 2
    for text in taken:
        assert parse_quantity(text, unit) > 0
    for text in ("", unit, f"-1 {unit}", "2 apples", f"2 {unit}{unit}", "two"):
        assert not pattern.match(text)


def test_a_chip_that_passes_is_read() -> None:
    """The smallest chip that the schema takes; every required key is in it."""
    chip = {
        "name": "mine", "vendor": "me", "flops_per_s": {"bf16": "1 PFLOP/s"}, "hbm_bytes": "80 GB",
        "hbm_bytes_per_s": "3 TB/s", "scale_up_bytes_per_s": "450 GB/s",
        "nic_bytes_per_s": "50 GB/s", "power_w": "700 W", "usd_per_hour": "2 USD/h",
        "price_basis": "a quote",
    }  # fmt: skip
    assert not list(VALIDATORS["chip"].iter_errors(chip))
    assert Chip.model_validate(chip).hbm_bytes == 80e9
    tier = {
        "name": "mine", "kind": "host", "bytes": "256 GB", "read_bytes_per_s": "50 GB/s",
        "write_bytes_per_s": "50 GB/s", "usd_per_byte": 1.5e-8,
    }  # fmt: skip
    with_tiers = {**chip, "tiers": [tier, "local-nvme"]}
    assert not list(VALIDATORS["chip"].iter_errors(with_tiers))
    assert [t.kind for t in Chip.model_validate(with_tiers).tiers] == ["host", "flash"]
    assert not list(VALIDATORS["tier"].iter_errors(tier))
    for key in tier:
        rest = {other: value for other, value in tier.items() if other != key}
        assert list(VALIDATORS["tier"].iter_errors(rest))
    for key in chip:
        rest = {other: value for other, value in chip.items() if other != key}
        assert list(VALIDATORS["chip"].iter_errors(rest))
