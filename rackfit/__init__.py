"""Rackfit: which layout serves this model on this cluster for the least money per token?

The public API. ``import rackfit`` loads all that a question needs, so that asking one loads nothing more:

>>> import rackfit
>>> scenario = rackfit.Scenario(
...     model="llama-3.1-8b", cluster="hgx-h100", workload="chat", slo={"tpot": "20 ms"}
... )
>>> result = rackfit.solve(scenario)
>>> result.status, result.evaluation.feasible, result.certificate.gap <= 0.01
('optimal', True, True)
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from costmodel.evaluate import Evaluation
    from costmodel.experts.expert_load import ExpertLoads
    from costmodel.layout.layout import Layout
    from costmodel.models import load_model
    from costmodel.models.spec import ModelSpec
    from costmodel.question.instance import Instance, resolve_instance
    from costmodel.question.scenario import Scenario, load_scenario
    from costmodel.question.workload import Limits, Prices, Slo, Workload
    from costmodel.together.question import Together, load_together
    from rackfit.api import evaluate, solve, solve_together
    from rackfit.documents.frames import chips_frame, replicas_frame, trajectory_frame
    from rackfit.documents.result import Result
    from rackfit.exporters.export import Exported, export_layout
    from rackfit.importers.running import Running, evaluate_running
    from rackfit.placement.place import place
    from rackfit.placement.placed import Placed
    from rackfit.studies.frame import study_frame
    from rackfit.studies.run import StudyResult, study
    from solver.answer import Progress
    from solver.certificate import Certificate
    from solver.experts.request import PlaceOptions
    from solver.together.divided import Divided
    from topology import load_cluster
    from topology.cluster import Cluster
    from topology.errors import (
        ExportError,
        InstanceError,
        NoFeasibleLayout,
        NoLayoutInTime,
        Problem,
        RackfitError,
        VerificationError,
    )

_HOME = {
    "Certificate": "solver.certificate",
    "Cluster": "topology.cluster",
    "Divided": "solver.together.divided",
    "Evaluation": "costmodel.evaluate",
    "ExpertLoads": "costmodel.experts.expert_load",
    "ExportError": "topology.errors",
    "Exported": "rackfit.exporters.export",
    "Instance": "costmodel.question.instance",
    "InstanceError": "topology.errors",
    "Layout": "costmodel.layout.layout",
    "Limits": "costmodel.question.workload",
    "ModelSpec": "costmodel.models.spec",
    "NoFeasibleLayout": "topology.errors",
    "NoLayoutInTime": "topology.errors",
    "PlaceOptions": "solver.experts.request",
    "Placed": "rackfit.placement.placed",
    "Prices": "costmodel.question.workload",
    "Problem": "topology.errors",
    "Progress": "solver.search",
    "RackfitError": "topology.errors",
    "Result": "rackfit.documents.result",
    "Running": "rackfit.importers.running",
    "Scenario": "costmodel.question.scenario",
    "Slo": "costmodel.question.workload",
    "StudyResult": "rackfit.studies.run",
    "Together": "costmodel.together.question",
    "VerificationError": "topology.errors",
    "Workload": "costmodel.question.workload",
    "chips_frame": "rackfit.documents.frames",
    "evaluate": "rackfit.api",
    "evaluate_running": "rackfit.importers.running",
    "export_layout": "rackfit.exporters.export",
    "load_cluster": "topology",
    "load_model": "costmodel.models",
    "load_scenario": "costmodel.question.scenario",
    "load_together": "costmodel.together.question",
    "place": "rackfit.placement.place",
    "replicas_frame": "rackfit.documents.frames",
    "resolve_instance": "costmodel.question.instance",
    "solve": "rackfit.api",
    "solve_together": "rackfit.api",
    "study": "rackfit.studies.run",
    "study_frame": "rackfit.studies.frame",
    "trajectory_frame": "rackfit.documents.frames",
}

__all__ = [
    "Certificate",
    "Cluster",
    "Divided",
    "Evaluation",
    "ExpertLoads",
    "ExportError",
    "Exported",
    "Instance",
    "InstanceError",
    "Layout",
    "Limits",
    "ModelSpec",
    "NoFeasibleLayout",
    "NoLayoutInTime",
    "PlaceOptions",
    "Placed",
    "Prices",
    "Problem",
    "Progress",
    "RackfitError",
    "Result",
    "Running",
    "Scenario",
    "Slo",
    "StudyResult",
    "Together",
    "VerificationError",
    "Workload",
    "chips_frame",
    "evaluate",
    "evaluate_running",
    "export_layout",
    "load_cluster",
    "load_model",
    "load_scenario",
    "load_together",
    "place",
    "replicas_frame",
    "resolve_instance",
    "solve",
    "solve_together",
    "study",
    "study_frame",
    "trajectory_frame",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def _is_the_command() -> bool:
    """Whether Python starts ``rackfit`` or, as ``-m`` says while it looks for the module, ``python -m``."""
    return bool(sys.argv) and Path(sys.argv[0]).stem in ("rackfit", "-m")


def _load() -> None:
    """Import the homes of all names, and what a question may draw from."""
    from rackfit.loading import load_shelves

    load_shelves()
    globals().update({name: __getattr__(name) for name in __all__})


if not _is_the_command():  # a command watches for Ctrl-C first and loads only what it needs
    _load()
