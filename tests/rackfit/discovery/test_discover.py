"""Clusters made of listings have the chips, domains and failures that were counted by hand."""

from __future__ import annotations

import json
from pathlib import Path

import listings
import pytest
import yaml
from typer.testing import CliRunner, Result

from rackfit.cli.app import build_app
from rackfit.discovery.discover import Discovered, discover
from rackfit.discovery.shelf import readers
from tests.rackfit.discovery.samples import TOPO
from topology import load_cluster
from topology.errors import InstanceError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("listings")
    listings.write(made)
    return made


def run(*words: object) -> Result:
    return CliRunner().invoke(build_app(), ["discover", *map(str, words)])


#: files, options, chips by domain, failed, taken
COUNTED = [
    (("nodes.json",), {}, [8] * 4, {"r1g7", "r2"}, {f"r3g{n}" for n in range(8)}),
    (("racks.json",), {}, [12, 8], {f"r1g{n}" for n in range(4, 8)}, set()),
    (("tpus.json",), {}, [16, 4, 4], {f"r0g{n}" for n in range(8, 12)}, set()),
    (("slices.json",), {}, [8], {"r0g6"}, {"r0g2"}),
    (("blocks.conf",), {"chip": "gb200"}, [12, 12], set(), set()),
    (("topology.yaml",), {"chip": "gb200"}, [12, 8], set(), set()),
    (("topology.conf",), {"chip": "h100"}, [8] * 5, set(), set()),
    (("scontrol.txt",), {}, [8] * 4, {"r2"}, {"r1g0", "r1g1", "r1g5", "r3g6", "r3g7"}),
    (("scontrol.txt",), {"free": True}, [8] * 4, {"r2"}, set()),
    (("slurm.json",), {}, [8] * 4, {"r2"}, {"r1g0", "r1g1", "r1g5", "r3g6", "r3g7"}),
    (("smi-1.txt",), {}, [4], {"r0g2"}, {"r0g1", "r0g3"}),
    (("described.txt",), {}, [8, 8], {"r0g7", "r1"}, {"r0g5", "r0g6"}),
    (("scontrol.txt",), {"hosts": ["gpu-3", "gpu-1*"]}, [8] * 3, {"r1"}, {"r2g6", "r2g7"}),
    (("amd-4.csv",), {}, [8], set(), {"r0g2", "r0g5"}),
    (("amd-5.csv",), {}, [8], {"r0g2--r0g7"}, set()),
    (("links-1.txt",), {}, [4], {"r0g2--r0sw0", "r0g2--r0sw1"}, set()),
    (("query-1.csv",), {}, [4], {"r0g2", "r0g3"}, {"r0g1"}),
    (("dump.json",), {}, [8, 8], set(), {"r0g6", "r0g7"}),
    (("gpu-1.xml",), {}, [8], {"r0g1", "r0g4", "r0g7"}, {"r0g2", "r0g5"}),
    (("gpu-1.txt",), {"chip": "h100"}, [8], {"r0g5--r0sw1"}, set()),
    (("ibnet.out",), {"chip": "h200"}, [8, 8], set(), set()),
    (("node-pools.json",), {}, [8, 8, 16], set(), set()),
    (
        ("nodes.json", "topology.conf", "ibnet.out", "gpu-1.xml"), {}, [8] * 4,
        {"r0g1", "r0g4", "r0g7", "r1g7", "r2"}, {"r0g2", "r0g5", *(f"r3g{n}" for n in range(8))},
    ),
]  # fmt: skip


@pytest.mark.parametrize("counted", COUNTED, ids=lambda counted: "+".join(counted[0]))
def test_chips_domains_and_failures_are_those_counted_by_hand(
    folder: Path, counted: tuple[tuple[str, ...], dict[str, object], list[int], set[str], set[str]]
) -> None:
    names, options, sizes, failed, taken = counted
    found = discover([folder / name for name in names], **options)  # type: ignore[arg-type]
    assert [len(domain.chips) for domain in found.cluster.domains] == sizes
    assert set(found.failed) == failed
    assert set(found.taken) == taken


@pytest.mark.parametrize("counted", COUNTED[:2], ids=lambda counted: counted[0][0])
def test_the_file_written_is_the_cluster_found(
    folder: Path, tmp_path: Path, counted: tuple[tuple[str, ...], object, list[int], object, object]
) -> None:
    out = tmp_path / "mine.yaml"
    done = run(*(folder / name for name in counted[0]), "--out", out)
    assert done.exit_code == 0, done.output
    again = load_cluster(str(out))
    assert again.digest == discover([folder / name for name in counted[0]]).cluster.digest
    assert len(again.chips) == sum(counted[2])


def test_scale_out_is_as_the_fabric_tells(folder: Path) -> None:
    found = discover([folder / "nodes.json", folder / "ibnet.out"], hosts="gpu-[12]")
    assert [len(domain.chips) for domain in found.cluster.domains] == [8, 8]
    network = found.data["scale_out"]
    # gpu-1, gpu-2, gpu-3 and an unnamed card on the first leaf: 4 ports down, 2 up
    assert network["oversubscription"] == 2.0
    assert (network["rails"], network["spines"], network["domains_per_unit"]) == (2, 2, 2)
    # two ports of NDR, 50 GB/s each way, for eight chips
    assert found.data["domains"][0]["chips"][0]["nic_bytes_per_s"] == 2 * 50e9 / 8
    assert found.data["provenance"]["scale_out"] == "measured"


def test_hosts_under_one_leaf_are_one_unit(folder: Path) -> None:
    found = discover([folder / "nodes.json", folder / "topology.conf"])
    assert found.data["scale_out"]["domains_per_unit"] == 2
    assert list(found.hosts.values()) == [["gpu-1"], ["gpu-2"], ["gpu-3"], ["gpu-10"]]


def test_what_no_file_tells_is_said(folder: Path) -> None:
    found = discover([folder / "nodes.json"])
    assert any("which 1 of its 8 chips" in word for word in found.assumed)
    assert any(word.startswith("NICs:") for word in found.assumed)
    assert found.data["provenance"] == {"domains": "assumed", "scale_out": "assumed"}
    assert all(f"assumed: {word}" in found.data["notes"] for word in found.assumed)
    exact = discover([folder / "slices.json"])
    assert exact.data["provenance"]["domains"] == "measured"


def test_hosts_without_a_domain_are_said(folder: Path, tmp_path: Path) -> None:
    bare = json.loads(listings.racks())
    for item in bare["items"]:
        del item["metadata"]["labels"]["nvidia.com/gpu.clique"]
    (tmp_path / "bare.json").write_text(json.dumps(bare))
    found = discover([tmp_path / "bare.json"])
    assert [len(domain.chips) for domain in found.cluster.domains] == [4] * 5
    assert any("5 hosts tell no scale-up domain" in word for word in found.assumed)
    joined = discover([tmp_path / "bare.json", folder / "topology.yaml"])
    assert [len(domain.chips) for domain in joined.cluster.domains] == [12, 8]


def test_json_tells_hosts_and_reasons(folder: Path) -> None:
    done = run(folder / "scontrol.txt", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["chips"], told["usable"]) == (32, 32 - 8 - 5)
    assert told["failed"] == {"r2": "gpu-3: DRAIN (GPU 3 fell off the bus)"}
    assert told["hosts"]["r3"] == ["gpu-10"]
    assert yaml.safe_load(run(folder / "scontrol.txt").stdout) == told["cluster"]


def test_hosts_are_kept_by_several_patterns(folder: Path) -> None:
    done = run(folder / "scontrol.txt", "--hosts", "gpu-3", "--hosts", "gpu-1*", "--json")
    assert done.exit_code == 0, done.output
    assert list(json.loads(done.stdout)["hosts"].values()) == [["gpu-1"], ["gpu-3"], ["gpu-10"]]
    said = refused(folder / "scontrol.txt", hosts=["gpu-3", "cpu-*", "x"])
    assert "--hosts: no host is called cpu-*" in said
    assert "--hosts: no host is called x" in said


def test_power_limits_are_told(folder: Path) -> None:
    found = discover([folder / "gpu-1.xml"])
    assert any("GPU 0: power limit 500 W of 700 W" in note for note in found.notes)


def refused(*paths: Path, **options: object) -> str:
    with pytest.raises(InstanceError) as stop:
        discover(list(paths), **options)  # type: ignore[arg-type]
    return str(stop.value)


def test_a_product_that_the_catalogue_lacks_is_refused(tmp_path: Path) -> None:
    for product, memory in (
        ("NVIDIA-A10G", "23028"),
        ("NVIDIA-H100-PCIe", "81559"),
        ("NVIDIA-H100-NVL", "95830"),
    ):
        text = listings.hgx().replace("NVIDIA-H100-80GB-HBM3", product).replace("81559", memory)
        (tmp_path / "n.json").write_text(text)
        assert f"no chip of the catalogue is {product}" in refused(tmp_path / "n.json")


def test_another_memory_size_is_refused_unless_the_chip_is_given(tmp_path: Path) -> None:
    text = listings.hgx().replace("H100-80GB-HBM3", "V100-SXM2-32GB").replace("81559", "32768")
    (tmp_path / "n.json").write_text(text)
    assert "32.0 GiB, v100 of the catalogue has 16.0 GiB" in refused(tmp_path / "n.json")
    assert discover([tmp_path / "n.json"], chip="v100").cluster.chip_names == ("v100",)


def test_files_that_contradict_each_other_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text(listings.SCONTROL.replace("gpu:h100:8", "gpu:h200:8"))
    said = refused(folder / "nodes.json", tmp_path / "s.txt")
    assert "product is h200" in said
    assert "says NVIDIA-H100-80GB-HBM3" in said


@pytest.mark.parametrize("name", ["blocks.conf", "topology.yaml", "ibnet.out"])
def test_files_without_chips_ask_for_them(folder: Path, name: str) -> None:
    assert "no file tells the chips" in refused(folder / name)


def test_every_reader_has_a_listing_and_reads_no_other(folder: Path) -> None:
    from rackfit.discovery.document import read_document

    read: dict[str, list[str]] = {name: [] for name in readers()}
    for path in sorted(folder.iterdir()):
        document = read_document(path)
        for name, reader in readers().items():
            if reader.recognises(document):
                read[name].append(path.name)
    assert all(read.values()), read
    assert sorted(path for paths in read.values() for path in paths) == sorted(
        path.name for path in folder.iterdir()
    )


@pytest.mark.parametrize("reader", sorted(readers()))
def test_a_file_that_was_cut_off_gets_one_error_or_less(
    folder: Path, tmp_path: Path, reader: str
) -> None:
    """Whatever is left of a listing, it is refused with its place or read as the shorter listing it is."""
    from rackfit.discovery.document import read_document

    path = next(
        p for p in sorted(folder.iterdir()) if readers()[reader].recognises(read_document(p))
    )
    text = path.read_text()
    outcomes = set()
    for part in range(1, 12):
        cut = tmp_path / path.name
        cut.write_text(text[: len(text) * part // 12])
        try:
            found: Discovered = discover([cut], chip="h100")
        except InstanceError as error:
            told = str(error)
            outcomes.add("refused" if str(cut) in told or path.stem in told else told)
        else:
            assert found.cluster.chips
            outcomes.add("read")
    assert outcomes <= ({"refused"} if path.suffix in (".json", ".xml") else {"refused", "read"})


XML = '<?xml version="1.0"?>\n{}<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu><product_name>{}</product_name></gpu></nvidia_smi_log>'


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ('<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>', "&b;"),
        ('<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>', "&a;"),
        ('<!DOCTYPE x [<!ENTITY % p SYSTEM "http://127.0.0.1/x">%p;]>', "NVIDIA H100 80GB HBM3"),
    ],
)  # fmt: skip
def test_entities_of_xml_are_never_expanded(tmp_path: Path, head: str, name: str) -> None:
    (tmp_path / "h.xml").write_text(XML.format(head, name))
    assert "entities of its own" in refused(tmp_path / "h.xml")
    (tmp_path / "h.xml").write_text(XML.format("", "&b;"))
    assert "h.xml:2" in refused(tmp_path / "h.xml")


def test_lists_of_hosts_are_bounded(tmp_path: Path) -> None:
    for text in ("BlockName=b Nodes=n[1-99999999]", "BlockName=b Nodes=n[1-999][1-999]", "BlockName=b Nodes=n[3-1]",
                 "BlockName=b Nodes=n[1", "BlockName=b Nodes=n[x]"):  # fmt: skip
        (tmp_path / "t.conf").write_text(text)
        assert "t.conf:1" in refused(tmp_path / "t.conf", chip="h100")


def test_the_cluster_found_is_solved(folder: Path, tmp_path: Path) -> None:
    for name in ("nodes.json", "racks.json", "tpus.json"):
        out = tmp_path / "mine.yaml"
        assert run(folder / name, "--out", out).exit_code == 0
        words = ["solve", "--model", "llama-3.1-8b", "--cluster", str(out), "--input-tokens", "1000",
                 "--output-tokens", "100", "--gap", "0.1", "--json"]  # fmt: skip
        done = CliRunner().invoke(build_app(), words)
        assert done.exit_code == 0, done.output
        used = {chip for replica in json.loads(done.stdout)["layout"]["replicas"]
                for stage in replica["stages"] for chip in stage["chips"]}  # fmt: skip
        assert used <= {chip.id for chip in load_cluster(str(out)).usable}


TABLE = (
    "|   {}  NVIDIA H100 80GB HBM3          On  |   00000000:9D:00.0 Off |                    0 |"
)


@pytest.mark.parametrize(
    ("line", "chip"),
    [
        ("GPU {}: NVIDIA H200 (UUID: GPU-c7a0294c-c2c2-5476-438c-fb468eaa223b)", "h200"),
        ("    GPU {}: NVIDIA H100 80GB HBM3", "h100"),
        (TABLE, "h100"),
    ],
    ids=["list", "report", "table"],
)
def test_a_console_with_the_matrix_tells_the_product(line: str, chip: str, tmp_path: Path) -> None:
    """As people keep them: a prompt, what ``nvidia-smi`` printed before, the matrix moved in."""
    matrix = "\n".join(f"    {row}" for row in TOPO["nv8.txt"].splitlines())
    named = [line.format(number) for number in range(8)]
    path = tmp_path / "node-1.txt"
    path.write_text("\n".join(["$ nvidia-smi", *named, "$ nvidia-smi topo -m", matrix]))
    assert discover([path]).cluster.chip_names == (chip,)
    path.write_text(path.read_text() + "\nGPU 8: NVIDIA A100-SXM4-80GB\n")
    assert "several kinds of GPU in one host" in refused(path)
