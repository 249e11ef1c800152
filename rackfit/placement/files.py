"""Files that ``rackfit place`` reads beside loads: shipped loads by name, and running placements."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.expert_load import ExpertLoads
from topology.catalogue import data_dir, read_data
from topology.errors import InstanceError, Problem
from topology.names import shown


def loads_path(name: str) -> Path:
    """Path of a load file: as given, or the shipped one of that name. Raises ``InstanceError``."""
    path = Path(name)
    if os.path.exists(path):
        return path
    shipped = data_dir("loads")
    known = sorted(found.stem for found in shipped.glob("*.npz")) if shipped.is_dir() else []
    if name in known:
        return shipped / f"{name}.npz"
    raise InstanceError(
        Problem(shown(name, 200), f"no such file; shipped: {', '.join(known) or 'none'}")
    )


def told_of(loads: ExpertLoads) -> list[str]:
    """What was understood of a recording and is worth a look."""
    lines = []
    if loads.empty:
        first = ", ".join(map(str, loads.empty[:4])) + (", .." if len(loads.empty) > 4 else "")
        lines.append(
            f"{len(loads.empty)} of {loads.num_layers} layers have no experts, as their rows are all zero: {first}"
        )
    if loads.top_k is not None:
        lines.append(f"{loads.top_k} experts per token, as the recording says")
    return lines


def read_placement(path: Path, loads: ExpertLoads) -> NDArray[np.int64]:
    """``physical_to_logical [MoE layers, slots]`` of a running placement. Raises ``InstanceError``.

    Takes the output of ``rackfit place``, SGLang's file (rows of dense layers are dropped) and
    TensorRT-LLM's YAML.
    """
    data: Any = read_data(path)
    layers = loads.windows.shape[1]
    rows: Any = None
    if isinstance(data, dict) and "physical_to_logical" in data:
        rows = data["physical_to_logical"]
    elif isinstance(data, dict) and "physical_to_logical_map" in data:
        rows = data["physical_to_logical_map"]
        if isinstance(rows, list) and len(rows) == loads.num_layers != layers:
            rows = [rows[layer] for layer in loads.layer_ids]
    elif isinstance(data, dict) and isinstance(data.get("initial_global_assignments"), dict):
        given = data["initial_global_assignments"]
        missing = [layer for layer in loads.layer_ids if layer not in given]
        if missing:
            raise InstanceError(Problem(str(path), f"layer {missing[0]} is missing"))
        rows = [given[layer] for layer in loads.layer_ids]
    try:
        table = np.asarray(rows)
    except (ValueError, OverflowError):
        table = np.empty(0)
    if table.ndim != 2 or table.dtype.kind not in "iu" or len(table) != layers:
        raise InstanceError(
            Problem(str(path), f"expected a placement of {layers} layers, whole numbers by slot")
        )
    return table.astype(np.int64)
