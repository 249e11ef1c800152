"""Which chip of the catalogue a product's name means, as drivers, schedulers and clouds write it."""

from __future__ import annotations

import re

#: the card of a DGX Station for its screens, beside its GPUs
DISPLAY = "DGX Display"
#: words of a product name, letters and digits only in lower case, and the chip; the first that matches counts
_PRODUCTS = (
    (r"pcie|v100s(?!xm)|h100nvl|h200nvl|a100pci|h800pci|a800|a10080gbpci", None),  # cards with other rates than the SXM modules
    (r"gb300", "gb300"),
    (r"gb200", "gb200"),
    (r"gh200", "gh200"),
    (r"b300", "b300"),
    (r"b200", "b200"),
    (r"h200", "h200"),
    (r"h800", "h800"),
    (r"h100", "h100"),
    (r"h20(?!\d)", "h20"),
    (r"a100(sxm4?)?40g?|teslaa100$", "a100-40gb"),
    (r"a100", "a100"),
    (r"v100", "v100"),
    (r"l40s", "l40s"),
    (r"(nvidia|^)l4$", "l4"),
    (r"(nvidia|tesla|^)t4$", "t4"),
    (r"4090(d|laptop)", None),
    (r"rtx4090|geforce4090|^4090", "rtx4090"),
    (r"rtxpro6000.*(maxq|workstation)", None),
    (r"rtxpro(server)?6000", "rtxpro6000"),  # EC2 has the words in another order
    (r"mi300xhf", None),  # another clock
    (r"mi355(?!\d)", "mi355x"),
    (r"mi325(?!\d)", "mi325x"),
    (r"mi455x", "mi455x"),
    (r"mi300x", "mi300x"),
    (r"gaudi3|hl325", "gaudi3"),
    (r"tpuv4", "tpu-v4"),
    (r"tpuv5lite|tpuv5e|ct5lp|v5litepod", "tpu-v5e"),
    (r"tpuv5p|ct5p", "tpu-v5p"),
    (r"tpuv6e|ct6e", "tpu-v6e"),
    (r"tpu7x|tpuv7", "tpu-v7"),
    (r"ct4p", "tpu-v4"),
    (r"trainium2|trn2", "trn2"),
    (r"trainium3|trn3", "trn3"),
)  # fmt: skip

#: machine types of clouds that say which module is in them
_MACHINES = {
    "p4d.24xlarge": "A100-SXM4-40GB",
    "p4de.24xlarge": "A100-SXM4-80GB",
    "p5.48xlarge": "H100",
    "p5e.48xlarge": "H200",
    "p5en.48xlarge": "H200",
    "p6-b200.48xlarge": "B200",
    "p6e-gb200.36xlarge": "GB200",
    "a2-ultragpu-8g": "A100-SXM4-80GB",
    "a3-highgpu-8g": "H100",
    "a3-megagpu-8g": "H100",
    "a3-ultragpu-8g": "H200",
    "a4-highgpu-8g": "B200",
    "a4x-highgpu-4g": "GB200",
    "standard_nd96asr_v4": "A100-SXM4-40GB",
    "standard_nd96amsr_a100_v4": "A100-SXM4-80GB",
    "standard_nd96isr_h100_v5": "H100",
    "standard_nd96isr_h200_v5": "H200",
    "standard_nd96isr_mi300x_v5": "MI300X",
    "bm.gpu.h100.8": "H100",
    "bm.gpu.h200.8": "H200",
    "bm.gpu.b200.8": "B200",
    "bm.gpu.gb200.4": "GB200",
    "bm.gpu.mi300x.8": "MI300X",
    "trn2.48xlarge": "trn2",
}
#: devices of AMD by their number, https://gitlab.freedesktop.org/mesa/libdrm, data/amdgpu.ids
_DEVICES = {
    "74a1": "AMD Instinct MI300X",
    "74a2": "AMD Instinct MI308X",
    "74a5": "AMD Instinct MI325X",
    "74b5": "AMD Instinct MI300X VF",
    "74b9": "AMD Instinct MI325X VF",
    "75a0": "AMD Instinct MI350X",
    "75a3": "AMD Instinct MI355X",
    "75b0": "AMD Instinct MI350X VF",
    "75b3": "AMD Instinct MI355X VF",
}
#: the same of machine types that differ in size alone
_FAMILIES = {"g4dn": "T4", "g6": "L4", "g6e": "L40S", "g7e": "RTX PRO Server 6000"}


def chip_of(product: str) -> str | None:
    """The catalogue's chip of a product name; ``None`` if it has none with that product's rates.

    A virtual GPU is none: NVIDIA's names of them end in gigabytes and a letter (L40S-48Q).
    """
    bare = re.sub(r"[^a-z0-9]", "", product.lower())[:200]
    if re.search(r"\d[abcq]$", bare):
        return None
    for pattern, chip in _PRODUCTS:
        if re.search(pattern, bare):
            return chip
    return None


def words(product: str) -> set[str]:
    """Words of a product's name in lower case, however they are joined."""
    return set(re.findall(r"[a-z0-9]+", product.lower()[:200]))


def bytes_in(product: str) -> float | None:
    """The memory that a product's name tells, such as ``80GB``; ``None`` if none or if it is the host's (GH200)."""
    told = re.search(r"(?<![\d.])(\d{2,3})\s?gb", product.lower()[:200])
    return None if told is None or "gh200" in product.lower() else float(told[1]) * 2**30


def product_of_machine(machine: str) -> str | None:
    """The product in a cloud's machine type, if that is known."""
    machine = machine.lower()
    return _MACHINES.get(machine) or _FAMILIES.get(machine.split(".")[0])


def product_of_device(number: str) -> str:
    """The product of an AMD device's number, such as ``0x74a1``; the number itself if it is none of those."""
    number = number.lower().removeprefix("0x")
    return _DEVICES.get(number, f"0x{number}")
