"""Logs of ``nvidia-smi -q`` as text in the tool's own form, each after a public one that is named beside it.

Headings, keys, their order and widths are those of the driver's log; addresses and serial numbers are not.
"""

from __future__ import annotations

HEAD = """
==============NVSMI LOG==============

Timestamp                                 : Wed Jul 10 08:31:02 2024
Driver Version                            : 555.42.02
CUDA Version                              : 12.5

Attached GPUs                             : {}
"""
_FABRIC = (
    ("State", "Completed"), ("Status", "Success"), ("CliqueId", "0"),
    ("ClusterUUID", "00000000-0000-0000-0000-000000000000"),
)  # fmt: skip


def _line(depth: int, key: str, value: str | None = None) -> str:
    margin = "    " * depth
    return f"{margin}{key}" if value is None else f"{margin}{key:<{42 - len(margin)}}: {value}"


def _group(depth: int, heading: str, *pairs: tuple[str, str]) -> list[str]:
    return [_line(depth, heading), *(_line(depth + 1, key, value) for key, value in pairs)]


def gpu(
    product: str = "NVIDIA H100 80GB HBM3",
    memory: int = 81559,
    *,
    bus: int = 16,
    mig: str = "Disabled",
    reset: str = "No",
    recovery: str = "None",
    pending: str = "No",
    failure: str = "No",
    limit: int = 700,
    slowed: str = "Not Active",
    fabric: tuple[tuple[str, str], ...] = _FABRIC,
    health: tuple[tuple[str, str], ...] = (("Bandwidth", "Full"),),
    processes: tuple[str, ...] = (),
) -> str:
    """One GPU of the log."""
    lines = [
        f"GPU 00000000:{bus:02X}:00.0",
        _line(1, "Product Name", product), _line(1, "Product Brand", "NVIDIA"),
        *_group(1, "MIG Mode", ("Current", mig), ("Pending", mig)),
        _line(1, "Serial Number", "1320222000000"), _line(1, "GPU UUID", f"GPU-{bus:032d}"),
        *_group(1, "Driver Model", ("Current", "N/A"), ("Pending", "N/A")),
        *_group(1, "GPU Reset Status", ("Reset Required", reset), ("Drain and Reset Recommended", "No")),
        _line(1, "GPU Recovery Action", recovery),
        _line(1, "PCI"), *_group(2, "GPU Link Info"), *_group(3, "PCIe Generation", ("Max", "5"), ("Current", "5")),
        _line(1, "Performance State", "P0"),
        *_group(1, "Clocks Event Reasons", ("Idle", "Active"), ("SW Power Cap", "Not Active"), ("HW Slowdown", slowed)),
        _line(3, "HW Thermal Slowdown", "Not Active"), _line(2, "Sync Boost", "Not Active"),
        *_group(1, "FB Memory Usage", ("Total", f"{memory} MiB"), ("Reserved", "551 MiB"), ("Used", "1 MiB")),
        *_group(1, "BAR1 Memory Usage", ("Total", "131072 MiB"), ("Used", "1 MiB")),
        _line(1, "ECC Errors"), *_group(2, "Volatile", ("DRAM Correctable", "353"), ("DRAM Uncorrectable", "0")),
        *_group(1, "Retired Pages", ("Single Bit ECC", "N/A"), ("Pending Page Blacklist", "N/A")),
        *_group(1, "Remapped Rows", ("Correctable Error", "1"), ("Uncorrectable Error", "0"), ("Pending", pending),
                ("Remapping Failure Occurred", failure)),
        *_group(2, "Bank Remap Availability Histogram", ("Max", "639 bank(s)"), ("High", "1 bank(s)")),
        *_group(1, "GPU Power Readings", ("Power Draw", "59.77 W"), ("Current Power Limit", f"{limit}.00 W"),
                ("Requested Power Limit", f"{limit}.00 W"), ("Default Power Limit", "700.00 W")),
        *_group(1, "GPU Memory Power Readings ", ("Power Draw", "N/A")),
        *_group(1, "Fabric", *fabric), *_group(2, "Health", *health),
        *(_group(1, "Processes") if processes else [_line(1, "Processes", "None")]),
    ]  # fmt: skip
    for number, kind in enumerate(processes):
        lines += [
            _line(2, "GPU instance ID", "N/A"), _line(2, "Compute instance ID", "N/A"),
            _line(2, "Process ID", str(4000 + number)), _line(3, "Type", kind),
            _line(3, "Name", "python3 -m sglang :30000"), _line(3, "Used GPU Memory", "70000 MiB"),
        ]  # fmt: skip
    lines += _group(1, "Capabilities", ("EGM", "disabled"))
    return "\n".join(lines) + "\n\n"


def log(*gpus: str, attached: int | None = None) -> str:
    """A whole log."""
    return HEAD.format(len(gpus) if attached is None else attached) + "".join(gpus)


def mixed() -> str:
    """Eight H100: 1 needs a reset, 2 runs a process, 3 waits for a remap, 4 is lost, 5 is split, 6 a screen's, 7 half as wide."""
    told = [
        {"limit": 500}, {"reset": "Yes"}, {"processes": ("G", "C")}, {"pending": "Yes"}, {"product": "GPU is lost"},
        {"mig": "Enabled"}, {"processes": ("G",), "slowed": "Active"}, {"health": (("Bandwidth", "Degraded"),)},
    ]  # fmt: skip
    return log(*(gpu(bus=16 + place, **more) for place, more in enumerate(told)))  # type: ignore[arg-type]


def remapped() -> str:
    """After stas00/ml-engineering, compute/accelerator/nvidia/debug.md: eight A100, one with a row to be remapped."""
    a100 = {"product": "NVIDIA A100-SXM4-80GB", "memory": 81920, "limit": 700}
    bare = tuple((key, "N/A") for key, _ in _FABRIC)
    gpus = [gpu(**a100, bus=bus, fabric=bare, health=(("Bandwidth", "N/A"),), pending="Yes" if not bus else "No")
            for bus in range(8)]  # type: ignore[arg-type]  # fmt: skip
    return log(*gpus)


def fabric(
    *health: tuple[str, str], status: str = "Success", clique: str = "0", uuid: str = ""
) -> str:
    """After kubernetes-sigs/dra-driver-nvidia-gpu, issue 626, and Azure/azhpc-images, pull request 506."""
    told = (
        ("State", "Completed"), ("Status", status), ("CliqueId", clique),
        ("ClusterUUID", uuid or "00000000-0000-0000-0000-000000000000"),
    )  # fmt: skip
    return log(gpu(fabric=told, health=health))


def split() -> str:
    """After NVIDIA/nvidia-docker, issue 1473: an A100 in two instances, whose memory is told besides that of the GPU."""
    parts = [
        line
        for number in (1, 2)
        for line in [
            _line(1, "MIG Device"), _line(2, "Index", str(number)), _line(2, "GPU Instance ID", str(number)),
            *_group(2, "FB Memory Usage", ("Total", "19968 MiB"), ("Used", "3 MiB")),
        ]
    ]  # fmt: skip
    whole = gpu("NVIDIA A100-SXM4-40GB", 40536, mig="Enabled", fabric=(("State", "N/A"), ("Status", "N/A")), health=(("Bandwidth", "N/A"),))  # fmt: skip
    head, mark, rest = whole.partition(_line(1, "Serial Number"))
    return log(head + "\n".join(parts) + "\n" + mark + rest)
