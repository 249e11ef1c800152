"""Solved layouts of the reference deployments, each solved once per test session.

Also lets these tests import ``launch_lines``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from costmodel.question.engine_files import EngineName
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo, Workload
from rackfit.api import solve
from rackfit.documents.result import Result
from rackfit.exporters.export import Exported, export_layout

sys.path.insert(0, str(Path(__file__).parent))

#: One fixed profile, so that the layouts under test do not change with every calibration.
PROFILE = Path(__file__).parent / "pooled.json"

#: Model and cluster; those after the first five are solved by the slow tests alone.
DEPLOYMENTS = (
    ("deepseek-v3", "gb200-nvl72"),
    ("qwen3-235b-a22b", "hgx-h200@2"),
    ("gpt-oss-120b", "hgx-h100"),
    ("llama-3.1-70b", "hgx-h100"),
    ("llama-3.1-405b", "hgx-b200"),
    ("kimi-k2", "gb200-nvl72@2"),
    ("deepseek-v3", "hgx-h200@4"),
    ("deepseek-v3", "hgx-h200@8"),
    ("deepseek-v3", "vr-nvl72"),
)
QUICK = 5


@cache
def solved(model: str, cluster: str, engine: EngineName | None = None) -> Result:
    """The answer for 4,000 in, 1,000 out, TTFT 2 s, TPOT 30 ms; of what one engine runs, if named."""
    scenario = Scenario(
        model=model,
        cluster=cluster,
        workload=Workload(input_tokens=4000, output_tokens=1000),
        slo=Slo(ttft=2.0, tpot=0.03),
        profile=str(PROFILE),
        engine=engine,
    )
    return solve(scenario, workers=1)


@cache
def exported(model: str, cluster: str, target: str) -> Exported:
    """Files of one target, the nearest where the target cannot say the layout."""
    result = solved(model, cluster)
    return export_layout(result.instance, result.layout, target, allow_approximate=True)


@pytest.fixture(
    params=[
        pytest.param(pair, id="-".join(pair), marks=[] if index < QUICK else [pytest.mark.slow])
        for index, pair in enumerate(DEPLOYMENTS)
    ]
)
def deployment(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Each of the deployments."""
    pair: tuple[str, str] = request.param
    return pair


@pytest.fixture
def result(deployment: tuple[str, str]) -> Result:
    """The solved deployment."""
    return solved(*deployment)


@pytest.fixture
def export(deployment: tuple[str, str]) -> Callable[[str], Exported]:
    """Exports of the deployment by target name."""
    return lambda target: exported(*deployment, target)


@pytest.fixture
def deepseek() -> Result:
    """DeepSeek-V3 on one GB200 NVL72."""
    return solved("deepseek-v3", "gb200-nvl72")


@pytest.fixture
def gpt_oss() -> Result:
    """gpt-oss-120b on one HGX H100."""
    return solved("gpt-oss-120b", "hgx-h100")
