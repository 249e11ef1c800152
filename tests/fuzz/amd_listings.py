"""Listings of AMD's tools in the form that ROCm 6.4 to 7.2 print, small enough to be counted by hand."""

from __future__ import annotations

import json
from typing import Any

LINE = "=" * 90
MI300X, MI325X, MI355X = "AMD Instinct MI300X", "AMD Instinct MI325X", "AMD Instinct MI355X"


def bus(number: int) -> str:
    return f"0000:{number * 16 + 5:02x}:00.0"


def static(
    name: str = MI300X, count: int = 8, megabytes: int = 196592, mode: str = "SPX"
) -> list[dict[str, Any]]:
    """``amd-smi static --json`` of ROCm 7."""
    return [
        {"gpu": n, "asic": {"market_name": name, "vendor_id": "0x1002", "device_id": "0x74a1", "oam_id": n},
         "bus": {"bdf": bus(n), "slot_type": "OAM"}, "board": {"product_name": "N/A"},
         "vram": {"type": "HBM3", "size": {"value": megabytes, "unit": "MB"}},
         "ras": {"eeprom_version": "0x30000", "bad_page_threshold_exceeded": "False"},
         "partition": {"accelerator_partition": mode, "memory_partition": "NPS1", "partition_id": 0}}
        for n in range(count)
    ]  # fmt: skip


def topology(count: int = 8, apart: tuple[tuple[int, int], ...] = ()) -> list[dict[str, Any]]:
    """``amd-smi topology --json`` since ROCm 6.3; pairs of ``apart`` meet over PCIe."""

    def kind(a: int, b: int) -> str:
        return "SELF" if a == b else "PCIE" if {(a, b), (b, a)} & set(apart) else "XGMI"

    return [
        {"gpu": a, "bdf": bus(a), "links": [
            {"gpu": b, "bdf": bus(b), "weight": 0 if a == b else 15, "link_status": "ENABLED",
             "link_type": kind(a, b), "num_hops": int(a != b), "bandwidth": "N/A"} for b in range(count)]}
        for a in range(count)
    ]  # fmt: skip


def amd_smi() -> str:
    """Eight MI300X: 3 over its bad pages, 5 in three parts of which the bus addresses tell."""
    gpus = static()
    gpus[3]["ras"]["bad_page_threshold_exceeded"] = "True"
    gpus[5]["partition"]["accelerator_partition"] = "TPX"
    parts = [{**gpus[5], "gpu": 8 + n, "bus": {"bdf": f"{bus(5)[:-1]}{n + 1}"},
              "partition": {"accelerator_partition": "N/A", "partition_id": n + 1}} for n in range(2)]  # fmt: skip
    return json.dumps({"gpu_data": [*gpus, *parts]}, indent=1)


def amd_smi_text() -> str:
    """Eight MI355X: 2 without XGMI, no link between 6 and 7."""
    text = "".join(
        f"GPU: {n}\n    ASIC:\n        MARKET_NAME: {MI355X}\n        DEVICE_ID: 0x75a3\n    BUS:\n        BDF: {bus(n)}\n"
        "    PARTITION:\n        ACCELERATOR_PARTITION: SPX\n        MEMORY_PARTITION: NPS1\n        PARTITION_ID: 0\n"
        "    VRAM:\n        TYPE: HBM3E\n        SIZE: 294896 MB\n    CACHE_INFO:\n        CACHE_0:\n            CACHE_SIZE: 32 KB\n\n"
        for n in range(8)
    )
    rows = [bus(a) + " " + " ".join(
        "SELF" if a == b else "PCIE" if 2 in (a, b) or {a, b} == {6, 7} else "XGMI" for b in range(8)) for a in range(8)]  # fmt: skip
    head = " " * 13 + " ".join(bus(n) for n in range(8))
    hops = [f"{bus(a)} " + " ".join(str(int(a != b)) for b in range(8)) for a in range(8)]
    tables = [
        "HOPS TABLE:",
        head,
        *hops,
        "LINK TYPE TABLE:",
        head,
        *rows,
        "",
        "Legend:",
        "  SELF = Current GPU",
    ]
    return text + "\n".join(tables) + "\n"


def _log(*sections: str) -> str:
    return "\n\n" + "\n".join([
        " ROCm System Management Interface ".center(90, "="), *sections,
        " End of ROCm SMI Log ".center(90, "="), "",
    ])  # fmt: skip


def _section(name: str, *lines: str) -> str:
    return "\n".join([f" {name} ".center(90, "="), *lines, LINE])


def matrix(count: int, kind: str = "XGMI", apart: tuple[tuple[int, int], ...] = ()) -> str:
    """The section of link types of ``--showtopo``."""
    rows = [" " * 7 + "".join(f"GPU{n}".ljust(13) for n in range(count))]
    for a in range(count):
        kinds = [
            "0" if a == b else "PCIE" if {(a, b), (b, a)} & set(apart) else kind
            for b in range(count)
        ]
        rows.append(f"GPU{a}   " + "".join(word.ljust(13) for word in kinds))
    return "\n".join([" Link Type between two GPUs ".center(90, "="), *rows])


def product(count: int, name: str = MI325X, key: str = "Card Series") -> str:
    """The section of ``--showproductname``."""
    return _section("Product Info", *(
        line for n in range(count) for line in (
            f"GPU[{n}]\t\t: {key}: \t\t{name}", f"GPU[{n}]\t\t: Card Model: \t\t0x74a5",
            f"GPU[{n}]\t\t: Card Vendor: \t\tAdvanced Micro Devices, Inc. [AMD/ATI]")))  # fmt: skip


def memory(used: dict[int, int], count: int = 8, total: int = 274542362624) -> str:
    """The section of ``--showmeminfo vram``; drivers alone take 297 MB."""
    return _section("Memory Usage (Bytes)", *(
        line for n in range(count) for line in (
            f"GPU[{n}]\t\t: VRAM Total Memory (B): {total}",
            f"GPU[{n}]\t\t: VRAM Total Used Memory (B): {used.get(n, 297611264)}")))  # fmt: skip


def rocm_smi() -> str:
    """Eight MI325X: processes on 0, 1 and 4, a full memory on 6."""
    pids = _section("GPUs Indexed by PID", "PID 78912 is using 0 DRM device(s)", "PID 79301 is using 1 DRM device(s):", "4 ",
                    "PID 1949829 is using 2 DRM device(s):", "0 ", "1 ")  # fmt: skip
    return _log(product(8), matrix(8), memory({6: 250_000_000_000}), pids)


FILES = {"amd-1.json": amd_smi(), "amd-2.txt": amd_smi_text(), "amd-3.txt": rocm_smi()}
