"""A scheduler's word for GPUs beside the name that the driver has for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackfit.discovery.discover import discover
from topology.errors import InstanceError

LOG = "<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu><product_name>{}</product_name></gpu></nvidia_smi_log>"


def joined(folder: Path, kind: str, product: str, *, last: bool) -> tuple[str, ...]:
    listing, log = folder / "nodes.txt", folder / "g1.xml"
    listing.write_text(f"NodeName=g1 Arch=x86_64\n   Gres=gpu:{kind}:1\n   State=IDLE\n")
    log.write_text(LOG.format(product))
    paths = [listing, log] if last else [log, listing]
    return discover(paths).cluster.chip_names


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(
    ("kind", "product", "chip"),
    [
        ("a100", "NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("tesla", "Tesla T4", "t4"),
        ("nvidia_h100_80gb_hbm3", "NVIDIA H100 80GB HBM3", "h100"),
        ("rtx_4090", "NVIDIA GeForce RTX 4090", "rtx4090"),
    ],
)
def test_the_name_that_says_more_counts(
    kind: str, product: str, chip: str, last: bool, tmp_path: Path
) -> None:
    assert joined(tmp_path, kind, product, last=last) == (chip,)


@pytest.mark.parametrize(
    ("kind", "product"),
    [
        ("h20", "NVIDIA H200"),
        ("a100", "Tesla T4"),
        ("a100-80gb", "NVIDIA A100-SXM4-40GB"),
        ("tesla", "NVIDIA H100 80GB HBM3"),
    ],
)
def test_another_chip_is_a_contradiction(kind: str, product: str, tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match="product is"):
        joined(tmp_path, kind, product, last=True)


def test_a_form_that_the_catalogue_lacks_is_not_hidden_by_a_word(tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match="no chip of the catalogue is NVIDIA H100 PCIe"):
        joined(tmp_path, "h100", "NVIDIA H100 PCIe", last=True)
