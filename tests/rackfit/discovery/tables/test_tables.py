"""Tables of AMD's and NVIDIA's tools, links that are alive, dumps of a cluster: what they tell, and what is refused."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import table_listings as listings
from table_listings import nvlink, pod, table

from rackfit.discovery.discover import discover
from tests.rackfit.discovery.asking import found_in, refusal, sizes
from topology.errors import InstanceError

H100 = "NVIDIA H100 80GB HBM3"
#: after ROCm's page on partitions (MIT): parts have the address of their GPU, an ellipsis in it filled in
CPX = table(
    "gpu,gpu_bdf,gpu_uuid", *(f"{n},0000:{n // 8:02x}:00.0,c{n // 8}ff74a1" for n in range(64))
)
#: after ROCm's page on the tool for hypervisors (MIT)
HYPERVISOR = table(
    "gpu,gpu_bdf,gpu_uuid,vf,vf_bdf,vf_uuid", "0,0000:0c:00.0,67ff74a1,0,0000:0c:02.0,670074a1"
)
#: topology --link-type --csv
OLD_LINKS = table(
    "gpu,bdf,link_type_gpu_0,link_type_gpu_1",
    "0,0000:0c:00.0,SELF,XGMI",
    "1,0000:0d:00.0,XGMI,SELF",
)


def test_parts_of_amd_gpus_are_put_together_by_their_address(tmp_path: Path) -> None:
    found = found_in(tmp_path, "h.csv", CPX, chip="mi300x")
    assert (sizes(found), len(found.taken)) == ([8], 8)
    assert sizes(found_in(tmp_path, "h.csv", HYPERVISOR, chip="mi300x")) == [1]
    assert not found_in(tmp_path, "h.csv", OLD_LINKS, chip="mi300x").failed
    apart = OLD_LINKS.replace("XGMI", "PCIE")
    assert "no link of the scale-up between its GPUs" in refusal(
        tmp_path, "h.csv", apart, chip="mi300x"
    )


@pytest.mark.parametrize("name", listings.FILES)
def test_lines_end_as_the_tools_end_them(name: str, tmp_path: Path) -> None:
    """amd-smi ends them as CSV does, on Windows all tools; editors put a mark before the text."""
    text = listings.FILES[name]
    usual = found_in(tmp_path, name, text)
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    other = discover([tmp_path / name])
    assert (other.failed, other.taken, sizes(other)) == (usual.failed, usual.taken, sizes(usual))


#: tables of topology as ROCm 6.3 to 7.2 name them in --csv, each with a cell by row, column and whether XGMI joins them
#: (after topology and flatten_dict of ROCm/amdsmi, MIT, amdsmi_cli), and the same fact in a list of --json
LINK_TABLES: dict[str, tuple[Callable[[int, int, bool], Any], str]] = {
    "link_accessibility": (lambda a, b, xgmi: "ENABLED", "link_status"),
    "weight": (lambda a, b, xgmi: 0 if a == b else 15 if xgmi else 40, "weight"),
    "hops": (lambda a, b, xgmi: 0 if a == b else 1 if xgmi else 2, "num_hops"),
    "link_type": (lambda a, b, xgmi: "SELF" if a == b else "XGMI" if xgmi else "PCIE", "link_type"),
    "numa_bandwidth": (lambda a, b, xgmi: "50000-64000" if xgmi and a != b else "N/A", "bandwidth"),
    "coherent": (lambda a, b, xgmi: "SELF" if a == b else "NC", "coherent"),
    "atomics": (lambda a, b, xgmi: "SELF" if a == b else "64,32", "atomics"),
}


def linked(names: Sequence[str], lost: set[tuple[int, int]], as_json: bool) -> str:
    """Eight GPUs with some tables of ``amd-smi topology``; no XGMI joins the pairs of ``lost``."""
    rows: list[dict[str, Any]] = [{"gpu": n, "bdf": f"0000:{n}5:00.0"} for n in range(8)]
    for a, row in enumerate(rows):
        joined = [not {(a, b), (b, a)} & lost for b in range(8)]
        if as_json:
            row["links"] = [
                {"gpu": b, "bdf": rows[b]["bdf"]}
                | {LINK_TABLES[name][1]: LINK_TABLES[name][0](a, b, joined[b]) for name in names}
                for b in range(8)
            ]
            continue
        for name in names:
            for b in range(8):
                row[f"{name}_gpu_{b}"] = LINK_TABLES[name][0](a, b, joined[b])
    if as_json:
        return json.dumps(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("names", [list(LINK_TABLES), ["link_type"], ["hops"], ["hops", "weight"]])
def test_links_of_topology_tell_what_xgmi_joins(
    names: list[str], as_json: bool, tmp_path: Path
) -> None:
    name = "h.json" if as_json else "h.csv"
    found = found_in(tmp_path, name, linked(names, {(0, 3), (4, 6)}, as_json), chip="mi300x")
    assert set(found.failed) == {"r0g0--r0g3", "r0g4--r0g6"}
    assert not found_in(tmp_path, name, linked(names, set(), as_json), chip="mi300x").failed


@pytest.mark.parametrize("as_json", [False, True])
def test_what_bandwidths_do_not_tell_is_asked_for(as_json: bool, tmp_path: Path) -> None:
    """None is told of pairs over PCIe, nor where the driver fails to tell one."""
    name, tables = "h.json" if as_json else "h.csv", ["weight", "numa_bandwidth"]
    assert not found_in(tmp_path, name, linked(tables, set(), as_json), chip="mi300x").failed
    said = refusal(tmp_path, name, linked(tables, {(0, 3)}, as_json), chip="mi300x")
    assert "no link type of GPUs 0 and 3" in said
    assert "amd-smi topology --link-type tells them" in said
    weights = linked(["weight", "link_accessibility"], {(0, 3)}, as_json)
    assert not found_in(tmp_path, name, weights, chip="mi300x").failed


def test_units_may_stand_in_the_header_alone(tmp_path: Path) -> None:
    """``--format=csv,nounits``; without an index, rows are in the order of the GPUs."""
    text = table(
        "name, memory.total [MiB], memory.used [MiB]", f"{H100}, 81559, 0", f"{H100}, 81559, 70000"
    )
    found = found_in(tmp_path, "h.csv", text)
    assert (sizes(found), set(found.taken), set(found.failed)) == ([2], {"r0g1"}, set())
    assert (
        "h: GPUs with more than 5% of their memory in use are taken; processes are not told"
        in found.assumed
    )
    bare = found_in(tmp_path, "h.csv", table("index, name", f"0, {H100}", f"1, {H100}"))
    assert any("does not tell which GPUs are in use" in note for note in bare.notes)


def test_of_a_table_that_goes_on_the_last_rows_count(tmp_path: Path) -> None:
    rows = [f"0, {H100}, GPU-a, 81559 MiB, {used} MiB" for used in (70000, 4)]
    text = table("index, name, uuid, memory.total [MiB], memory.used [MiB]", *rows)
    found = found_in(tmp_path, "h.csv", text)
    assert (sizes(found), found.taken) == ([1], {})
    two = text.replace("GPU-a, 81559 MiB, 4", "GPU-b, 81559 MiB, 4")
    assert "uuid: GPU 0 is GPU-b and GPU-a; expected a file for each host" in refusal(
        tmp_path, "h.csv", two
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (table("index, name, memory.total [MiB]", f"0, {H100}"), "h.csv:2: 2 cells below 3 names; the file seems cut off"),
        (table("index, name, name", f"0, {H100}, {H100}"), "h.csv:1: two columns called name"),
        (table("index, name", f"1, {H100}"), "tells of GPUs 1; expected all of the host"),
        (table("index, name", f"x, {H100}"), "h.csv:2: index: expected a number of a GPU, got x"),
        (table("index, name, memory.used [MiB]", f"0, {H100}, 3 GiB"), "memory.used: expected an amount such as 81559 MiB, got 3 GiB"),
        (table("index, name", f"0, {H100}", "1, NVIDIA H200"), "several kinds of GPU in one host"),
        (listings.amd_csv()[:-30], "cells below 4 names; the file seems cut off"),
        (table("gpu,market_name,size", "0,AMD Instinct MI300X,much"), "GPU 0: vram.size: expected an amount such as 196592 MB"),
        (table("gpu,market_name", "two,AMD Instinct MI300X"), "gpu: expected the number of a GPU, got two"),
        (table("device,Card Series", "card0,AMD Instinct MI300X", "gpu1,x"), "expected a card such as card0, got gpu1"),
    ],
)  # fmt: skip
def test_tables_that_are_cut_off_or_contradict_themselves_are_refused(
    text: str, said: str, tmp_path: Path
) -> None:
    assert said in refusal(tmp_path, "h.csv", text)


def test_dead_links_of_switches_fail_and_those_of_pairs_are_said(tmp_path: Path) -> None:
    """V100 after Azure/azhpc-diagnostics, issue 73; A100 after NVIDIA/nccl-tests, issue 228."""
    a100 = nvlink("NVIDIA A100-SXM4-80GB", 8, 12, 25, {7: tuple(range(12)), 1: (0,)})
    found = found_in(tmp_path, "h.txt", a100)
    assert found.failed == {
        "r0g7": "h: no NVLink, unlike the host's other GPUs",
        "r0g1--r0sw0": "h: 11 of 12 links left",
    }
    # no chip of NVIDIA's in the catalogue is wired in pairs, so that of another maker stands for it
    hybrid = nvlink("Tesla V100-SXM2-16GB", 8, 6, 25.781, {3: (3, 5)})
    found = found_in(tmp_path, "h.txt", hybrid, chip="mi300x")
    assert not found.failed
    assert any("which pairs of GPUs they joined is not told" in word for word in found.assumed)


def test_links_count_beside_a_matrix_and_a_log(tmp_path: Path) -> None:
    matrix = "\n".join(
        ["\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity"]
        + [
            f"GPU{a}\t" + "\t".join("X" if a == b else "NV18" for b in range(4)) + "\t0-71"
            for a in range(4)
        ]
    )
    found = found_in(tmp_path, "h.txt", f"{matrix}\n\n{nvlink()}")
    assert set(found.failed) == {"r0g2--r0sw0", "r0g2--r0sw1"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (nvlink()[: nvlink().rindex("Link 9")], "GPU 3 has 9 links, others have 18; the file seems cut off"),
        (nvlink()[nvlink().index("GPU 1:") :], "tells of GPUs 1, 2, 3; expected all of the host"),
        (nvlink() * 2, "link 0 of GPU 0 stands twice; expected a file for each host"),
        (nvlink(count=2) + nvlink("NVIDIA GB300").split("GPU 2:")[0].replace("GPU 1", "GPU 3").replace("GPU 0", "GPU 2"),
         "several kinds of GPU in one host: NVIDIA GB200, NVIDIA GB300"),
        (nvlink(dead=dict.fromkeys(range(4), tuple(range(18)))), "no NVLink at GPU 0, gb200 of the catalogue has 18"),
    ],
)  # fmt: skip
def test_links_that_are_not_those_of_one_host_are_refused(
    text: str, said: str, tmp_path: Path
) -> None:
    assert said in refusal(tmp_path, "h.txt", text)


def test_a_folder_of_a_dump_is_read_as_its_stream(tmp_path: Path) -> None:
    listed = listings.dump().split("\n====")[0].split("\n{")
    nodes, _, pods = [listed[0], *("{" + part for part in listed[1:])]
    folder = tmp_path / "dump"
    (folder / "default" / "server").mkdir(parents=True)
    (folder / "nodes.json").write_text(nodes)
    (folder / "default" / "pods.json").write_text(pods)
    (folder / "default" / "server" / "logs.txt").write_text(
        "==== START logs for container x of pod y/z ====\n"
    )
    found = discover([folder])
    assert (sizes(found), set(found.taken)) == ([8, 8], {"r0g6", "r0g7"})
    with pytest.raises(InstanceError, match="a folder without nodes"):
        discover([folder / "default"])


def test_a_dump_of_some_namespaces_says_so(tmp_path: Path) -> None:
    """Without --all-namespaces kubectl dumps those two."""
    said = "holds pods of default alone; chips of pods elsewhere count as free"
    assert any(said in word for word in found_in(tmp_path, "d.json", listings.dump()).assumed)
    more = listings.dump().replace('"namespace": "default"', '"namespace": "team"', 1)
    assert not any("count as free" in word for word in found_in(tmp_path, "d.json", more).assumed)


def test_a_dump_that_ends_within_logs_is_refused(tmp_path: Path) -> None:
    text = listings.dump()
    cut = text[: text.index("==== END")]
    assert "ends within START logs for container main of pod default/server" in refusal(
        tmp_path, "d.json", cut
    )


def test_what_pods_ask_for_counts_as_kubernetes_counts_it(tmp_path: Path) -> None:
    """One that runs before the others holds its chips before they do; one that stays holds them as well."""

    def asking(chips: int, **more: str) -> dict[str, object]:
        return {"resources": {"limits": {"nvidia.com/gpu": chips}}, **more}

    nodes = json.loads(listings.dump().split("\n{")[0])
    for first, taken in (
        ([asking(3)], 3), ([asking(1)], 2), ([asking(1, restartPolicy="Always")], 3),
        ([asking(1, restartPolicy="Always"), asking(4)], 5),
    ):  # fmt: skip
        both = {"kind": "List", "items": [{**one, "kind": "Node"} for one in nodes["items"]]
                + [{**pod("p", "n1", 2, initContainers=first), "kind": "Pod"}]}  # fmt: skip
        assert len(found_in(tmp_path, "l.json", json.dumps(both)).taken) == taken
    wrong = listings.dump().replace('"nvidia.com/gpu": "2"', '"nvidia.com/gpu": "2k"')
    assert "pod server: limits: nvidia.com/gpu: expected a number of chips, got 2k" in refusal(
        tmp_path, "d.json", wrong
    )
    claims = listings.dump().replace(
        '"nodeName": "n2"', '"nodeName": "n2", "resourceClaims": [{"name": "gpu"}]'
    )
    assert any(
        "1 pods have resource claims" in note for note in found_in(tmp_path, "d.json", claims).notes
    )
