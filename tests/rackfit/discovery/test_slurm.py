"""Kinds, counts and shares as clusters write them into GRES, counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rackfit.discovery.asking import found_in, refusal, sizes


def node(gres: str, used: str = "", name: str = "g1", rest: str = "") -> str:
    """A record of ``scontrol show node -d``."""
    used = f"   GresUsed={used}\n" if used else ""
    return f"NodeName={name} Arch=x86_64\n   CPUTot=64\n   Gres={gres}\n{used}   State=MIXED ThreadsPerCore=1\n{rest}\n"


@pytest.mark.parametrize(
    ("gres", "chip", "chips"),
    [
        ("gpu:4090:8(S:0-1)", "rtx4090", 8),
        ("gpu:2080ti:4(S:0-1)", "t4", 4),
        ("gpu:1g.10gb:14(S:0-1),gpu:h100:6(S:0-1)", None, 6),
        ("gpu:h100:4,vgpu:16", None, 4),
        ("gpu:h100:4,shard:h100:16(S:0-1),mps:h100:400", None, 4),
        ("gpu:(null):8(S:0-1)", "h100", 8),
        ("gpu:h100:0,gpu:a100:4", None, 4),
        ("gpu:8", "h100", 8),
    ],
)
def test_kinds_may_begin_with_digits_and_other_resources_are_no_gpus(
    gres: str, chip: str | None, chips: int, tmp_path: Path
) -> None:
    assert sizes(found_in(tmp_path, "n.txt", node(gres), chip=chip)) == [chips]


def test_a_kind_of_digits_is_a_chip_of_the_catalogue(tmp_path: Path) -> None:
    text = node("gpu:4090:8", rest="   AllocTRES=gres/gpu=2,gres/gpu:4090=2\n")
    found = found_in(tmp_path, "n.txt", text)
    assert found.cluster.chip_names == ("rtx4090",)
    assert len(found.taken) == 2
    assert "no chip of the catalogue is 4090d" in refusal(tmp_path, "d.txt", node("gpu:4090d:8"))


def test_a_host_whose_jobs_gpus_no_field_counts_is_taken_whole(tmp_path: Path) -> None:
    """Slurm counts GPUs in AllocTRES where AccountingStorageTRES has them, and GresUsed needs -d."""
    untold = "   CfgTRES=cpu=32,mem=249036M,billing=32\n   AllocTRES=cpu=2,mem=1G\n"
    told = "   CfgTRES=cpu=32,gres/gpu=8\n   AllocTRES=cpu=2\n"
    idle = node("gpu:h100:8", name="g3", rest=untold).replace("MIXED", "IDLE+CLOUD")
    text = node("gpu:h100:8", rest=untold) + node("gpu:h100:8", name="g2", rest=told) + idle
    found = found_in(tmp_path, "n.txt", text)
    assert found.hosts == {"r0": ["g1"], "r1": ["g2"], "r2": ["g3"]}
    assert sorted(found.taken) == [f"r0g{chip}" for chip in range(8)]
    assert "MIXED; how many GPUs jobs hold is not told" in found.taken["r0g0"]


def test_a_host_of_no_gpus_is_left_out_with_a_note(tmp_path: Path) -> None:
    two = node("gpu:h100:0") + node("gpu:h100:8", name="g2")
    found = found_in(tmp_path, "n.txt", two)
    assert found.hosts == {"r0": ["g2"]}
    assert any("1 nodes without GPUs" in note for note in found.notes)
    assert "no host that has accelerators" in refusal(tmp_path, "n.txt", node("gpu:h100:0"))


def test_what_is_no_count_of_gpus_is_said(tmp_path: Path) -> None:
    said = refusal(tmp_path, "n.txt", node("gpu:h100:8(S:0"))
    assert "g1: expected gpu:KIND:NUMBER, got gpu:h100:8(S:0" in said
    said = refusal(tmp_path, "n.txt", node("gpu:h100:8", "gpu:h100:2(IDX:0"))
    assert "g1: GresUsed: expected gpu:KIND:NUMBER" in said


@pytest.mark.parametrize(
    ("used", "taken"),
    [
        ("gpu:(null):3(IDX:0-2)", {"r0g0", "r0g1", "r0g2"}),
        ("gpu:0(IDX:N/A),shard:4(4/4,0/4,0/4,0/4)", {"r0g0"}),
        ("gpu:1(IDX:3),mps:50(0/100,50/100,0/100,0/100)", {"r0g1", "r0g3"}),
        ("gpu:0(IDX:N/A),shard:2", {"r0g2", "r0g3"}),
    ],
)
def test_gpus_in_use_whole_or_in_shares_are_taken(
    used: str, taken: set[str], tmp_path: Path
) -> None:
    assert set(found_in(tmp_path, "n.txt", node("gpu:4", used), chip="a100").taken) == taken


@pytest.mark.parametrize(
    "line",
    [
        "NodeName=gpu[01-04] CPUs=96 RealMemory=1000000 Gres=gpu:h100:8 State=UNKNOWN",
        "NodeName=gpu01 CPUs=96 RealMemory=1000000 Gres=gpu:h100:8",
        "NodeName=gpu01 Gres=gpu:h100:8 State=UNKNOWN",
        "NodeName=DEFAULT Gres=gpu:h100:8 State=UNKNOWN",
    ],
)
def test_the_configuration_is_no_listing_of_nodes(line: str, tmp_path: Path) -> None:
    """Its states are those at the start, UNKNOWN as a rule, and one line stands for many hosts."""
    said = refusal(tmp_path, "slurm.conf", f"ClusterName=test\n{line}\n")
    assert "a line of slurm.conf, which tells no states; expected scontrol show node" in said


@pytest.mark.parametrize(
    "text",
    [
        "SwitchName=s0 Nodes=tux[0-3],\\\ntux[4-5]\nSwitchName=s1 Nodes=tux[6-7]",
        "SwitchName = s0 Nodes = tux[0-5]\nSwitchName = s1  Nodes= tux[6-7]",
        'SwitchName=s0 Nodes="tux[0-5]" # rack 1 \\\nSwitchName=s1 Nodes=tux[6-7]',
    ],
    ids=["continued", "spaces", "quotes"],
)
def test_lines_of_a_topology_are_written_as_slurm_reads_them(text: str, tmp_path: Path) -> None:
    found = found_in(tmp_path, "topology.conf", text, chip="h100")
    assert [host for hosts in found.hosts.values() for host in hosts] == [
        f"tux{n}" for n in range(8)
    ]
    assert found.data["scale_out"]["domains_per_unit"] == 6


def test_a_topology_that_ends_in_a_backslash_is_cut_off(tmp_path: Path) -> None:
    said = refusal(tmp_path, "topology.conf", "SwitchName=s0 Nodes=a,\\\n", chip="h100")
    assert "ends in a backslash" in said


@pytest.mark.parametrize(
    "text",
    [
        "clustername=hpc\nnodename=gpu[01-04] gres=gpu:h100:8 state=unknown\npartitionname=all nodes=ALL\n",
        "NodeName=gpu[01-04] gres=gpu:h100:8 state=unknown\n",
        "NODENAME=gpu[01-04] GRES=gpu:8 STATE=UNKNOWN\n",
        "NodeName=gpu[01-04] gres=gpu:8 state=IDLE\n",
        "GresTypes=gpu\nNodeName=gpu[01-04] Gres=gpu:h100:8\n",
    ],
)
def test_slurm_conf_is_told_by_its_name_in_any_case(text: str, tmp_path: Path) -> None:
    said = refusal(tmp_path, "slurm.conf", text)
    assert said.endswith(
        "slurm.conf: gpu[01-04]: a line of slurm.conf, which tells no states; expected scontrol show node"
    )


def test_the_configuration_beside_the_nodes_is_no_slurm_conf(tmp_path: Path) -> None:
    """``scontrol show node`` and ``show partition`` in one file."""
    both = "NodeName=g1 Arch=x86_64 CPUTot=8\n   Gres=gpu:h100:8\n   State=IDLE\n\nPartitionName=all\n   AllowGroups=ALL\n"
    assert sizes(found_in(tmp_path, "n.txt", both)) == [8]
