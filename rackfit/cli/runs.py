"""The options that say what files of measured runs leave open, the same for every command that reads such files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackfit.measurements.rows import Told
from topology.errors import InstanceError, Problem

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        help="CSV of measured runs (or .csv.gz), or results of vllm bench serve, sglang.bench_serving, AIPerf, "
        "GenAI-Perf, GuideLLM, inference-perf or InferenceX; folders of them."
    ),
]
Launch = Annotated[
    Path | None,
    typer.Option(
        help="Launch command of the engine that was measured; without one launch.sh beside the results."
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="Model of results that do not name it as the catalogue does: a name or config.json."
    ),
]
WarmUp = Annotated[
    float,
    typer.Option(
        help="Leave out requests of the first seconds (vllm bench serve --save-detailed)."
    ),
]


def told(
    launch: Path | None, chip: str | None, engine: str | None, model: str | None, warm_up: float
) -> Told:
    """What the options say. Raises ``InstanceError``."""
    if not 0 <= warm_up < 1e6:
        raise InstanceError(Problem("--warm-up", f"expected seconds, got {warm_up:g}"))
    return Told(launch, chip, None if engine is None else engine.lower(), model, warm_up)
