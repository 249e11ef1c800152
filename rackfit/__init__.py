"""Rackfit: which layout serves this model on this cluster for the least money per token?

The public API, loaded on first use so that ``import rackfit`` is cheap::

    import rackfit
    result = rackfit.solve("deepseek-v3-gb200-nvl72")
    print(result.evaluation.usd_per_m_output_tokens, result.certificate.gap)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from costmodel.evaluate import Evaluation
    from costmodel.instance import Instance, Scenario, load_scenario, resolve_instance
    from costmodel.layout import Layout
    from costmodel.models import load_model
    from rackfit.api import evaluate, solve
    from rackfit.placement import place
    from rackfit.result import Result
    from rackfit.studies.run import study
    from solver.certificate import Certificate
    from topology import load_cluster
    from topology.errors import (
        ExportError,
        InstanceError,
        NoFeasibleLayout,
        NoLayoutInTime,
        RackfitError,
        VerificationError,
    )

_HOME = {
    "Certificate": "solver.certificate",
    "Evaluation": "costmodel.evaluate",
    "ExportError": "topology.errors",
    "Instance": "costmodel.instance",
    "InstanceError": "topology.errors",
    "Layout": "costmodel.layout",
    "NoFeasibleLayout": "topology.errors",
    "NoLayoutInTime": "topology.errors",
    "RackfitError": "topology.errors",
    "Result": "rackfit.result",
    "Scenario": "costmodel.instance",
    "VerificationError": "topology.errors",
    "evaluate": "rackfit.api",
    "load_cluster": "topology",
    "load_model": "costmodel.models",
    "load_scenario": "costmodel.instance",
    "place": "rackfit.placement",
    "resolve_instance": "costmodel.instance",
    "solve": "rackfit.api",
    "study": "rackfit.studies.run",
}

__all__ = [
    "Certificate",
    "Evaluation",
    "ExportError",
    "Instance",
    "InstanceError",
    "Layout",
    "NoFeasibleLayout",
    "NoLayoutInTime",
    "RackfitError",
    "Result",
    "Scenario",
    "VerificationError",
    "evaluate",
    "load_cluster",
    "load_model",
    "load_scenario",
    "place",
    "resolve_instance",
    "solve",
    "study",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
