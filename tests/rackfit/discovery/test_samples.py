"""Clusters made of listings of real machines have the chips, domains and failures that were counted there by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rackfit.cli.app import build_app
from rackfit.discovery.discover import discover
from rackfit.discovery.shelf import readers
from tests.rackfit.discovery import samples, slurm_samples
from topology.errors import InstanceError

CHIPS = [f"g{number}" for number in range(8)]

#: file, options, chips by domain, failed, taken; counted by hand in the listing that each was written after
COUNTED: list[tuple[str, dict[str, Any], list[int], set[str], set[str]]] = [
    ("slurm-mig.txt", {}, [4], set(), {"r0g3"}),
    ("slurm-oneline.txt", {}, [4, 8], set(), {"r0g0", "r0g1", "r0g2", "r0g3"}),
    ("slurm-drained.txt", {"chip": "rtx4090"}, [1], {"r0"}, set()),
    ("slurm-kinds.txt", {"hosts": "gpu-*"}, [4], set(), set()),
    ("slurm-0040.json", {"hosts": "sxm1"}, [4], {"r0"}, set()),
    ("slurm-0040.json", {"hosts": "sxm2"}, [8], set(), set()),
    ("slurmrestd-0037.txt", {"hosts": "dgx2"}, [8], set(), {f"r0{chip}" for chip in CHIPS}),
    ("h100.xml", {}, [8], set(), set()),
    ("mig.xml", {}, [4], {"r0g1", "r0g2", "r0g3"}, {"r0g0"}),
    ("b200.txt", {"chip": "b200"}, [8], {"r0g2"}, set()),
    ("h100x4.txt", {"chip": "h100"}, [4], set(), set()),
    ("nv8.txt", {"chip": "h800"}, [8], set(), set()),
    ("dgx2.txt", {"chip": "v100"}, [16], set(), set()),
    ("cards.txt", {"chip": "rtx4090"}, [8], set(), set()),
    ("tray.txt", {"chip": "gb200"}, [4], set(), set()),
    ("slices.yaml", {}, [8, 8], set(), set()),
    ("amd.json", {}, [3], set(), {"r0g2"}),
    ("mig-nodes.json", {}, [1, 1, 8], set(), {"r0g0", "r1g0", *(f"r2{chip}" for chip in CHIPS)}),
    ("custom-mig.json", {}, [8], set(), {"r0g6", "r0g7"}),
    ("blocks.conf", {"chip": "gb200"}, [32] * 12, set(), set()),
    ("tree.conf", {"chip": "h100"}, [8] * 96, set(), set()),
    ("topology.yaml", {"chip": "h200", "hosts": "h[12]00-*"}, [8] * 16, set(), set()),
    ("ib.out", {"chip": "h200"}, [8, 8], set(), set()),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("samples")
    samples.write(made)
    return made


@pytest.mark.parametrize("counted", COUNTED, ids=lambda counted: counted[0])
def test_what_was_counted_by_hand_is_found(folder: Path, counted: Any) -> None:
    name, options, sizes, failed, taken = counted
    found = discover([folder / name], **options)
    assert [len(domain.chips) for domain in found.cluster.domains] == sizes
    assert set(found.failed) == failed
    assert set(found.taken) == taken


def test_every_sample_is_counted_or_refused(folder: Path) -> None:
    counted = {name for name, *_ in COUNTED}
    assert {path.name for path in folder.iterdir()} - counted == {"slurm-no-gpu.txt"}
    read = {
        name for name, reader in readers().items() for path in folder.iterdir()
        if reader.recognises(_document(path))
    }  # fmt: skip
    elsewhere = {"amd_smi", "amd_smi_csv", "amd_smi_text", "kubectl_describe", "nvidia_smi_nvlink", "nvidia_smi_query",
                 "nvidia_smi_text", "rocm_smi", "rocm_smi_csv"}  # fmt: skip
    assert set(readers()) - read == {"gke_node_pools", *elsewhere}


def _document(path: Path) -> Any:
    from rackfit.discovery.document import read_document

    return read_document(path)


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(InstanceError) as stop:
        discover([path], **options)
    return str(stop.value)


def test_a_listing_without_a_gpu_is_refused(folder: Path) -> None:
    assert "no host that has accelerators" in refused(folder / "slurm-no-gpu.txt")


def test_a_card_that_the_catalogue_lacks_is_named_with_what_to_do(folder: Path) -> None:
    said = refused(folder / "slurm-drained.txt")
    assert "no chip of the catalogue is nvidia-rtx-3090" in said
    assert "--chip" in said
    assert "--hosts" in said


def test_a_host_of_several_kinds_can_be_left_out(folder: Path) -> None:
    said = refused(folder / "slurm-kinds.txt")
    assert "mixed-1: several kinds of GPU in one host: rtx4000, rtx8000, v100" in said
    assert "gpu-1" not in said


def test_positions_of_parts_are_not_those_of_whole_gpus(tmp_path: Path) -> None:
    """Slurm numbers whole GPUs and parts of one node together."""
    (tmp_path / "n.txt").write_text(
        "NodeName=nv2 Arch=x86_64\n   Gres=gpu:nvidia_b200:4(S:0-1),gpu:nvidia_b200_2g.45gb:8(S:0-1)\n"
        "   GresUsed=gpu:nvidia_b200:2(IDX:2,10),gpu:nvidia_b200_2g.45gb:6(IDX:3-8)\n   State=MIXED\n"
    )
    found = discover([tmp_path / "n.txt"])
    assert set(found.taken) == {"r0g2", "r0g3"}


def test_what_only_parts_are_left_of_is_said(tmp_path: Path, folder: Path) -> None:
    """A node of parts alone has no whole GPU: it is left out as such, not as a node without GPUs."""
    alone = "NodeName=p Arch=x86_64\n   Gres=gpu:a100-3g.20gb:8\n   State=IDLE\n"
    (tmp_path / "n.txt").write_text(alone + "\n" + slurm_samples.SLURM_MIG)
    notes = " ".join(discover([tmp_path / "n.txt"]).notes)
    assert "p: GPUs that MIG splits are left out" in notes
    assert "nodes without GPUs" not in notes
    (tmp_path / "n.txt").write_text(alone)
    assert "p: GPUs that MIG splits" in refused(tmp_path / "n.txt")
    assert any("b: left out" in note for note in discover([folder / "mig-nodes.json"]).notes)


def test_gpus_wired_to_each_other_are_a_mesh(folder: Path) -> None:
    """Six links for each of three neighbours are all eighteen: none is lost, and a pair has a third of the rate."""
    found = discover([folder / "h100x4.txt"], chip="h100")
    assert found.data["domains"][0]["fabric"] == {"kind": "mesh", "places": 4}
    fabric = found.cluster.domains[0].fabric
    rates = {link.bytes_per_s for link in fabric.links()}
    assert rates == {found.cluster.domains[0].chips[0].chip.scale_up_bytes_per_s / 3}


def test_gpus_wired_unevenly_count_as_the_narrowest_pair(tmp_path: Path) -> None:
    uneven = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV9\tNV6\nGPU1\tNV9\t X \tNV6\nGPU2\tNV6\tNV6\t X \n"
    (tmp_path / "h.txt").write_text(uneven)
    found = discover([tmp_path / "h.txt"], chip="h100")
    assert found.data["domains"][0]["fabric"] == {"kind": "mesh", "places": 4}
    assert not found.failed
    assert any("6 to 9 NVLinks" in word for word in found.assumed)


def test_bridges_between_pairs_are_no_fabric_of_a_host(tmp_path: Path) -> None:
    rows = [
        ["NV12" if a ^ 1 == b else " X " if a == b else "SYS" for b in range(4)] for a in range(4)
    ]
    text = "\tGPU0\tGPU1\tGPU2\tGPU3\n" + "\n".join(
        "\t".join([f"GPU{a}", *row]) for a, row in enumerate(rows)
    )
    (tmp_path / "h.txt").write_text(text)
    assert "h: NVLinks join some pairs of its GPUs only" in refused(tmp_path / "h.txt", chip="a100")


@pytest.mark.parametrize(
    ("state", "health", "failed"),
    [
        ("Not Supported", {"bandwidth": "Not Supported"}, set()),
        ("N/A", {"bandwidth": "N/A"}, set()),
        ("Completed", {"bandwidth": "Full", "route_unhealthy": "False"}, set()),
        ("In Progress", {}, {"r0"}),
        ("Completed", {"bandwidth": "Degraded"}, {"r0"}),
        ("Completed", {"bandwidth": "Full", "route_unhealthy": "True"}, {"r0"}),
    ],
)
def test_a_fabric_that_a_card_lacks_is_no_failure(
    state: str, health: dict[str, str], failed: set[str], tmp_path: Path
) -> None:
    (tmp_path / "h.xml").write_text(samples.smi_fabric(state, **health))
    assert set(discover([tmp_path / "h.xml"]).failed) == failed


@pytest.mark.parametrize(
    ("product", "chip"),
    [
        ("NVIDIA-A100-SXM4-40GB", "a100-40gb"),
        ("nvidia-tesla-a100", "a100-40gb"),  # GKE's name of the 40 GB module
        ("NVIDIA-A100-SXM4-80GB", "a100"),
        ("Tesla-V100-SXM2-16GB", "v100"),
        ("nvidia-tesla-t4", "t4"),
        ("NVIDIA-L4", "l4"),
        ("NVIDIA-L40S", "l40s"),
        ("AMD_Instinct_MI300X_OAM", "mi300x"),
        ("AMD_Instinct_MI325_OAM", "mi325x"),
        ("rtxproserver6000", "rtxpro6000"),  # as EC2 and so ParallelCluster's GRES name it
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", None),
        ("AMD Instinct MI300X HF", None),
        ("AMD Instinct MI300A", None),
        ("AMD Instinct MI350X", None),
        ("Tesla-V100-PCIE-16GB", None),
        ("NVIDIA-L40", None),
    ],
)
def test_products_are_the_chips_they_are(product: str, chip: str | None) -> None:
    from rackfit.discovery.products import chip_of

    assert chip_of(product) == chip


def test_memory_in_a_name_counts(tmp_path: Path) -> None:
    (tmp_path / "n.txt").write_text("NodeName=n\n Gres=gpu:v100-sxm2-32gb:4\n State=IDLE\n")
    said = refused(tmp_path / "n.txt")
    assert "32.0 GiB, v100 of the catalogue has 16.0 GiB" in said


def test_memory_that_no_file_tells_is_said(folder: Path) -> None:
    found = discover([folder / "slurm-oneline.txt"])
    assert (
        "no file tells form and memory of a100: taken as the catalogue's, 80 GiB" in found.assumed
    )
    assert not any("memory" in word for word in discover([folder / "slices.yaml"]).assumed)


#: those with a chip that is free; clusters of more than a hundred chips take seconds
SOLVED = [
    pytest.param(entry, id=entry[0], marks=[pytest.mark.slow] if sum(entry[2]) > 100 else [])
    for entry in COUNTED
    if entry[0] not in ("slurm-drained.txt", "mig.xml", "mig-nodes.json", "slurmrestd-0037.txt")
    and entry[1] != {"hosts": "sxm1"}
]


@pytest.mark.parametrize("counted", SOLVED)
def test_the_cluster_found_is_solved(folder: Path, tmp_path: Path, counted: Any) -> None:
    name, options, _, failed, taken = counted
    out = tmp_path / "mine.yaml"
    found = discover([folder / name], **options)
    out.write_text(found.text())
    words = ["solve", "--model", "llama-3.1-8b", "--cluster", str(out), "--input-tokens", "1000",
             "--output-tokens", "100", "--gap", "0.2", "--json"]  # fmt: skip
    done = CliRunner().invoke(build_app(), words)
    assert done.exit_code == 0, done.output
    used = {chip for replica in json.loads(done.stdout)["layout"]["replicas"]
            for stage in replica["stages"] for chip in stage["chips"]}  # fmt: skip
    assert used
    assert not used & (failed | taken)
