"""Layouts of a few named servers, and their exports: nothing is solved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.exporters.export import Exported, export_layout
from rackfit.importers.deployment import build_layout
from rackfit.importers.servers import FoundServer


def server(role: str, dp: int, chips: Sequence[str] | None = None, *, tp: int = 1, pp: int = 1) -> FoundServer:  # fmt: skip
    batch = 2 * dp * pp
    chosen = None if chips is None else tuple(chips)
    return FoundServer(role, role, tp=tp, attention_dp=dp, pp=pp, batch=batch, chips=chosen)  # type: ignore[arg-type]


def question(model: str, cluster: str, folder: Path | None = None) -> Instance:
    """Few tokens; ``cluster`` may be chips of hosts, such as ``3 3 2``."""
    if folder is not None:
        fabric = {"kind": "nvswitch", "links_per_switch": [5, 4, 4, 5]}
        domains = [
            {"rack": f"host{n}", "fabric": fabric, "chips": [{"chip": "h200", "count": int(count)}]}
            for n, count in enumerate(cluster.split())
        ]
        path = folder / "hosts.yaml"
        data = {"name": "hosts", "domains": domains, "scale_out": {"kind": "rail-optimised"}}
        path.write_text(yaml.safe_dump(data))
        cluster = str(path)
    workload = {"input_tokens": 100, "output_tokens": 20}
    return resolve_instance(
        Scenario.model_validate({"model": model, "cluster": cluster, "workload": workload})
    )


def exported(instance: Instance, servers: Sequence[FoundServer], target: str) -> Exported:
    return export_layout(instance, build_layout(instance, servers).layout, target)
