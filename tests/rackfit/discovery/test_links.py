"""Matrices of NVLinks that have no pair, no link, or are not whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rackfit.discovery.asking import found_in, refusal, sizes
from tests.rackfit.discovery.samples import matrix
from topology.catalogue import data_dir

#: after utkuozdemir/nvidia_gpu_exporter (MIT), its captures of driver 590.48.01: one GPU, the header underlined
ALONE = (
    "\t\x1b[4mGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\nGPU0\t X \t0-23\t0\t\tN/A\n"
)


@pytest.mark.parametrize("chip", ["h200", "gb200", "l40s"])
def test_a_matrix_of_one_gpu_tells_nothing_of_its_links(chip: str, tmp_path: Path) -> None:
    found = found_in(tmp_path, "h.txt", ALONE, chip=chip)
    assert sizes(found) == [1]
    assert not found.failed


def test_gpus_without_nvlink_are_read_as_the_refusal_says(tmp_path: Path) -> None:
    """As in a virtual machine that is given the GPUs and not their switches."""
    text = matrix(8, "PHB")
    said = refusal(tmp_path, "h.txt", text, chip="h200")
    assert "h: no NVLink at GPU 0, h200 of the catalogue has 18" in said
    assert "a chip file of another name" in said
    chip = (data_dir("chips") / "h200.yaml").read_text()
    chip = chip.replace("name: h200\n", "name: h200-pcie\n").replace("450 GB/s", "64 GB/s")
    (tmp_path / "h200-pcie.yaml").write_text(chip)
    found = found_in(tmp_path, "h.txt", text, chip=str(tmp_path / "h200-pcie.yaml"))
    assert sizes(found) == [8]
    rates = {link.bytes_per_s for link in found.cluster.domains[0].fabric.links()}
    assert rates == {64e9}


def test_a_matrix_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    lines = matrix(8, "NV18").splitlines()
    for rows in (1, 4, 7):
        said = refusal(tmp_path, "h.txt", "\n".join(lines[: 1 + rows]), chip="h100")
        assert f"rows of {rows} GPUs under a header of 8; some are missing" in said


def test_a_row_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """Found by damaging files: the row of the only GPU did not count, and the host of none was an internal error."""
    text = "\tGPU0\tCPU Affinity\nGPU0]\t X \t0-23\n"
    assert "no whole row of a GPU" in refusal(tmp_path, "h.txt", text, chip="h100")


@pytest.mark.parametrize("second", [8, 4])
def test_a_second_matrix_is_refused(second: int, tmp_path: Path) -> None:
    """As of a loop over hosts: the second host was lost."""
    text = f"node1:\n{matrix(8, 'NV18')}\nnode2:\n{matrix(second, 'NV18')}"
    said = refusal(tmp_path, "h.txt", text, chip="h100")
    assert "more than one matrix; expected a file for each host" in said


def test_a_gpu_that_is_named_needs_a_row(tmp_path: Path) -> None:
    named = "".join(f"GPU {number}: NVIDIA H100 80GB HBM3\n" for number in range(8))
    said = refusal(tmp_path, "h.txt", named + matrix(7, "NV18"))
    assert "GPU 7 is named and has no row in the matrix of 7" in said


LEGEND = "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe\n  PIX  = Connection traversing at most a single PCIe bridge\n"


def test_a_matrix_that_shows_no_nvlinks_by_design_is_refused(tmp_path: Path) -> None:
    """After deepseek-ai/DeepEP, issue 60: topo -mp of eight GPUs whose NVLinks it leaves out."""
    bare = matrix(8, "NODE").partition("\n\nLegend")[0]
    for chip in ("h100", "rtx4090"):
        said = refusal(tmp_path, "h.txt", bare + LEGEND, chip=chip)
        assert "paths of PCIe alone, as topo -mp prints them; expected nvidia-smi topo -m" in said
    nvlinks = LEGEND + "  NV#  = Connection traversing a bonded set of # NVLinks\n"
    assert sizes(found_in(tmp_path, "h.txt", bare + nvlinks, chip="rtx4090")) == [8]
    linked = matrix(8, "NV18").partition("\n\nLegend")[0]
    assert sizes(found_in(tmp_path, "h.txt", linked + LEGEND, chip="h100")) == [8]
