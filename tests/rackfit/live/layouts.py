"""Small layouts of two engines, their files and the commands of their servers."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from costmodel.question.engine_files import EngineName
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Workload
from rackfit.api import solve
from rackfit.documents.result import Result
from rackfit.exporters.export import export_layout

Run = Callable[..., tuple[int, str, str]]


@cache
def solved(model: str, cluster: str, engine: EngineName) -> Result:
    """A small answer of one engine."""
    workload = Workload(input_tokens=400, output_tokens=50)
    return solve(
        Scenario(model=model, cluster=cluster, workload=workload, engine=engine), workers=1
    )


def document(result: Result, folder: Path) -> Path:
    path = folder / "layout.json"
    result.write(path)
    return path


def commands(result: Result, engine: str) -> dict[str, str]:
    """Each server's first command as it is exported."""
    files = export_layout(result.instance, result.layout, engine, allow_approximate=True).files
    found = re.findall(r"^# rackfit: server=(\S+) role=\S+ rank=0/.*\n(.*)$", files["commands.sh"], re.M)  # fmt: skip
    return dict(found)


def vllm() -> tuple[Result, str, str]:
    """A layout of vLLM, its first server and that one's command."""
    result = solved("mixtral-8x22b", "hgx-h200", "vllm@0.33")
    name, line = next(iter(commands(result, "vllm").items()))
    return result, name, line


def sglang() -> tuple[Result, str, str]:
    result = solved("gpt-oss-120b", "hgx-h100", "sglang@0.5.23")
    name, line = next(iter(commands(result, "sglang").items()))
    return result, name, line
