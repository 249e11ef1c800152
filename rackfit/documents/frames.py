"""Results as pandas data frames, for people who go on in a notebook. Needs pandas installed."""

from __future__ import annotations

import importlib
from typing import Any

from rackfit.documents.result import Result, memory_by_chip
from topology.errors import RackfitError


def replicas_frame(result: Result) -> Any:
    """One row per replica: role, shape, chips, racks, and what it offers (requests/s, TPOT, TTFT).

    Returns a ``pandas.DataFrame``. Raises ``RackfitError`` where pandas is not installed.
    """
    cluster = result.instance.cluster
    rows = []
    prices = result.evaluation.priced.replicas
    for replica, price in zip(result.layout.replicas, prices, strict=True):
        racks = dict.fromkeys(cluster.chip(chip).rack for chip in replica.chips)
        rows.append(
            {
                "role": replica.role,
                **replica.shape.model_dump(),
                "chips": len(replica.chips),
                "racks": ", ".join(racks),
                "requests_per_s": float(price.service.requests_per_s),
                "tpot_s": float(price.service.tpot_s),
                "ttft_s": float(price.service.ttft_s),
            }
        )
    return pandas().DataFrame(rows).rename_axis("replica")


def chips_frame(result: Result) -> Any:
    """One row per used chip: rack, replica, stage, rank, and HBM bytes by kind."""
    memory = memory_by_chip(result.instance, result.layout, result.evaluation)
    rows = {}
    for index, replica in enumerate(result.layout.replicas):
        for stage, part in enumerate(replica.groups):
            for rank, chip in enumerate(part.chips):
                rows[chip] = {
                    "rack": result.instance.cluster.chip(chip).rack,
                    "replica": index,
                    "role": replica.role,
                    "stage": stage,
                    "rank": rank,
                    **{f"{kind}_bytes": value for kind, value in memory[chip].items()},
                }
    return pandas().DataFrame.from_dict(rows, orient="index").rename_axis("chip")


def trajectory_frame(result: Result) -> Any:
    """One row per round of the search: elapsed seconds, incumbent, bound, gap."""
    rows = [
        {"elapsed_s": p.elapsed_s, "incumbent": p.incumbent, "bound": p.bound, "gap": p.gap}
        for p in result.search.trajectory
    ]
    return pandas().DataFrame(rows, columns=["elapsed_s", "incumbent", "bound", "gap"])


def pandas() -> Any:
    """The pandas package. Raises ``RackfitError`` where it is not installed."""
    try:
        return importlib.import_module("pandas")
    except ImportError:
        raise RackfitError("frames need pandas: pip install pandas") from None
