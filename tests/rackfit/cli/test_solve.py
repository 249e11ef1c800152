"""``solve`` and ``evaluate`` as a user meets them: answers, exit codes, one message per problem."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from rackfit.cli import app
from rackfit.cli.app import build_app, exit_code
from topology.catalogue import data_dir
from topology.errors import RackfitError

RUN = [sys.executable, "-m", "rackfit"]


def rackfit(*args: str) -> tuple[int, str, list[str]]:
    """Exit code, stdout, and error messages of one command."""
    result = CliRunner().invoke(build_app(), list(args))
    if isinstance(result.exception, RackfitError):
        return exit_code(result.exception), result.stdout, str(result.exception).splitlines()
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr.splitlines()


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """DeepSeek-V3 on one GB200 NVL72 rack, solved once."""
    out = tmp_path_factory.mktemp("solve") / "layout.json"
    code, stdout, _ = rackfit("solve", "deepseek-v3-gb200-nvl72", "--out", str(out), "--json")
    assert code == 0
    assert json.loads(stdout) == json.loads(out.read_text())
    return out, json.loads(stdout)


def test_answer_is_complete_and_proven(document: tuple[Path, dict[str, Any]]) -> None:
    _, answer = document
    assert answer["status"] == "optimal"
    assert answer["certificate"]["gap"] <= 0.01
    cost = answer["evaluation"]["usd_per_m_output_tokens"]
    assert 0 < answer["certificate"]["bound_usd_per_m_output_tokens"] <= cost
    assert answer["evaluation"]["tpot_s"] <= 0.030
    assert answer["evaluation"]["ttft_s"] <= 2.0
    assert answer["evaluation"]["violations"] == []
    assert set(answer) >= {
        "schema_version", "status", "instance", "certificate", "evaluation", "layout", "memory",
        "links", "solve",
    }  # fmt: skip


def test_every_layer_expert_and_sequence_has_a_place(
    document: tuple[Path, dict[str, Any]],
) -> None:
    _, answer = document
    layout = answer["layout"]
    used: set[str] = set()
    for replica in layout["replicas"]:
        layers: list[int] = []
        for stage in replica["stages"]:
            first, last = stage["layers"]
            layers += range(first, last + 1)
            assert not used & set(stage["chips"])
            used |= set(stage["chips"])
            maps = layout["expert_maps"][stage["expert_map"]]
            assert sorted(map(int, maps)) == [i for i in range(first, last + 1) if i >= 3]
            slots = stage["slots_per_chip"]
            counts = [slots] * len(stage["chips"]) if isinstance(slots, int) else slots
            for row in maps.values():
                assert set(row) == set(range(256))
                start = 0
                for count in counts:
                    assert len(set(row[start : start + count])) == count
                    start += count
        assert layers == list(range(61))
        assert sum(share["sequences"] for share in replica["kv"]) == replica["shape"]["batch"]
    for chip in used:
        kinds = answer["memory"][chip]
        assert sum(v for k, v in kinds.items() if k != "capacity") <= kinds["capacity"]


def test_evaluate_gives_the_same_figures(document: tuple[Path, dict[str, Any]]) -> None:
    path, answer = document
    code, stdout, messages = rackfit("evaluate", str(path), "--json")
    assert code == 0
    assert messages == []
    assert json.loads(stdout)["evaluation"] == answer["evaluation"]


def test_evaluate_finds_what_was_broken(
    document: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    _, answer = document
    broken = json.loads(json.dumps(answer))
    name = broken["layout"]["replicas"][0]["stages"][0]["expert_map"]
    row = next(iter(broken["layout"]["expert_maps"][name].values()))
    row[0] = row[1]
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(broken))
    code, stdout, _ = rackfit("evaluate", str(path), "--json")
    assert code == 1
    rules = {v["rule"] for v in json.loads(stdout)["evaluation"]["violations"]}
    assert "experts_placed" in rules


def test_people_get_a_readable_answer() -> None:
    code, stdout, _ = rackfit("solve", "--model", "llama-3.1-70b", "--cluster", "hgx-h100",
                              "--tpot", "50 ms", "--ttft", "2 s")  # fmt: skip
    assert code == 0
    for words in ("per million output tokens", "proven: at most", "What to deploy", "HBM used on the fullest chip", "Time of one pass", "limited by"):  # fmt: skip
        assert words in stdout


def test_bf16_deepseek_on_one_hgx_node_is_infeasible() -> None:
    code, stdout, messages = rackfit(
        "solve", "--model", "deepseek-v3", "--cluster", "hgx-h100", "--weight-dtype", "bf16"
    )
    assert code == 1
    assert stdout == ""
    (message,) = messages
    assert "HBM" in message
    assert "1342 GB" in message  # what is needed
    assert "687 GB" in message  # what there is
    assert "What would fit" in message
    assert "fp8" in message


def test_unreachable_target_says_what_is_reachable() -> None:
    code, _, (message,) = rackfit(
        "solve", "--model", "deepseek-v3", "--cluster", "gb200-nvl72", "--tpot", "1 ms"
    )
    assert code == 1
    assert "TPOT" in message
    assert "least reachable" in message


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--model", "nope", "--cluster", "gb200-nvl72"], ["models: unknown name 'nope'"]),
        (
            ["--model", "nope", "--cluster", "nada"],
            ["models: unknown name 'nope'", "clusters: unknown name 'nada'"],
        ),
        (
            ["--model", "deepseek-v3", "--cluster", "gb200-nvl72", "--input-tokens", "-5"],
            ["command line: workload.input_tokens:"],
        ),
        (
            ["--model", "deepseek-v3", "--cluster", "gb200-nvl72", "--tpot", "30 GB"],
            ["command line: slo.tpot: expected a quantity in s"],
        ),
        (["no-such-file.yaml"], ["no-such-file.yaml: no such file"]),
        (["no-such-scenario"], ["scenarios: unknown name 'no-such-scenario'"]),
        ([], ["--model: is missing", "--cluster: is missing"]),
        (["deepseek-v3-gb200-nvl72", "--gap", "2"], ["gap: must be at least 0 and below 1"]),
        (
            ["deepseek-v3-gb200-nvl72", "--out", "/no/such/folder/x.json"],
            ["/no/such/folder/x.json: the folder /no/such/folder does not exist"],
        ),
    ],
)
def test_bad_input_is_one_clear_message_each(args: list[str], expected: list[str]) -> None:
    code, stdout, messages = rackfit("solve", *args)
    assert code == 2
    assert stdout == ""
    assert len(messages) == len(expected)
    for message, start in zip(messages, expected, strict=True):
        assert message.startswith(start)
        assert "Traceback" not in message


def test_typing_mistakes_in_yaml_are_all_reported(tmp_path: Path) -> None:
    path = tmp_path / "typo.yaml"
    path.write_text("model: deepseek-v3\nclustre: x\nworkload: chat\nslo: {tpott: 30 ms}\n")
    code, _, messages = rackfit("solve", str(path))
    assert code == 2
    assert sorted(messages) == [
        "typo.yaml: cluster: is missing",
        "typo.yaml: clustre: unknown key (a typing mistake?)",
        "typo.yaml: slo.tpott: unknown key (a typing mistake?)",
    ]


def test_bandwidth_in_bytes_is_refused(tmp_path: Path) -> None:
    chip = yaml.safe_load((data_dir("chips") / "h100.yaml").read_text())
    chip["hbm_bytes_per_s"] = "3.35 TB"
    (tmp_path / "chip.yaml").write_text(yaml.safe_dump(chip))
    cluster = yaml.safe_load((data_dir("clusters") / "hgx-h100.yaml").read_text())
    cluster["domains"][0]["chips"][0]["chip"] = str(tmp_path / "chip.yaml")
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    code, _, messages = rackfit(
        "solve", "--model", "llama-3.1-8b", "--cluster", str(tmp_path / "cluster.yaml")
    )
    assert code == 2
    (message,) = messages
    assert message.endswith(
        "chip.yaml: hbm_bytes_per_s: expected a quantity in B/s such as '3.35 TB/s', got '3.35 TB' in B"
    )


def test_scenario_files_are_safe(tmp_path: Path) -> None:
    path = tmp_path / "evil.yaml"
    path.write_text("model: !!python/object/apply:os.system ['true']\ncluster: gb200-nvl72\n")
    code, _, (message,) = rackfit("solve", str(path))
    assert code == 2
    assert "not YAML" in message


@pytest.mark.parametrize("limit", ["0.05", "1"])
def test_a_time_limit_leaves_a_verified_layout_or_exit_3(limit: str) -> None:
    code, stdout, _ = rackfit("solve", "deepseek-v3-gb200-nvl72", "--time-limit", limit, "--json")
    assert code in (0, 3)
    if code == 0:
        assert json.loads(stdout)["evaluation"]["violations"] == []


@pytest.mark.parametrize("after_s", [0.05, 0.4, 1.0, 2.0, 5.0])
def test_ctrl_c_leaves_a_verified_layout_or_exit_3(tmp_path: Path, after_s: float) -> None:
    # wherever the moment falls: libraries being loaded, search, proof, writing
    out = tmp_path / "layout.json"
    driver = (
        "import os, signal, sys\n"
        "from rackfit.cli.app import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))\n"
        f"signal.setitimer(signal.ITIMER_REAL, {after_s})\n"
        "main()\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", driver, "solve", "--model", "deepseek-v3", "--cluster", "hgx-h200@8",
         "--tpot", "30 ms", "--ttft", "2 s", "--gap", "0", "--out", str(out)],
        capture_output=True, text=True, timeout=240,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])},
    )  # fmt: skip
    stderr = process.stderr
    assert "Traceback" not in stderr
    assert process.returncode in (0, 3)
    assert out.exists() == (process.returncode == 0)
    if process.returncode == 0:
        assert json.loads(out.read_text())["evaluation"]["violations"] == []


def _cut_short_while_loading() -> int:
    """What a compiled module makes of Ctrl-C while it loads."""
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt as stop:
        raise ImportError("initialization failed") from stop


def test_ctrl_c_while_a_compiled_module_loads_is_no_missing_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(app, "run", _cut_short_while_loading)
    for command, code in (("solve", 3), ("catalogue", 130)):
        monkeypatch.setattr(sys, "argv", ["rackfit", command])
        with pytest.raises(SystemExit) as stopped:
            app.main()
        assert stopped.value.code == code


@pytest.mark.parametrize("kind", ["models", "chips", "tiers", "clusters", "workloads", "scenarios", "profiles", "loads"])  # fmt: skip
def test_catalogue_lists_what_is_shipped(kind: str) -> None:
    code, stdout, _ = rackfit("catalogue", kind, "--json")
    assert code == 0
    assert len(json.loads(stdout)) >= 1
    assert rackfit("catalogue", kind)[0] == 0


def test_what_a_command_lacks_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each choice had a line of its own, with the tab before it spelled out."""
    monkeypatch.setattr(sys, "argv", ["rackfit", "catalogue"])
    assert app.run() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rackfit: Missing argument 'kind'. Choose from: models, chips, ")


def test_catalogue_draws_a_cluster(tmp_path: Path) -> None:
    out = tmp_path / "rack.html"
    assert rackfit("catalogue", "clusters", "--picture", "hgx-h100@2", "--out", str(out))[0] == 0
    page = out.read_text()
    assert page.lstrip().lower().startswith("<!doctype html")
    assert "http" not in page.split("<body", 1)[0]
    assert rackfit("catalogue", "chips", "--picture", "hgx-h100")[0] == 2
