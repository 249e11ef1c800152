"""``rackfit export``, ``diff`` and ``evaluate --from`` as a person calls them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rackfit.cli.app import main
from rackfit.documents.result import Result
from topology.catalogue import data_dir

#: runs a command; exit code, stdout and stderr
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command; gives exit code, stdout and stderr."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rackfit", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        return int(stop.value.code or 0), said.out, said.err

    return run


@pytest.fixture
def document(gpt_oss: Result, tmp_path: Path) -> Path:
    """A solved layout on disk."""
    path = tmp_path / "layout.json"
    gpt_oss.write(path)
    return path


def test_export_refuses_then_approximates(call: Call, document: Path, tmp_path: Path) -> None:
    out = tmp_path / "vllm"
    code, _, err = call("export", document, "--to", "vllm", "--out", out)
    assert code == 2
    assert "decode-0: the class of gpt-oss-120b has no redundant experts in vLLM" in err
    assert not out.exists()
    code, _, err = call("export", document, "--to", "vllm", "--out", out, "--allow-approximate")
    assert code == 0
    assert (
        "approximated: decode-0: the class of gpt-oss-120b has no redundant experts in vLLM" in err
    )
    assert "per million output tokens, +" in err
    assert (out / "commands.sh").is_file()


def test_a_folder_that_is_refused_is_all_that_is_said(
    call: Call, document: Path, tmp_path: Path
) -> None:
    """Notes on files came first, as if they were written."""
    (tmp_path / "kept").write_text("")
    words = ("export", document, "--to", "vllm", "--out", tmp_path, "--allow-approximate")
    code, _, err = call(*words)
    assert code == 2
    (line,) = err.splitlines()
    assert line.endswith("exists and is not an empty folder")


def test_one_file_goes_to_stdout_and_several_need_a_folder(call: Call, document: Path) -> None:
    code, out, _ = call("export", document, "--to", "json")
    assert code == 0
    assert json.loads(out)["schema_version"]
    code, out, err = call("export", document, "--to", "sglang", "--allow-approximate")
    assert (code, out) == (2, "")
    assert "name a new folder" in err


def test_running_deployment_is_priced_and_compared(
    call: Call, document: Path, gpt_oss: Result, tmp_path: Path
) -> None:
    out, priced = tmp_path / "out", tmp_path / "priced.json"
    call("export", document, "--to", "vllm", "--out", out, "--allow-approximate")
    question = ("--model", "gpt-oss-120b", "--cluster", "hgx-h100", "--input-tokens", 4000,
                "--output-tokens", 1000)  # fmt: skip
    code, text, err = call(
        "evaluate", "--from", "vllm", out / "commands.sh", *question, "--ttft", 2, "--json",
        "--out", priced,
    )  # fmt: skip
    assert code == 0, err
    data = json.loads(text)
    dearer = data["evaluation"]["usd_per_m_output_tokens"]
    assert dearer > gpt_oss.evaluation.usd_per_m_output_tokens * 1.01
    code, text, err = call("diff", priced, document)
    assert code == 0
    assert "different questions" in err  # the first has no TPOT target
    assert "8 keep their role" in text
    assert "expert copies have to be loaded" in text
    code, text, _ = call("diff", document, document, "--json")
    assert json.loads(text)["figures"]["tpot_s"]["change"] == 0
    assert json.loads(text)["expert_copies_to_load"] == 0


def test_import_errors_name_file_and_line(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    question = ("--model", "gpt-oss-120b", "--cluster", "hgx-h100")
    for engine, text, message in (
        ("sglang", "echo nothing\n", "holds no sglang.launch_server command"),
        ("sglang", "python -m sglang.launch_server --tp-size eight\n", "expected int, got 'eight'"),
        ("sglang", "python -m sglang.launch_server --tp 5\n", "does not divide 64 query heads"),
        ("vllm", "vllm serve m --tensor-parallel-size 16\n", "needs 16 chips, 8 are left"),
        ("vllm", "vllm serve 'm\n", "run.sh:1: not a shell command"),
        ("trtllm", "trtllm-serve m --config gone.yaml\n", "gone.yaml: no such file"),
        ("vllm", "# rackfit: chip=r0g1\nvllm serve m\n", "unknown remark 'chip'; known: count,"),
        ("tensorrt", "x", "unknown engine 'tensorrt'; known: sglang, trtllm, vllm"),
    ):
        path.write_text(text)
        code, _, err = call("evaluate", "--from", engine, path, *question)
        if "query heads" in message:
            assert code == 1
        else:
            assert code == 2
            assert message in err


def test_options_that_would_be_ignored_are_refused(call: Call, document: Path) -> None:
    code, _, err = call("evaluate", document, "--tpot", "10 ms", "--compare")
    assert code == 2
    assert "--tpot: is for --from" in err
    assert "--compare: is for --from" in err


def test_a_remark_names_the_chips(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("# rackfit: chips=r0g6,r0g7\nvllm serve m --tensor-parallel-size 2\n")
    question = ("--model", "llama-3.1-8b", "--cluster", "hgx-h100", "--json")
    code, out, err = call("evaluate", "--from", "vllm", path, *question)
    assert code == 0, err
    (replica,) = json.loads(out)["layout"]["replicas"]
    assert [stage["chips"] for stage in replica["stages"]] == [["r0g6", "r0g7"]]


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ("vllm", "vllm serve m --kv-cache-dtype fp8_e4m3\n"),
        ("sglang", "python3 -m sglang.launch_server --kv-cache-dtype fp8_e5m2\n"),
        ("trtllm", "tensor_parallel_size: 1\nkv_cache_config: {dtype: fp8}\n"),
    ],
)
def test_another_kv_precision_is_noted(call: Call, tmp_path: Path, engine: str, text: str) -> None:
    path = tmp_path / ("run.yaml" if engine == "trtllm" else "run.sh")
    path.write_text(text)
    question = ("--model", "llama-3.1-8b", "--cluster", "hgx-h100", "--json")
    code, _, err = call("evaluate", "--from", engine, path, *question)
    assert code == 0
    assert "KV is fp8 there and bf16 here; --kv-dtype fp8 prices what runs" in err
    code, _, err = call("evaluate", "--from", engine, path, *question, "--kv-dtype", "fp8")
    assert code == 0
    assert "KV is" not in err


@pytest.mark.parametrize(
    ("kv", "said"),
    [
        ("auto", ""),
        ("int8_per_token_head", "KV is int8 there and bf16 here; --kv-dtype int8 prices what runs"),
        ("fp8_ds_mla", "KV is fp8 there and bf16 here; --kv-dtype fp8 prices what runs"),
        ("nvfp4_4over6", "KV is fp4 there and bf16 here; --kv-dtype fp4 prices what runs"),
        ("turboquant_3bit_nc", "KV is 'turboquant_3bit_nc' there, which has no price, and bf16 here"),
    ],
)  # fmt: skip
def test_every_format_of_kv_that_vllm_has_is_noted(
    call: Call, tmp_path: Path, kv: str, said: str
) -> None:
    """KV of 3, 4 or 8 bits was priced as 16 without a word."""
    (tmp_path / "run.sh").write_text(f"vllm serve m --kv-cache-dtype {kv}\n")
    question = ("--model", "llama-3.1-8b", "--cluster", "hgx-h100", "--json")
    code, _, err = call("evaluate", "--from", "vllm", tmp_path / "run.sh", *question)
    assert code == 0
    assert said in err if said else "KV is" not in err


def test_a_file_given_as_something_else_is_named(call: Call, tmp_path: Path) -> None:
    config = data_dir("models") / "llama-3.1-8b.json"
    files = {
        kind: data_dir(f"{kind}s") / f"{name}.yaml"
        for kind, name in (
            ("cluster", "hgx-h100"),
            ("workload", "chat"),
            ("plan", "two-models-day"),
        )
    }
    answer = tmp_path / "layout.json"
    code, _, err = call(
        "solve", "--model", "llama-3.1-8b", "--cluster", "hgx-h100", "--out", answer
    )
    assert code == 0, err
    for words, message in (
        (("solve", config), "is a model's config, not a scenario: give it as --model"),
        (
            ("explain", answer),
            "is a layout, not a scenario: evaluate, export, replay and move take it",
        ),
        (("study", "grid", answer), "is a layout, not a scenario: "),
        (("move", answer, files["plan"]), "is a plan, not a scenario: rackfit plan takes it"),
        (("solve", files["cluster"]), "is a cluster file, not a scenario: give it as --cluster"),
        (("solve", files["workload"]), "is a workload, not a scenario: give it as --workload"),
        (("export", config, "--to", "vllm"), "is not a layout: write one with rackfit solve"),
        (("evaluate", config), "is not a layout: write one with rackfit solve"),
    ):
        code, _, err = call(*words)
        assert code == 2
        assert message in err
        assert len(err.splitlines()) == 1


def test_a_folder_of_an_export_is_read(call: Call, tmp_path: Path) -> None:
    (tmp_path / "commands.sh").write_text("vllm serve m --tensor-parallel-size 2\n")
    question = ("--model", "llama-3.1-8b", "--cluster", "hgx-h100", "--json")
    assert call("evaluate", "--from", "vllm", tmp_path, *question)[0] == 0


def test_seconds_that_look_like_milliseconds_are_doubted(call: Call) -> None:
    question = ("solve", "--model", "llama-3.1-8b", "--cluster", "hgx-h100", "--json")
    code, _, err = call(*question, "--tpot", "40")
    assert code == 0
    assert "--tpot 40 is 40 seconds; write 40ms for milliseconds" in err
    code, _, err = call(*question, "--tpot", "40ms", "--ttft", "2")
    assert (code, err) == (0, "")


def test_what_is_written_of_a_running_server_reads_back_to_its_figures(
    call: Call, tmp_path: Path
) -> None:
    """The document names the engine, and constants of all engines, by which it was priced."""
    (tmp_path / "run.sh").write_text(
        "vllm serve m -tp 8 --enable-expert-parallel --max-num-seqs 64\n"
    )
    question = ("--model", "qwen3-30b-a3b-fp8", "--cluster", "hgx-h200", "--workload", "chat")
    written = tmp_path / "running.json"
    code, _, _ = call(
        "evaluate", "--from", "vllm", tmp_path / "run.sh", *question, "--out", written
    )
    assert code == 0
    then = json.loads(written.read_text())
    assert then["instance"]["scenario"]["profile"] == "calibrated:common"
    code, out, err = call("evaluate", written, "--json")
    assert code == 0
    assert "has changed" not in err
    cost = "usd_per_m_output_tokens"
    assert json.loads(out)["evaluation"][cost] == then["evaluation"][cost]


def test_a_command_says_its_model(call: Call, tmp_path: Path) -> None:
    """By name and precision; an option comes first."""
    (tmp_path / "run.sh").write_text(
        "vllm serve meta-llama/Llama-3.1-8B-Instruct-FP8 -tp 2 --max-num-seqs 8\n"
    )
    question = ("evaluate", "--from", "vllm", tmp_path / "run.sh", "--cluster", "hgx-h100")
    code, out, err = call(*question, "--json")
    assert code == 0
    assert "serves meta-llama/Llama-3.1-8B-Instruct-FP8, read as llama-3.1-8b in fp8" in err
    scenario = json.loads(out)["instance"]["scenario"]
    assert (scenario["model"], scenario["weight_dtype"]) == ("llama-3.1-8b", "fp8")
    code, out, err = call(*question, "--model", "qwen3-8b", "--json")
    assert json.loads(out)["instance"]["scenario"]["model"] == "qwen3-8b"
    assert "serves llama-3.1-8b, not qwen3-8b" in err
