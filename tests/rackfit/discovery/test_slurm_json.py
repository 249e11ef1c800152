"""Nodes as Slurm's data parsers write them, counted by hand; forms are those of its source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import slurm_listings as slurm
import yaml

from tests.rackfit.discovery.asking import found_in, refusal, sizes
from tests.rackfit.discovery.slurm_samples import JSON_0040, RESTD_0037


def test_a_listing_of_a_real_cluster_is_counted_as_by_hand(tmp_path: Path) -> None:
    found = found_in(tmp_path, "n.json", JSON_0040, hosts="sxm1")
    assert (sizes(found), found.failed) == ([4], {"r0": "sxm1: DRAIN (gpu_board)"})
    said = refusal(tmp_path, "n.json", JSON_0040)
    assert said.count("no chip of the catalogue is nvidia_a100_80gb_pcie") == 2
    assert "part1" not in said
    every = found_in(tmp_path, "n.json", JSON_0040, chip="h100")
    assert list(every.hosts.values()) == [["pcie1"], ["pcie2"], ["sxm1"], ["sxm2"]]
    assert (sizes(every), set(every.failed), set(every.taken)) == (
        [1, 3, 4, 8],
        {"r1", "r2"},
        {"r0g0"},
    )
    assert sum("GPUs that MIG splits are left out" in note for note in every.notes) == 3
    assert any("1 nodes without GPUs" in note for note in every.notes)


def test_an_answer_over_http_of_an_old_slurm(tmp_path: Path) -> None:
    found = found_in(tmp_path, "answer.txt", RESTD_0037, chip="v100")
    assert list(found.hosts.values()) == [["dgx1"], ["dgx2"], ["x1"], ["x2"]]
    assert sizes(found) == [16, 8, 1, 2]
    assert set(found.failed) == {"r2"}
    assert set(found.taken) == {*(f"r{r}g{g}" for r in (0, 1) for g in range(8)), "r3g0"}


@pytest.mark.parametrize(
    ("state", "flags", "failed", "taken"),
    [
        (["IDLE"], None, 0, 0),
        (["MIXED", "PLANNED"], None, 0, 0),
        (["IDLE", "COMPLETING"], None, 0, 0),
        (["IDLE", "NOT_RESPONDING"], None, 1, 0),
        (["DOWN", "CLOUD", "POWERED_DOWN"], None, 1, 0),
        (["ALLOCATED", "DRAIN"], None, 1, 0),
        (["IDLE", "RESERVED"], None, 0, 8),
        (["MAINTENANCE", "RESERVED"], None, 1, 0),
        ("idle", [], 0, 0),
        ("idle", ["DRAIN"], 1, 0),
        ("down", ["NOT_RESPONDING"], 1, 0),
        ("idle", ["RESERVED"], 0, 8),
    ],
)
def test_states_and_flags_of_every_version(
    state: Any, flags: Any, failed: int, taken: int, tmp_path: Path
) -> None:
    told = {} if flags is None else {"state_flags": flags}
    found = found_in(tmp_path, "n.json", slurm.answer(slurm.node("g1", state, **told)))
    assert (len(found.failed), len(found.taken)) == (failed, taken)


def group(
    names: list[str], state: list[str], gres: str | None, used: str | None = None, **told: Any
) -> dict[str, Any]:
    """A group of ``sinfo --json`` since Slurm 23.02."""
    return {"port": 6818, "node": {"state": state}, "nodes": {"total": len(names), "hostnames": [], "addresses": [], "nodes": names},
            "gres": {"total": gres, "used": used}, "reason": {"description": "", "time": 0}, "partition": {"name": "gpu"}, **told}  # fmt: skip


def test_groups_of_sinfo_are_counted_node_by_node(tmp_path: Path) -> None:
    """A node in two partitions is told twice."""
    drained = {"reason": {"description": "Xid 79", "time": 1}}
    mixed = group(["g4"], ["MIXED"], "gpu:h100:8", "gpu:h100:3(IDX:N/A)")
    text = slurm.answer(
        group(["g1"], ["IDLE"], "gpu:h100:8", "gpu:h100:0(IDX:N/A)"),
        group(["g3"], ["IDLE", "DRAIN"], "gpu:h100:8", "gpu:h100:0(IDX:N/A)", **drained),
        mixed, {**mixed, "partition": {"name": "all"}}, group(["c1"], ["IDLE"], ""), key="sinfo",
    )  # fmt: skip
    found = found_in(tmp_path, "sinfo.json", text)
    assert list(found.hosts.values()) == [["g1"], ["g3"], ["g4"]]
    assert found.failed == {"r1": "g3: DRAIN (Xid 79)"}
    assert set(found.taken) == {"r2g5", "r2g6", "r2g7"}
    assert not any("sinfo tells" in word for word in found.assumed)


def test_what_sinfo_tells_of_the_first_node_of_a_group_is_said_to_be_taken_for_all(
    tmp_path: Path,
) -> None:
    text = slurm.answer(group(["g1", "g2"], ["IDLE"], "gpu:h100:8"), group(["c1", "c2"], ["IDLE"], None), key="sinfo")  # fmt: skip
    found = found_in(tmp_path, "sinfo.json", text)
    assert sizes(found) == [8, 8]
    said = [word for word in found.assumed if "sinfo tells of 2 nodes" in word]
    assert [("gpu:h100:8" in word, "no GRES" in word) for word in said] == [
        (True, False),
        (False, True),
    ]


@pytest.mark.parametrize("form", ["yaml", "list", "one", "lines", "null"])
def test_other_forms_of_the_same_nodes(form: str, tmp_path: Path) -> None:
    nodes = [
        slurm.node("g1", ["IDLE"]),
        slurm.node("g2", ["MIXED"], gres_used="gpu:h100:2(IDX:6-7)"),
    ]
    text = {
        "yaml": yaml.safe_dump({"meta": slurm.META, "nodes": nodes}, sort_keys=False),
        "list": json.dumps(nodes),
        "one": json.dumps(nodes[1]),
        "lines": "\n".join(map(json.dumps, nodes)),
        "null": slurm.answer({**nodes[0], "gres_used": None, "tres_used": None, "reason": None}, nodes[1]),
    }[form]  # fmt: skip
    found = found_in(tmp_path, f"n.{form}", text)
    last = len(found.hosts) - 1
    assert sizes(found) == [8] * (1 if form == "one" else 2)
    assert set(found.taken) == {f"r{last}g6", f"r{last}g7"}


def test_a_node_told_twice_counts_once_or_is_refused(tmp_path: Path) -> None:
    """Uses of which only the number is told were added up; records of scontrol's text, too."""
    used = slurm.node("g1", ["MIXED"], gres_used="gpu:h100:2")
    assert len(found_in(tmp_path, "n.json", slurm.answer(used, used)).taken) == 2
    said = refusal(tmp_path, "n.json", slurm.answer(used, {**used, "state": ["DOWN"]}))
    assert "g1: told twice, not in the same words" in said
    record = "NodeName=g1 Arch=x86_64\n   Gres=gpu:h100:8\n   GresUsed=gpu:h100:2\n   State=MIXED\n"
    assert len(found_in(tmp_path, "n.txt", record + "\n" + record).taken) == 2


@pytest.mark.parametrize(
    ("told", "place"),
    [
        ({"state": 5}, "g1: state: expected a word or a list of words"),
        ({"state": []}, "g1: state: expected a word or a list of words"),
        ({"state": [{}]}, "g1: state: expected a word or a list of words"),
        (
            {"state_flags": "DRAIN, 5", "state": None},
            "g1: state: expected a word or a list of words",
        ),
        ({"gres": 8}, "g1: gres: expected text as scontrol shows it, got 8"),
        ({"gres_used": ["gpu:8"]}, "g1: gres_used: expected text as scontrol shows it"),
        ({"gres": "gpu:h100:8(S:0"}, "g1: expected gpu:KIND:NUMBER"),
        ({"name": None}, "name: expected a node's, got None"),
        ({"name": 7}, "name: expected a node's, got 7"),
    ],
)
def test_what_no_version_writes_has_its_place(
    told: dict[str, Any], place: str, tmp_path: Path
) -> None:
    assert place in refusal(
        tmp_path, "n.json", slurm.answer({**slurm.node("g1", ["IDLE"]), **told})
    )


def test_a_node_without_a_state_is_cut_off(tmp_path: Path) -> None:
    bare = {key: value for key, value in slurm.node("g1", ["IDLE"]).items() if key != "state"}
    assert "g1: the record has no State" in refusal(tmp_path, "n.json", slurm.answer(bare))


def test_groups_without_names_have_their_place(tmp_path: Path) -> None:
    text = slurm.answer(
        {**group(["g1"], ["IDLE"], "gpu:h100:8"), "nodes": {"total": 1}}, key="sinfo"
    )
    assert "nodes: expected a list of node names, got None" in refusal(tmp_path, "n.json", text)
