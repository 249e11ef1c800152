"""Tiers beside HBM: data with sources, drain times as published."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from topology import TIER_KINDS, Tier, chip_names, load_chip, load_tier, tier_names
from topology.errors import InstanceError


@pytest.mark.parametrize("name", tier_names())
def test_tiers_name_their_sources(name: str) -> None:
    tier = load_tier(name)
    assert tier.name == name
    assert tier.sources
    assert {"bytes", "read_bytes_per_s", "usd_per_byte"} <= set(tier.provenance)


@pytest.mark.parametrize(
    ("name", "seconds"),
    [("grace-lpddr5x", 1.25), ("vera-lpddr5x", 1.7), ("ddr5-pcie5", 5), ("local-nvme", 320),
     ("nearline-hdd", 31 * 3600)],
)  # fmt: skip
def test_drain_times(name: str, seconds: float) -> None:
    assert load_tier(name).drain_s == pytest.approx(seconds, rel=0.03)


def test_slower_tiers_are_larger_and_cheaper() -> None:
    seen = 0
    for chip in map(load_chip, chip_names()):
        found = [tier for kind in TIER_KINDS if (tier := chip.tier(kind)) is not None]
        seen += bool(found)
        assert len(found) == len(chip.tiers)
        for near, far in pairwise(found):
            assert near.read_bytes_per_s > far.read_bytes_per_s
            assert near.bytes < far.bytes
            assert near.usd_per_byte_hour > far.usd_per_byte_hour
        host = chip.tier("host")
        if host is not None:
            assert chip.host_bytes_per_s is not None
            assert host.read_bytes_per_s <= chip.host_bytes_per_s
            assert host.read_bytes_per_s < chip.hbm_bytes_per_s
    assert seen >= 10


def test_one_tier_of_a_kind() -> None:
    chip = load_chip("gb200").model_dump()
    chip["tiers"] = ["local-nvme", "local-nvme"]
    with pytest.raises(ValueError, match="one of each kind at most"):
        type(load_chip("gb200")).model_validate(chip)


def test_a_wrong_tier_is_named_with_the_file_that_asks_for_it(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: bad\nkind: flash\nbytes: 4 TB/s\n")
    chip = load_chip("gb200").model_dump(mode="json")
    chip["tiers"] = ["local-nvmee", str(bad), 5]
    path = tmp_path / "chip.yaml"
    path.write_text(yaml.safe_dump(chip))
    with pytest.raises(InstanceError) as refused:
        load_chip(path)
    first, second, third = str(refused.value).splitlines()
    assert first.startswith(f"{path}: tiers[0]: unknown name 'local-nvmee'; known: ddr4-pcie4, ")
    assert second.startswith(f"{path}: tiers[1]: ")
    assert f"{bad}: bytes: expected a quantity in B" in second
    assert third.startswith(f"{path}: tiers[2]: ")


def test_rent_is_a_purchase_written_off_over_four_years() -> None:
    tier = load_tier("local-nvme")
    assert isinstance(tier, Tier)
    assert tier.usd_per_byte_hour * 4 * 8766 == pytest.approx(tier.usd_per_byte)
    assert load_tier("grace-lpddr5x").charged_usd_per_byte_hour == 0.0
