"""Clusters made of what AMD's tools print have the chips, links and failures that were counted by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import amd_listings as amd
import pytest
from typer.testing import CliRunner

from rackfit.cli.app import build_app
from rackfit.discovery.discover import discover
from tests.rackfit.discovery import amd_samples as real
from tests.rackfit.discovery.asking import found_in, refusal, sizes


def several(*values: Any) -> str:
    return "\n".join(json.dumps(value, indent=1) for value in values)


PROCESSES = [
    {"gpu": 0, "process_list": [{"process_info": {"name": "python3", "pid": 9, "mem_usage": {"value": 5, "unit": "B"}}}]},
    {"gpu": 1, "process_list": [{"process_info": "No running processes detected"}]},
    {"gpu": 2, "process_list": [{"process_info": "N/A"}]},
]  # fmt: skip
METRICS = {"gpu_data": [
    {"gpu": n, "mem_usage": {"total_vram": {"value": 196592, "unit": "MB"}, "used_vram": {"value": used, "unit": "MB"}}}
    for n, used in enumerate((283, 121344, 283, 283))
]}  # fmt: skip
PARTITIONS = {"current_partition": [
    {"gpu_id": n, "memory": "NPS1", "accelerator_type": "CPX", "accelerator_profile_index": 3, "partition_id": str(n % 8)}
    for n in range(16)
], "memory_partition": []}  # fmt: skip
LIST = [{"gpu": n, "bdf": f"0000:{n // 8 + 1:02x}:00.{n % 8}", "uuid": f"u{n}", "partition_id": n % 8} for n in range(16)]  # fmt: skip

#: text, options, chip, chips, failed, taken
COUNTED: dict[str, tuple[str, dict[str, Any], str, int, set[str], set[str]]] = {
    "amd-1.json": (amd.amd_smi(), {}, "mi300x", 8, {"r0g3"}, {"r0g5"}),
    "amd-2.txt": (amd.amd_smi_text(), {}, "mi355x", 8, {"r0g2", "r0g6--r0g7"}, set()),
    "amd-3.txt": (amd.rocm_smi(), {}, "mi325x", 8, set(), {"r0g0", "r0g1", "r0g4", "r0g6"}),
    "concise.txt": (real.SPX, {}, "mi300x", 8, set(), set()),
    "busy.txt": (real.concise("0x75a3", 8, used={2: 91, 5: 4}), {}, "mi355x", 8, set(), {"r0g2"}),
    "concise-60.txt": (real.SPX_60, {}, "mi300x", 4, set(), set()),
    "all-60.txt": (real.ALL_60, {}, "mi300x", 4, set(), set()),
    "virtual.txt": (real.VIRTUAL, {}, "mi300x", 4, set(), set()),
    "report.txt": (real.REPORT, {}, "mi300x", 8, set(), set()),
    "collected.txt": (real.COLLECTED, {}, "mi355x", 8, set(), set()),
    "tpx.txt": (real.TPX_BUSES, {"chip": "mi300x"}, "mi300x", 2, set(), {"r0g0", "r0g1"}),
    "dpx-table.txt": (real.DPX_TABLE, {}, "mi300x", 2, set(), {"r0g0", "r0g1"}),
    "busy-table.txt": (real.BUSY_TABLE, {}, "mi325x", 4, set(), {"r0g1", "r0g2"}),
    "hypervisor.txt": (real.HYPERVISOR, {"chip": "mi300x"}, "mi300x", 1, set(), set()),
    "old.json": (real.OLD_TOPOLOGY, {"chip": "mi300x"}, "mi300x", 2, set(), set()),
    "rocm.json": (real.rocm_json(apart=(2, 7)), {}, "mi300x", 8, {"r0g2--r0g7"}, set()),
    "warned.json": ("WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status\n\n"
                    + real.rocm_json(4, "AMD Instinct MI325X VF").replace("206141652992", "274542362624"),
                    {}, "mi325x", 4, set(), set()),
    "static.json": (several(amd.static()), {}, "mi300x", 8, set(), set()),
    "both.json": (several(amd.static(), amd.topology(apart=((0, 1), (4, 6)))), {}, "mi300x", 8, {"r0g0--r0g1", "r0g4--r0g6"}, set()),
    "used.json": (several(amd.static(count=4), METRICS, PROCESSES), {}, "mi300x", 4, set(), {"r0g0", "r0g1"}),
    "mi355x.json": (several(amd.static(amd.MI355X, 8, 294896)), {}, "mi355x", 8, set(), set()),
    "list.json": (several(LIST), {"chip": "mi300x"}, "mi300x", 2, set(), {"r0g0", "r0g1"}),
    "parts.json": (several(PARTITIONS, [{k: v for k, v in e.items() if k != "partition_id"} for e in LIST]),
                   {"chip": "mi300x"}, "mi300x", 2, set(), {"r0g0", "r0g1"}),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTED)
def test_what_was_counted_by_hand_is_found(name: str, tmp_path: Path) -> None:
    text, options, chip, chips, failed, taken = COUNTED[name]
    found = found_in(tmp_path, name, text, **options)
    assert found.cluster.chip_names == (chip,)
    assert sizes(found) == [chips]
    assert list(found.hosts.values()) == [[name.partition(".")[0]]]
    assert set(found.failed) == failed
    assert set(found.taken) == taken
    assert set(found_in(tmp_path, name, text, free=True, **options).taken) == {
        place for place, reason in found.taken.items() if "partitions" in reason
    }


#: of each chip one listing with something broken
SOLVED = ("amd-1.json", "amd-2.txt", "amd-3.txt", "both.json", "virtual.txt", "collected.txt")


@pytest.mark.parametrize("name", SOLVED)
def test_the_cluster_found_is_solved(name: str, tmp_path: Path) -> None:
    text, options, *_, failed, taken = COUNTED[name]
    out = tmp_path / "mine.yaml"
    out.write_text(found_in(tmp_path, name, text, **options).text())
    words = ["solve", "--model", "llama-3.1-8b", "--cluster", str(out), "--input-tokens", "1000",
             "--output-tokens", "100", "--gap", "0.2", "--json"]  # fmt: skip
    done = CliRunner().invoke(build_app(), words)
    assert done.exit_code == 0, done.output
    used = {chip for replica in json.loads(done.stdout)["layout"]["replicas"]
            for stage in replica["stages"] for chip in stage["chips"]}  # fmt: skip
    assert used
    assert not used & (failed | taken)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("h.txt", real.MI308X, "h: no chip of the catalogue is AMD Instinct MI308X"),
        ("h.txt", real.CPX, "64 parts of GPUs (CPX), and it does not tell the bus addresses"),
        ("h.txt", real.DPX_IDS, "16 parts of GPUs (partitions), and it does not tell the bus addresses"),
        ("h.json", several(PARTITIONS), "16 parts of GPUs (CPX)"),
        ("h.txt", real.SPX[: len(real.SPX) // 2], "no line End of ROCm SMI Log at its end"),
        ("h.txt", amd._log(amd.matrix(8)[:400]), "expected 8 rows of 8 types under the header"),
        ("h.json", several(amd.static()[1:]), "tells of GPUs 1, 2, 3, 4, 5, 6, 7; expected all of the host"),
        ("h.json", several(amd.static(count=2), amd.static(amd.MI325X, 2)), "several kinds of GPU in one host"),
        ("h.json", several(amd.static(count=2), [{"gpu": 1, "bdf": "0000:99:00.0"}]), "GPU 1: is at 0000:99:00.0 and at 0000:15:00.0"),
        ("h.json", several(amd.static(count=2), [*amd.topology(2)[:1], {"gpu": 1, "links": []}], [{"gpu": 2, "bdf": "a"}]), "no link type of GPUs 0 and 2"),
        ("h.json", several(amd.static(megabytes=98304)), "96.0 GiB, mi300x of the catalogue has 178.8 GiB"),
        ("h.json", several([{"gpu": "x", "bdf": "a"}]), "gpu: expected the number of a GPU, got x"),
        ("h.json", several([{"gpu": True, "bdf": "a"}]), "gpu: expected the number of a GPU, got True"),
        ("h.json", several([{"gpu": 99999, "bdf": "a"}]), "expected the number of a GPU, got 99999"),
        ("h.json", several([{"gpu": 0, "vram": {"size": {"value": "much", "unit": "MB"}}}]), "GPU 0: vram.size: expected an amount"),
        ("h.json", json.dumps({"card0": {"VRAM Total Memory (B)": "many"}}), "card0: VRAM Total Memory (B): expected bytes, got many"),
        ("h.json", json.dumps({"card1": {"Card Series": amd.MI300X}}), "tells of GPUs 1; expected all of the host"),
        ("h.txt", amd.amd_smi_text().replace("\n0000:75:00.0 XGMI", "\n0000:76:00.0 XGMI"), "LINK TYPE TABLE: expected 8 rows"),
        ("h.txt", "\n".join(amd.amd_smi_text().splitlines()[:-6]), "LINK TYPE TABLE: expected 8 rows of 8 types"),
        ("h.txt", real.REPORT.replace("4,5,6,7:", "4,5,6,7,8:"), "GPU 8 is named and rocm-smi tells nothing of it"),
        ("h.txt", amd._log(amd.matrix(2)) * 2, "more than one matrix of link types"),
    ],
)  # fmt: skip
def test_what_cannot_be_counted_is_refused_with_its_place(
    name: str, text: str, said: str, tmp_path: Path
) -> None:
    assert said in refusal(tmp_path, name, text)


def test_gpus_without_links_are_another_chip(tmp_path: Path) -> None:
    said = refusal(tmp_path, "h.txt", real.PCIE, chip="mi300x")
    assert "h: no link of the scale-up between its GPUs, mi300x of the catalogue has 7" in said
    assert "--chip the path of a chip file" in said


def test_two_hives_have_no_link_between_them(tmp_path: Path) -> None:
    found = found_in(tmp_path, "h.txt", real.HIVES, chip="mi300x")
    assert set(found.failed) == {f"r0g{a}--r0g{b}" for a in range(4) for b in range(4, 8)}
    assert len(list(found.cluster.domains[0].fabric.links())) == 12


def test_files_of_one_host_add_up(tmp_path: Path) -> None:
    """Each in a folder of its own, as both are named like the host."""
    for folder, text in (
        ("static", several(amd.static())),
        ("links", amd._log(amd.matrix(8, apart=((0, 7),)))),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"node-1.{'json' if folder == 'static' else 'txt'}").write_text(text)
    found = discover(sorted(tmp_path.glob("*/node-1.*")))
    assert list(found.hosts.values()) == [["node-1"]]
    assert set(found.failed) == {"r0g0--r0g7"}
    assert not any("memory" in word for word in found.assumed)


def test_a_link_that_is_not_told_is_no_lost_link(tmp_path: Path) -> None:
    """rocm-smi writes XXXX where the driver tells no type."""
    text = amd._log(amd.product(2), amd.matrix(2, "XXXX"))
    assert not found_in(tmp_path, "h.txt", text).failed
    some = amd._log(amd.product(3), amd.matrix(3).replace("XGMI", "XXXX", 1))
    assert not found_in(tmp_path, "h.txt", some).failed


def test_the_number_of_a_device_counts_before_that_of_its_board(tmp_path: Path) -> None:
    """Up to ROCm 6.0 the model of a card is that of its board; the device was called GPU ID up to 5.7."""
    text = json.dumps({"card0": {"GPU ID": "0x74a1", "Card model": "0x0c34"}})
    assert found_in(tmp_path, "h.json", text).cluster.chip_names == ("mi300x",)
    text = json.dumps({"card0": {"Card model": "0x74a5", "Device ID": "0x75a3"}})
    assert found_in(tmp_path, "h.json", text).cluster.chip_names == ("mi355x",)


@pytest.mark.parametrize("kind", [["XGMI"], {"XGMI": 1}, 7, None, "XXXX"])
def test_a_link_type_of_another_form_is_one_that_is_not_told(kind: Any, tmp_path: Path) -> None:
    links = amd.topology(2)
    for entry in links:
        for link in entry["links"]:
            link["link_type"] = kind
    assert not found_in(tmp_path, "h.json", several(amd.static(count=2), links)).failed


def test_processes_of_which_only_the_number_of_gpus_is_told(tmp_path: Path) -> None:
    """Processes that use no memory of a GPU are listed, too."""
    system = {"PID28389": "llama-server, 2, 2353860608, 11011, 0", "PID1": "sshd, 8, 0, 0, 0"}
    text = json.dumps(
        {**{f"card{n}": {"Card Series": amd.MI300X} for n in range(4)}, "system": system}
    )
    assert set(found_in(tmp_path, "h.json", text).taken) == {"r0g2", "r0g3"}
