r"""Each chip holds what is placed on it.

``weights + experts + kv + activations + runtime <= hbm_bytes`` for every chip; with an engine, the share of
them that it leaves (``memory`` in its data).
"""

from __future__ import annotations

import numpy as np

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.replica.fleet import PricedLayout
from costmodel.rules import Violation
from costmodel.tolerance import exceeds


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """The fullest overfull chip of each stage."""
    # replicas that are alike share their stages' prices
    stages = {id(stage): stage for price in priced.replicas for stage in price.stages}
    fullest = max((float(stage.used_bytes.max()) for stage in stages.values()), default=0.0)
    chips = {placed.chip.name: placed.chip for placed in instance.cluster.chips}
    usable = {name: instance.usable_hbm_bytes(chip) for name, chip in chips.items()}
    if not exceeds(fullest, min(usable.values())):
        return []
    engine = instance.engine
    left = "" if engine is None else f" that {engine.label} leaves ({engine.memory.source})"
    violations = []
    for index, (replica, price) in enumerate(zip(layout.replicas, priced.replicas, strict=True)):
        for number, (stage, stage_price) in enumerate(
            zip(replica.groups, price.stages, strict=True)
        ):
            used = stage_price.used_bytes
            held = np.array([usable[instance.cluster.chip(chip).chip.name] for chip in stage.chips])
            worst = int(np.argmax(used - held))
            if exceeds(float(used[worst]), float(held[worst])):
                violations.append(
                    Violation(
                        "hbm_capacity",
                        f"replicas[{index}].stages[{number}] chip {stage.chips[worst]}",
                        f"needs {used[worst] / 1e9:.1f} GB of HBM, has {held[worst] / 1e9:.1f} GB{left}",
                    )
                )
    return violations
