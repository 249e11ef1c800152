"""No command writes over a file that it reads, nor two of its outputs into one file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from run_cli import asked

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.documents.result import SCHEMA_VERSION, layout_dict
from rackfit.figures.files import write_figures
from rackfit.importers.deployment import build_layout
from rackfit.importers.servers import FoundServer
from topology.catalogue import data_dir
from topology.errors import InstanceError

QUESTION = {"model": "qwen3-30b-a3b", "cluster": "hgx-h100", "workload": "chat"}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Contents of good inputs by name."""
    instance = resolve_instance(Scenario.model_validate(QUESTION))
    layout = build_layout(instance, [FoundServer("x", "mixed", 1, 8, 1, batch=64)]).layout
    document = {
        "schema_version": SCHEMA_VERSION, "instance": instance.describe(), "layout": layout_dict(layout),
    }  # fmt: skip
    np.save(tmp_path_factory.getbasetemp() / "loads.npy", np.ones((2, 64)))
    return {
        "layout.json": json.dumps(document).encode(),
        "question.yaml": json.dumps(QUESTION).encode(),
        "cluster.yaml": (data_dir("clusters") / "hgx-h100.yaml").read_bytes(),
        "config.json": (data_dir("models") / "qwen3-30b-a3b.json").read_bytes(),
        "trace.csv": b"t_s,input_tokens,output_tokens\n0,100,10\n1,100,10\n",
        "vllm.sh": b"vllm serve m --tensor-parallel-size 8\n",
        "hosts.txt": b"a\n",
        "loads.npy": (tmp_path_factory.getbasetemp() / "loads.npy").read_bytes(),
    }


@pytest.mark.parametrize(
    "line",
    [
        "solve question.yaml --out question.yaml",
        "solve question.yaml --report ./question.yaml",
        "solve --model ./config.json --cluster hgx-h100 --out config.json",
        "solve --model qwen3-30b-a3b --cluster cluster.yaml@2 --out cluster.yaml",
        "solve question.yaml --out new --report new",
        "evaluate vllm.sh --from vllm --model qwen3-30b-a3b --cluster cluster.yaml --out cluster.yaml",
        "evaluate vllm.sh --from vllm --model qwen3-30b-a3b --cluster hgx-h100 --out vllm.sh",
        "export layout.json --to json --out layout.json",
        "export layout.json --to dot --hosts hosts.txt --out hosts.txt",
        "report layout.json --out layout.json",
        "replay layout.json --traffic trace.csv --out trace.csv",
        "replay layout.json --traffic trace.csv --report layout.json",
        "replay layout.json --rate 1 --duration 3 --out new --report ./new",
        "catalogue clusters --picture cluster.yaml --out cluster.yaml",
        "place loads.npy --gpus 4 --slots 64 --out loads.npy",
        "place loads.npy --gpus 4 --slots 64 --out new.svg --curve ./new.svg",
        "new question.yaml",
    ],
)
def test_an_input_is_not_written_over(
    line: str, inputs: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in inputs.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    code, said = asked(*line.split())
    assert code == 2, said
    assert "is read, too" in said or "is written twice" in said or "exists already" in said
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == inputs


def test_a_figure_does_not_take_the_place_of_the_page(
    inputs: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "layout.json").write_bytes(inputs["layout.json"])
    monkeypatch.chdir(tmp_path)
    assert asked("report", "layout.json", "--svg", "figures")[0] == 0
    one, *_ = sorted((tmp_path / "figures").iterdir())
    for path in (tmp_path / "figures").iterdir():
        path.unlink()
    (tmp_path / "page.html").symlink_to(Path("figures") / one.name)
    code, said = asked("report", "layout.json", "--svg", "figures", "--out", "page.html")
    assert code == 2
    assert "is written twice" in said
    assert list((tmp_path / "figures").iterdir()) == []
    (tmp_path / "a.svg").write_text("kept")
    with pytest.raises(InstanceError, match="is read, too"):
        write_figures({"a": "<svg/>"}, tmp_path, None, besides=(tmp_path / "a.svg",))
    assert (tmp_path / "a.svg").read_text() == "kept"
