"""Models whose activations are float16: servers keep KV in the same 16 bits, whichever of the two was asked for."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rackfit.cli.app import build_app
from topology.catalogue import data_dir


@pytest.mark.parametrize(("engine", "kv"), [("vllm", "float16"), ("sglang", "auto")])
def test_kv_of_16_bits_is_that_of_the_activations(engine: str, kv: str, tmp_path: Path) -> None:
    """``--dtype float16 --kv-cache-dtype bfloat16`` was exported: queries and keys of unlike formats are not multiplied."""
    config = json.loads((data_dir("models") / "llama-3.1-8b.json").read_text())
    (tmp_path / "half.json").write_text(json.dumps(config | {"torch_dtype": "float16"}))
    layout, out = tmp_path / "layout.json", tmp_path / "launch"
    asked = ["--model", str(tmp_path / "half.json"), "--cluster", "hgx-h100", "--engine", engine]
    app, run = build_app(), CliRunner()
    assert run.invoke(app, ["solve", *asked, "--out", str(layout)]).exit_code == 0
    done = run.invoke(app, ["export", str(layout), "--to", engine, "--out", str(out)])
    assert done.exit_code == 0, done.stderr
    assert "must hold weights as fp16; KV is fp16" in done.stderr
    words = "\n".join(path.read_text() for path in sorted(out.rglob("*.sh")))
    assert set(re.findall(r"--dtype (\S+)", words)) == {"float16"}
    assert set(re.findall(r"--kv-cache-dtype (\S+)", words)) == {kv}


def test_fp16_asked_for_reaches_the_servers_and_comes_back(tmp_path: Path) -> None:
    """What runs in float16 has the price of bfloat16 and is no remark; KV in fp8 instead is one, and had been none."""
    layout, out = tmp_path / "layout.json", tmp_path / "launch"
    asked = ["--model", "llama-3.1-8b", "--cluster", "hgx-h100", "--engine", "vllm"]
    app, run = build_app(), CliRunner()
    half = [*asked, "--weight-dtype", "fp16", "--kv-dtype", "fp16"]
    assert run.invoke(app, ["solve", *half, "--out", str(layout)]).exit_code == 0
    assert (
        run.invoke(app, ["export", str(layout), "--to", "vllm", "--out", str(out)]).exit_code == 0
    )
    words = "\n".join(path.read_text() for path in sorted(out.rglob("*.sh")))
    for option in ("--dtype", "--kv-cache-dtype"):
        assert set(re.findall(rf"{option} (\S+)", words)) == {"float16"}
    for kv, noted in (("bf16", False), ("fp16", False), ("fp8", True)):
        done = run.invoke(app, ["evaluate", "--from", "vllm", str(out), *asked, "--kv-dtype", kv])
        assert ("KV is fp16 there and fp8 here; --kv-dtype fp16" in done.stderr) == noted
        assert ("KV is" in done.stderr) == noted
