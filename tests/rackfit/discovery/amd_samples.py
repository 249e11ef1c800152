"""Listings of AMD's tools on real machines, written anew as those of ``samples``; counts stand in ``test_amd.py``."""

from __future__ import annotations

import json

import amd_listings as amd

_HEAD = """
============================================ ROCm System Management Interface ============================================
====================================================== Concise Info ======================================================
Device  Node  IDs              Temp        Power     Partitions          SCLK    MCLK    Fan  Perf  PwrCap  VRAM%  GPU%
              (DID,     GUID)  (Junction)  (Socket)  (Mem, Compute, ID)
==========================================================================================================================
"""
_FOOT = "================================================== End of ROCm SMI Log ===================================================\n"


def concise(
    device: str, count: int, modes: str = "NPS1, SPX, 0", used: dict[int, int] | None = None
) -> str:
    """``rocm-smi`` by itself since ROCm 6.1."""
    rows = "".join(
        f"{n:<8}{n + 2:<6}{device},   {1017 + n:<7}43.0°C      155.0W    {modes:<20}94Mhz   900Mhz  0%   auto  650.0W  "
        f"{(used or {}).get(n, 0)}%     0%    \n"
        for n in range(count)
    )
    return _HEAD + rows + _FOOT


# after modelscope/ms-swift (Apache-2.0), docs on AMD GPUs: eight MI308X, which the catalogue lacks
MI308X = concise("0x74a2", 8)
# after ROCm/legacy-rocm-build, issue 4750: an MI300X node in SPX and, another time, in CPX
SPX = concise("0x74a1", 8)
CPX = concise("0x74a1", 64, "NPS1, CPX, 7")
# after thamada/nvidia-smi (Apache-2.0), gls/MI300X_x4_smi.py: ROCm 6.0, four MI300X in a virtual machine
SPX_60 = """
========================================= ROCm System Management Interface =========================================
=================================================== Concise Info ===================================================
Device  [Model : Revision]    Temp        Power     Partitions      SCLK    MCLK    Fan  Perf  PwrCap  VRAM%  GPU%
        Name (20 chars)       (Junction)  (Socket)  (Mem, Compute)
====================================================================================================================
""" + "".join(
    f"{n}       [0x74a1 : 0x00]       35.0°C      133.0W    NPS1, SPX       131Mhz  900Mhz  0%   auto  750.0W    0%   0%\n"
    "        AMD Instinct MI300X\n"
    for n in range(4)
) + _FOOT  # fmt: skip
# the same source, rocm-smi -a: names of lower case, lines that say what is not supported, a process on no GPU
ALL_60 = "\n".join([
    " ROCm System Management Interface ".center(90, "="),
    *(f"GPU[{n}]\t\t: Device ID: 0x74a1" for n in range(4)),
    *(f"GPU[{n}]\t\t: get_power_profiles, Not supported on the given system" for n in range(4)),
    "KFD process information:", "PID    \tPROCESS NAME\tGPU(s)\tVRAM USED\tSDMA USED\tCU OCCUPANCY\t",
    "1188185\tUNKNOWN     \t0     \tUNKNOWN  \tUNKNOWN  \tUNKNOWN     \t",
    " GPUs Indexed by PID ".center(90, "="), "PID 1188185 is using 0 DRM device(s)", "=" * 90,
    *(f"GPU[{n}]\t\t: PCI Bus: 0000:{n + 2}6:00.0" for n in range(4)),
    *(f"GPU[{n}]\t\t: Card series: \t\tAMD Instinct MI300X OAM\nGPU[{n}]\t\t: Card SKU: \t\tMI3SRIOV" for n in range(4)),
    *(f"GPU[{n}]\t\t: Compute Partition: SPX" for n in range(4)),
    " End of ROCm SMI Log ".center(90, "="),
])  # fmt: skip
# after Light-Heart-Labs/DreamServer (Apache-2.0), ods/tests/fixtures/amd: four MI300X of a virtual machine
VIRTUAL = amd._log(amd.product(4, "AMD Instinct MI300X VF")) + amd._log(amd.matrix(4))
# after the same: two GPUs that meet over PCIe
PCIE = amd._log(amd.matrix(2, "PCIE"))
# after ROCm/legacy-rocm-build, issue 4759: rocm-smi -i of ROCm 6.4.1 with eight MI300X in DPX; every other device is N/A
DPX_IDS = amd._log(*(
    f"GPU[{n}]\t\t: Device Name: \t\tAMD Instinct MI300X\nGPU[{n}]\t\t: Device ID: \t\t{'N/A' if n % 2 else '0x74a1'}"
    for n in range(16)
))  # fmt: skip
# after sgl-project/sglang, issue 38849: check_env of eight MI300X of a virtual machine
REPORT = """Python: 3.10.12 (main, Jan  8 2026, 06:52:19) [GCC 11.4.0]
ROCM available: True
GPU 0,1,2,3,4,5,6,7: AMD Instinct MI300X VF
GPU 0,1,2,3,4,5,6,7 Compute Capability: 9.4
PyTorch: 2.9.1+rocm7.2.0.git7e1940d4
AMD Topology:
""" + amd._log(amd.matrix(8)) + "\nHypervisor vendor:: KVM\nulimit soft: 1048576\n"  # fmt: skip
# after vllm-project/vllm, issue 40008: collect_env of eight MI355X
COLLECTED = """[pip3] numpy==2.1.3
GPU models and configuration : AMD Instinct MI355X (gfx950:sramecc+:xnack-)
GPU Topology:
""" + "\n".join("  " + line for line in amd._log(amd.matrix(8)).splitlines())  # fmt: skip
# after sgl-project/sglang, issue 5775: MI100 in two hives of four
HIVES = amd._log(amd.matrix(8, apart=tuple((a, b) for a in range(4) for b in range(4, 8))))

TABLE = """+------------------------------------------------------------------------------+
| AMD-SMI 26.0.2+39589fda      amdgpu version: Linuxver ROCm version: 7.0.2    |
| Platform: Linux Baremetal                                                    |
|-------------------------------------+----------------------------------------|
| BDF                        GPU-Name | Mem-Uti   Temp   UEC       Power-Usage |
| GPU  HIP-ID  OAM-ID  Partition-Mode | GFX-Uti    Fan               Mem-Usage |
|=====================================+========================================|
{rows}+-------------------------------------+----------------------------------------+
+------------------------------------------------------------------------------+
| Processes:                                                                   |
|  GPU        PID  Process Name          GTT_MEM  VRAM_MEM  MEM_USAGE     CU % |
|==============================================================================|
{processes}+------------------------------------------------------------------------------+
"""
# after ROCm/amdsmi, issue 132: ROCm 7.0.2, two MI300X in DPX; the second part tells no mode
DPX_TABLE = TABLE.format(rows="".join(
    f"| 0000:{chip}:00.{part}    AMD Instinct MI300X | {busy} |\n"
    f"|   {number}       {number}  {oam} | {use} |\n|-------------------------------------+----------------------------------------|\n"
    for chip, first in (("05", 0), ("26", 2))
    for part, number, oam, busy, use in (
        (0, first, "     7        DPX/NPS1", "0 %      40 °C   0           142/750 W", "0 %        N/A           283/196592 MB"),
        (1, first + 1, "   N/A             N/A", "N/A        N/A   0                 N/A", "N/A        N/A            492/98296 MB"),
    )
), processes="|  No running processes found                                                  |\n")  # fmt: skip
# after ROCm/ROCm, an issue on gfx1201: processes by GPU below the table (two RX 7900 XTX there)
BUSY_TABLE = TABLE.format(rows="".join(
    f"| 0000:0{n}:00.0 AMD Instinct MI325X    | 29 %     93 °C   0           280/327 W |\n"
    f"|   {n}       {n}       {n}        SPX/NPS1 | 100 %      N/A           {use}/262128 MB |\n" for n, use in enumerate((283, 283, 190000, 283))
), processes="|    1     250235  python3.12             7.9 MB    3.8 GB     4.1 GB  N/A     |\n")  # fmt: skip
# after ROCm's documentation of amd-smi (MIT), the tool for hypervisors: the host's GPU and one for a virtual machine
HYPERVISOR = """
GPU: 0
    BDF: 0000:0c:00.0
    UUID: 67ff74a1-0000-1000-8081-b5b9fd6edd00
    VF: 0
        BDF: 0000:0c:02.0
        UUID: 670074a1-0000-1000-8081-b5b9fd6edd00
"""
# after ROCm/amdsmi (MIT), CHANGELOG.md of 6.3: the form of topology --json before it
OLD_TOPOLOGY = json.dumps([
    {"gpu": a, "bdf": amd.bus(a), "weight": {"gpu_0": 0, "gpu_1": 0},
     "link_type": {f"gpu_{b}": "SELF" if a == b else "XGMI" for b in range(2)}} for a in range(2)
])  # fmt: skip
# after ROCm/rocm-systems, issue 5805: parts have the address of their GPU with other functions (there MI300A in TPX)
TPX_BUSES = amd._log("\n".join(f"GPU[{n}]\t\t: PCI Bus: 0000:{n // 3 + 1:02}:00.{n % 3}" for n in range(6))
                     + "\n" + "\n".join(f"GPU[{n}]\t\t: Compute Partition: TPX" for n in range(6)))  # fmt: skip


def rocm_json(count: int = 8, name: str = amd.MI300X, apart: tuple[int, int] = (-1, -1)) -> str:
    """``rocm-smi --showproductname --showmeminfo vram --showtopo --json`` as the tool's own code writes it."""
    cards = {f"card{n}": {"VRAM Total Memory (B)": "206141652992", "VRAM Total Used Memory (B)": "297611264",
                          "Card Series": name, "Card Model": "0x74a1", "(Topology) Numa Node": str(n // 4)} for n in range(count)}  # fmt: skip
    pairs = {f"(Topology) Link type between DRM devices {a} and {b}": "PCIE" if (a, b) == apart else "XGMI"
             for a in range(count) for b in range(a + 1, count)}  # fmt: skip
    hops = {f"(Topology) Hops between DRM devices 0 and {b}": "1" for b in range(1, count)}
    return json.dumps({**cards, "system": {**hops, **pairs}})
