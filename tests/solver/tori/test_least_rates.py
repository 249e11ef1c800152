"""No set of a small torus moves tokens sooner than the least rates that shapes are bounded by."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
import yaml

from costmodel.passes.communication import GroupRates, rates_of_chips
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from solver.shapes.group_rates import moved_for
from solver.shapes.least_rates import KnownSets, least_rates
from solver.shapes.pools import pool_classes
from solver.shapes.stands import stands

#: bytes that latency decides, that bandwidth does, and between
BYTES = (1e3, 1e5, 1e6, 1e9)


def asked(folder: Path, failed: list[str]) -> Instance:
    """A grid of three by four chips without wraparound, of which some failed."""
    fabric = {
        "kind": "torus", "shape": [3, 4], "wrap": "none", "hop_s": "1 us",
        "axis_bytes_per_s": ["128 GB/s", "128 GB/s"],
    }  # fmt: skip
    domain = {"rack": "grid", "fabric": fabric, "chips": [{"chip": "trn2", "count": 12}]}
    cluster = folder / "grid.yaml"
    cluster.write_text(yaml.safe_dump({"name": "grid", "domains": [domain], "failed": failed}))
    data = {"model": "mixtral-8x7b", "cluster": str(cluster), "workload": "chat"}
    return resolve_instance(Scenario.model_validate(data))


@pytest.mark.parametrize("failed", [["r0g3", "r0g5"], ["r0g0", "r0g6"]])
@pytest.mark.parametrize("ranks", [True, False])
def test_no_set_gathers_or_reduces_sooner_than_the_bound(
    ranks: bool, failed: list[str], tmp_path: Path
) -> None:
    """Chips told apart: ranks that gather all tokens for cut experts, or tensor parallelism over as many chips."""
    instance = asked(tmp_path, failed)
    classes = pool_classes(instance.cluster)
    (pool,) = classes[0].pools
    efficiency = instance.profile.for_chip(pool.chip.name)
    for count in (5, 7, 8):
        widths = {"tp": 1, "attention_dp": count} if ranks else {"tp": count, "attention_dp": 1}
        shape = {"role": 1, "pp": 1, "slots": 0, **widths}
        least = least_rates(instance, classes, ((0, count),), shape, KnownSets())
        moved = moved_for(instance, pool.chip, shape, [[count]])
        assert moved.gathers
        every = [
            rates_of_chips(instance.cluster, [chips], widths["tp"], 2, efficiency, moved)[0]
            for chips in combinations(pool.chips, count)
        ]
        name = "dispatch" if ranks else "reduce"
        for sent in BYTES:
            bound, best = (min(_seconds(one, name, sent) for one in own) for own in (least, every))
            assert bound <= best * (1 + 1e-9)
            assert np.isfinite(bound)


@pytest.mark.parametrize(
    ("tp", "ranks", "pp"), [(8, 1, 2), (8, 1, 5), (8, 1, 8), (4, 2, 4), (4, 1, 7), (16, 2, 3)]
)
def test_stages_on_a_large_slice_stand_no_quicker_than_the_bound(
    tp: int, ranks: int, pp: int
) -> None:
    """Exit 4 before, as a bound was above a cost: of 256 chips only rows of eight were looked at, and stages stood on
    two rows of four."""
    asked = {"model": "mixtral-8x7b", "cluster": "tpu-v6e", "workload": "chat"}
    instance = resolve_instance(Scenario.model_validate(asked))
    classes = pool_classes(instance.cluster)
    (pool,) = classes[0].pools
    efficiency = instance.profile.for_chip(pool.chip.name)
    count = tp * ranks * pp
    shape = {"role": 1, "tp": tp, "attention_dp": ranks, "pp": pp, "slots": 0}
    least = least_rates(instance, classes, ((0, count),), shape, KnownSets())
    moved = moved_for(instance, pool.chip, shape, [[tp * ranks]] * pp)
    every = list(stands(instance.cluster, shape, [(pool, pool.chips, count)]))
    assert every
    for stand in every:
        stages = rates_of_chips(instance.cluster, stand, tp, 2, efficiency, moved)
        for name, sent in product(("reduce", "dispatch"), BYTES):
            slowest, bound = (
                reach(_seconds(one, name, sent) for one in own)
                for own, reach in ((stages, max), (least, min))
            )
            assert bound <= slowest * (1 + 1e-9)


def _seconds(rates: GroupRates, name: str, sent: float) -> float:
    return float(getattr(rates, f"{name}_latency_s") + sent * getattr(rates, f"{name}_s_per_byte"))
