"""What a thing is called reaches scripts, pages, graphs and terminals as text and as nothing else."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from named import (
    PRINTABLE,
    UNPRINTABLE,
    named_instance,
    run_scripts,
    two_pools,
    write_question,
)

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.models import load_model
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.exporters.export import export_layout, write_files
from rackfit.exporters.launch.deployment import ExportOptions
from rackfit.exporters.launch.hosts import Hosts, read_host_names
from rackfit.exporters.registry import exporters
from rackfit.figures.live import bundle_script, draw_script
from rackfit.quoting import dot_string, markup, plain, shell_comment, yaml_scalar
from rackfit.report.render import print_evaluation
from rackfit.report.report import report_page
from topology.errors import InstanceError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", UNPRINTABLE, ids=ascii)
@pytest.mark.parametrize("what", ["cluster", "rack", "basis"])
def test_a_name_that_no_line_holds_is_refused(what: str, name: str, tmp_path: Path) -> None:
    if what == "basis" and name in ("", "a" * 201):
        return  # a basis is a line, which may be empty or longer
    names = {"model": "m", "cluster": "c", "rack": "r", "basis": "b"}
    scenario = write_question(tmp_path, **names)
    path = tmp_path / ("chip.yaml" if what == "basis" else "cluster.yaml")
    data = yaml.safe_load(path.read_text())
    if what == "rack":
        data["domains"][0]["rack"] = name
    else:
        data["name" if what == "cluster" else "price_basis"] = name
    path.write_text(json.dumps(data))  # YAML cannot hold all of them, JSON's escapes can
    with pytest.raises(InstanceError) as refused:
        resolve_instance(scenario)
    assert str(refused.value).replace("\n", "").isprintable()


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2Ja", "a\u202eb"], ids=ascii)
def test_a_models_folder_is_a_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_question(tmp_path, "m", "c", "r", "b")
    (tmp_path / "models" / "m").rename(tmp_path / name)
    monkeypatch.chdir(tmp_path / name)
    with pytest.raises(InstanceError, match="must be printable text on one line"):
        load_model("config.json")


def test_names_in_scenarios_and_layouts_are_checked(tmp_path: Path) -> None:
    instance = named_instance(tmp_path, "m", "c", "r", "b")
    for key in ("name", "model", "cluster", "profile", "workload"):
        with pytest.raises(ValueError, match="one line"):
            Scenario.model_validate({**instance.scenario.model_dump(), key: "a\x1b[2Jb"})
    layout = two_pools(instance).model_dump(mode="json")
    layout["replicas"][0]["stages"][0]["chips"][0] = "r0g0\n--nodelist"
    with pytest.raises(ValueError, match="match pattern"):
        Layout.model_validate(layout)
    for option in ("model_path", "image", "namespace", "topology_profile"):
        with pytest.raises(InstanceError, match="one line"):
            ExportOptions(**{"model_path": "/m", option: "a\nkind: Evil"})


class _Page(HTMLParser):
    """Tags and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script" and self.cdata_elem == "script":
            self.scripts[-1] += data
        else:
            self.text.append(data)


def export_all(instance: Instance, layout: Layout, out: Path) -> dict[str, dict[str, str]]:
    """Every target's files, written under ``out`` and run with stubs."""
    found = {}
    for target in exporters():
        options = ExportOptions(model_path=f"/models/{instance.model.name}")
        exported = export_layout(instance, layout, target, options, allow_approximate=True)
        write_files(exported.files, out / target)
        run_scripts(out / target)
        found[target] = exported.files
    return found


def check_exports(found: dict[str, dict[str, str]], model: str, rack: str, host: str) -> None:
    """Every format is read back by its own parser, and the names with it."""
    for target in ("sglang", "vllm", "trtllm", "vllm-ascend"):
        text = found[target]["commands.sh"]
        assert subprocess.run(["bash", "-n"], input=text, text=True, check=True).returncode == 0
        assert all(line.isprintable() for line in text.splitlines())
        assert model in text.splitlines()[0]
    nodes = ET.fromstring(found["graphml"]["cluster.graphml"])
    texts = {node.text for node in nodes.iter() if node.text}
    assert any(text.startswith(rack) for text in texts)
    assert dot_string(f"{rack}0")[1:-1] in found["dot"]["cluster.dot"]
    services = list(yaml.safe_load_all(found["dynamo"]["deployment.yaml"]))[-1]["spec"]["services"]
    words = next(s for s in services.values() if s["componentType"] == "worker")
    assert f"/models/{model}" in words["extraPodSpec"]["mainContainer"]["args"]
    assert json.loads(found["json"]["layout.json"])["hosts"]["r0g0"]["rack"].startswith(rack)
    table = list(csv.DictReader(io.StringIO(found["slurm"]["tasks.csv"])))
    assert {row["rack"] for row in table} == {f"{rack}0", f"{rack}1"}
    hosts = [row["host"] for row in table]
    assert all(re.fullmatch(r"[A-Za-z0-9.-]+", name) for name in hosts)
    assert host in hosts
    for line in found["slurm"]["job.sbatch"].splitlines():
        if line.startswith("#SBATCH"):
            assert re.fullmatch(r"#SBATCH --[a-z-]+(=[A-Za-z0-9.,-]+)?", line)


def check_scripts(scripts: list[str]) -> None:
    """A page's scripts are Vega, the one that draws, and charts as JSON; a name is in none but as data."""
    for script in scripts:
        if script not in (bundle_script(), draw_script()):
            assert set(json.loads(script)) >= {"$schema", "datasets", "usermeta"}


def check_page(page: str, names: tuple[str, ...]) -> None:
    """No tag and no attribute comes of a name, and each can be read."""
    parser = _Page()
    parser.feed(page)
    assert not {tag for tag, _ in parser.tags} & {"img", "iframe", "object"}
    check_scripts(parser.scripts)
    assert not [a for _, attrs in parser.tags for a in attrs if a.startswith("on")]
    text = " ".join(parser.text)
    assert all(name in text for name in names)


@pytest.mark.parametrize("name", PRINTABLE[:13:3] + PRINTABLE[21:28:3], ids=ascii)
def test_printable_names_go_through_everything(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = name.replace("/", "_").strip(".") or "m"
    instance = named_instance(tmp_path, model, name, name[:150], name)
    layout = two_pools(instance)
    found = export_all(instance, layout, tmp_path / "exports")
    host = Hosts(instance.cluster).names[0]
    check_exports(found, model, name[:150], host)
    evaluation = evaluate(instance, layout)
    check_page(report_page(instance, layout, evaluation, {}), (name, model))
    print_evaluation(instance, layout, evaluation)
    printed = capsys.readouterr().out
    assert name in printed.replace("\n", " ")
    assert "\x1b" not in printed


def test_the_task_script_reads_a_rack_with_commas_and_quotes(tmp_path: Path) -> None:
    rack = 'a,"b" $(touch pwned)'
    instance = named_instance(tmp_path, "m", "c", rack, "b")
    out = tmp_path / "slurm"
    files = export_layout(instance, two_pools(instance), "slurm").files
    write_files(files, out)
    table = list(csv.DictReader(io.StringIO(files["tasks.csv"])))
    task = next(row for row in table if row["server"] == "decode-0")
    first = str(int(task["task"]) - 1)
    said = subprocess.run(
        ["bash", "task.sh", "env"],
        cwd=out,
        env={"PATH": "/usr/bin:/bin", "SLURM_PROCID": "1", "RACKFIT_FIRST": first},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert f"RACKFIT_RACK={rack}1" in said
    assert "RACKFIT_SERVER=decode-0" in said
    assert f"CUDA_VISIBLE_DEVICES={task['gpus'].replace(' ', ',')}" in said
    assert task["gpus"]


@pytest.mark.parametrize("target", ["sglang", "vllm", "trtllm", "vllm-ascend"])
def test_a_comment_stays_one_line(target: str, tmp_path: Path) -> None:
    assert shell_comment("a\nrm -rf /\r\u2028b") == "a\\nrm -rf /\\r\\u2028b"
    plain_names = named_instance(tmp_path, "m", "c", "r", "b")
    # no file gives this name; a caller of the Python interface may
    instance = replace(plain_names, model=replace(plain_names.model, name="m\ntouch pwned\n"))
    exported = export_layout(
        instance, two_pools(instance), target, ExportOptions("/m"), allow_approximate=True
    )
    lines = exported.files["commands.sh"].splitlines()
    assert lines[0].startswith("# m\\ntouch pwned\\n on c")
    write_files(exported.files, tmp_path / "out")
    run_scripts(tmp_path / "out")


def test_each_language_has_its_quoting() -> None:
    assert (
        markup("<a href='x'>\x00\x1b&\ud800")
        == "&lt;a href=&#x27;x&#x27;&gt;\ufffd\ufffd&amp;\ufffd"
    )
    assert plain("[/]\x1b[2J").plain == "[/]\\x1b[2J"
    assert plain("[bold]").markup == "\\[bold]"
    assert yaml.safe_load(yaml_scalar("a: [b]\n# !!python/name:x")) == "a: [b]\n# !!python/name:x"


def test_quoting_is_done_in_one_place() -> None:
    banned = re.compile(r"shlex\.quote|html import escape|html\.escape|yaml\.(safe_)?dump|xml\.sax")
    found = [
        str(path.relative_to(ROOT))
        for package in ("topology", "costmodel", "solver", "rackfit")
        for path in (ROOT / package).rglob("*.py")
        if banned.search(path.read_text())
    ]
    assert found == ["rackfit/quoting.py"]


def test_hosts_that_a_file_system_would_confuse_keep_their_scripts(tmp_path: Path) -> None:
    instance = named_instance(tmp_path, "m", "c", "r", "b")
    (tmp_path / "hosts.txt").write_text("a:b\na_b\n")
    hosts = Hosts(instance.cluster, names=read_host_names(tmp_path / "hosts.txt"))
    exported = export_layout(instance, two_pools(instance), "sglang", hosts=hosts)
    scripts = {name for name in exported.files if name.startswith("hosts/")}
    assert scripts == {"hosts/a%3Ab.sh", "hosts/a_b.sh"}
    (tmp_path / "hosts.txt").write_text("node1\nNODE1\n")
    with pytest.raises(InstanceError, match="2 names, 1 of them different"):
        Hosts(instance.cluster, names=read_host_names(tmp_path / "hosts.txt"))


def test_made_up_hosts_of_racks_that_look_alike_differ(tmp_path: Path) -> None:
    write_question(tmp_path, "m", "c", "x", "b")
    data = yaml.safe_load((tmp_path / "cluster.yaml").read_text())
    racks = ["a b", "a-b", "n", "n1"]
    data["domains"] = [{**data["domains"][0], "rack": rack} for rack in racks]
    data["domains"] += [{**data["domains"][0], "rack": "n", "count": 20}]
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(data))
    from topology import load_cluster

    hosts = Hosts(load_cluster(tmp_path / "cluster.yaml"))
    assert len(set(hosts.names)) == len(hosts.names) == 24
    assert len({(place.host, place.gpu) for place in hosts.places.values()}) == 24 * 8


def test_no_nic_and_no_path_of_a_draft_may_be_asked_for() -> None:
    assert ExportOptions("/m", rdma_resource="", draft_path="").rdma_resource == ""
    with pytest.raises(InstanceError, match="--model-path: a name has 1 to"):
        ExportOptions("")
