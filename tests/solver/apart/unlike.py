"""Random tiny questions on two types of chips in domains of their own: one reads quickly, one multiplies quickly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from costmodel.question.instance import Instance
from tests.conftest import make_tiny
from topology import load_cluster


def unlike(folder: Path, seed: int, sizes: tuple[tuple[str, int], ...]) -> Instance:
    """``sizes``: type (``reads`` or ``multiplies``) and chips of each domain, in their order."""
    rng = np.random.default_rng(seed)
    base = make_tiny(folder, seed, 2, 2, int(rng.choice([2, 3])))
    known = yaml.safe_load((folder / f"chip{seed}.yaml").read_text())
    few, many = float(rng.uniform(0.1, 0.5)), float(rng.uniform(1.0, 8.0))
    for name, flops, reads in (("reads", few, many), ("multiplies", many, few)):
        own = known | {
            "name": f"{name}{seed}",
            "flops_per_s": {"bf16": known["flops_per_s"]["bf16"] * flops},
            "hbm_bytes_per_s": known["hbm_bytes_per_s"] * reads,
            "nic_bytes_per_s": 2e10,
            "scale_up_bytes_per_s": 2e10,
            "usd_per_hour": float(rng.choice([1.0, 1.5])),
        }
        (folder / f"{name}{seed}.yaml").write_text(yaml.safe_dump(own))
    cluster = {
        "name": f"unlike{seed}",
        "domains": [
            {
                "fabric": {"kind": "nvswitch", "links_per_switch": [1], "floor_s": 1e-7},
                "chips": [{"chip": str(folder / f"{name}{seed}.yaml"), "count": count}],
            }
            for name, count in sizes
        ],
        "scale_out": {"kind": "leaf-spine", "floor_s": 1e-7},
    }
    path = folder / f"unlike{seed}.yaml"
    path.write_text(yaml.safe_dump(cluster))
    own_profile = base.profile.default.model_copy(update={"layer_overhead_s": 0.0})
    return replace(
        base,
        scenario=base.scenario.model_copy(update={"cluster": str(path)}),
        cluster=load_cluster(path),
        profile=base.profile.model_copy(update={"default": own_profile}),
    )
