"""Export, import, evaluate: the same figures where the target says everything, the stated loss else."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from costmodel.evaluate import evaluate
from rackfit.documents.result import Result
from rackfit.exporters.export import Exported, export_layout, write_files
from rackfit.exporters.launch.engine_limits import under_engine
from rackfit.importers.deployment import import_deployment

Export = Callable[[str], Exported]
FIGURES = ("usd_per_m_output_tokens", "output_tokens_per_s", "ttft_s", "tpot_s", "chips_used")


@pytest.mark.parametrize("engine", ["sglang", "trtllm", "vllm"])
def test_round_trip(result: Result, export: Export, engine: str, tmp_path: Path) -> None:
    exported = export(engine)
    write_files(exported.files, tmp_path / "out")
    instance = under_engine(result.instance, engine)
    imported = import_deployment(instance, engine, tmp_path / "out" / "commands.sh")
    again = evaluate(instance, imported.layout)
    for name in FIGURES:
        assert getattr(again, name) == pytest.approx(getattr(exported.deployed, name), rel=1e-3)
    now, then = again.usd_per_m_output_tokens, result.evaluation.usd_per_m_output_tokens
    assert now is not None
    assert then is not None
    assert now / then - 1 == pytest.approx(exported.loss, abs=1e-3)
    if not exported.limits and not any("by collectives" in note for note in exported.notes):
        assert exported.loss == 0.0


def test_a_placement_without_a_batch_is_read(deepseek: Result, tmp_path: Path) -> None:
    """The largest batch that fits is taken, once for each map."""
    instance = under_engine(deepseek.instance, "sglang")
    files = export_layout(instance, deepseek.layout, "sglang", allow_approximate=True).files
    assert "--init-expert-location" in files["commands.sh"]
    text = re.sub(r"--max-running-requests \d+ ?", "", files["commands.sh"])
    write_files(dict(files) | {"commands.sh": text}, tmp_path / "out")
    imported = import_deployment(instance, "sglang", tmp_path / "out" / "commands.sh")
    assert any("batch not given" in note for note in imported.notes)
    assert imported.layout.expert_maps
