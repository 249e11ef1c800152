"""Consoles as people save them: what stands beside the matrix tells product, memory, processes and MIG."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rackfit.discovery.asking import found_in, refusal, sizes
from tests.rackfit.discovery.samples import matrix

#: after utkuozdemir/nvidia_gpu_exporter (MIT), its captures of an L40S (driver 595.80) and of an H100 with MIG (590.48.01)
TABLE = """+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  {name:<31}{mode:>4} |   00000000:01:00.0 Off |                    0 |
| N/A   54C    P0            110W /  350W |    1235MiB / {memory:>6}MiB |      9%      Default |
|                                         |                        |{mig:>21} |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
{process}
+-----------------------------------------------------------------------------------------+

"""
PROCESS = (
    "|    0   N/A  N/A           20037      {}   ffmpeg                                  538MiB |"
)


def table(name: str, memory: int, mode: str = "On", mig: str = "N/A", process: str = "") -> str:
    """What ``nvidia-smi`` and ``nvidia-smi topo -m`` print of one GPU."""
    head = TABLE.format(name=name, memory=memory, mode=mode, mig=mig, process=process)
    return head + matrix(1, "X")


@pytest.mark.parametrize(
    ("process", "taken"),
    [
        (PROCESS.format("C"), {"r0g0"}),
        (PROCESS.format("C+G"), {"r0g0"}),
        (PROCESS.format("M+C"), {"r0g0"}),
        (PROCESS.format("G"), set()),
        ("|    0     20037      C   python                            538MiB |", {"r0g0"}),
        ("|  No running processes found                                    |", set()),
    ],
)
def test_a_process_takes_its_gpu(process: str, taken: set[str], tmp_path: Path) -> None:
    found = found_in(tmp_path, "h.txt", table("NVIDIA L40S", 46068, process=process))
    assert found.cluster.chip_names == ("l40s",)
    assert set(found.taken) == taken
    assert not any("memory" in word for word in found.assumed)


def test_mig_takes_its_gpu(tmp_path: Path) -> None:
    found = found_in(tmp_path, "h.txt", table("NVIDIA H100 80GB HBM3", 81559, mig="Enabled"))
    assert found.taken == {"r0g0": "h: split by MIG"}
    found = found_in(tmp_path, "h.txt", table("NVIDIA H100 80GB HBM3", 81559, mig="Disabled"))
    assert not found.taken
    named = "".join(
        f"GPU {number}: NVIDIA H100 80GB HBM3 (UUID: GPU-{number})\n"
        + "".join(f"  MIG 1g.10gb     Device  {n}: (UUID: MIG-{n})\n" for n in range(parts))
        for number, parts in enumerate([7, 0, 2, 0])
    )
    found = found_in(tmp_path, "h.txt", named + matrix(4, "NV18"))
    assert set(found.taken) == {"r0g0", "r0g2"}


@pytest.mark.parametrize(
    ("name", "memory", "mode", "chip"),
    [
        ("NVIDIA A100-SXM...", 40536, "On", "a100-40gb"),
        ("NVIDIA A100-SXM...", 81251, "On", "a100"),
        ("Tesla V100-SXM2...", 16160, "Off", "v100"),
        ("A100-SXM4-40GB", 40536, "Off", "a100-40gb"),
        ("NVIDIA L40S", 46068, "TCC", "l40s"),
    ],
)
def test_what_is_cut_off_a_name_is_its_memory(
    name: str, memory: int, mode: str, chip: str, tmp_path: Path
) -> None:
    """Tables of old drivers cut names off; those of Windows tell the kind of driver."""
    found = found_in(tmp_path, "h.txt", table(name, memory, mode))
    assert found.cluster.chip_names == (chip,)
    assert any("is cut off" in word for word in found.assumed) == name.endswith("...")


def test_another_memory_than_the_catalogue_s_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path, "h.txt", table("Tesla V100-SXM2...", 32510))
    assert "31.7 GiB, v100 of the catalogue has 16.0 GiB" in said


def test_the_whole_name_counts_where_the_table_cuts_it_off(tmp_path: Path) -> None:
    listed = "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\n"
    found = found_in(tmp_path, "h.txt", listed + table("NVIDIA A100-SXM...", 81251))
    assert found.cluster.chip_names == ("a100",)
    assert not any("is cut off" in word for word in found.assumed)


@pytest.mark.parametrize(
    ("report", "gpus", "path", "chip"),
    [
        # after sgl-project/sglang, issues 4572 and 10216: check_env names equal GPUs in one line
        ("GPU 0,1,2,3,4,5,6,7: NVIDIA H20\nGPU 0,1,2,3,4,5,6,7 Compute Capability: 9.0\n", 8, "NV18", "h20"),
        # as collect_env of vLLM writes a single GPU
        ("GPU models and configuration: GPU 0: NVIDIA GeForce RTX 4090\n", 1, "X", "rtx4090"),
        ("".join(f"GPU {n}: Tesla V100-SXM2-16GB\n" for n in range(4)), 4, "NV2", "v100"),
    ],
)  # fmt: skip
def test_reports_of_environments_tell_the_product(
    report: str, gpus: int, path: str, chip: str, tmp_path: Path
) -> None:
    found = found_in(tmp_path, "h.txt", report + matrix(gpus, path))
    assert found.cluster.chip_names == (chip,)
    assert sizes(found) == [gpus]


def test_a_card_for_screens_is_no_gpu_of_the_host(tmp_path: Path) -> None:
    """A DGX Station numbers the card of its screens among its four A100."""
    names = ["NVIDIA A100-SXM4-80GB"] * 5
    names[3] = "NVIDIA DGX Display"
    named = "".join(f"GPU {number}: {name}\n" for number, name in enumerate(names))
    process = "|    4   N/A  N/A   1000      C   python     140000MiB |\n"
    found = found_in(tmp_path, "h.txt", named + process + matrix(5, "NV4", apart=3))
    assert sizes(found) == [4]
    assert found.data["domains"][0]["fabric"] == {"kind": "mesh", "places": 4}
    assert set(found.taken) == {"r0g3"}
    assert any("GPU 3: left out, NVIDIA DGX Display" in note for note in found.notes)
