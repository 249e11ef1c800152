"""The largest good batch is exact whatever the strain says, and needs few probes where it tells the truth."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from solver.bounds.batches import Probe, largest_batch

Array = NDArray[np.float64]


@pytest.mark.parametrize("shape", ["linear", "convex", "concave", "steps", "noise", "constant"])
def test_exact_for_every_shape_of_strain(shape: str) -> None:
    rng = np.random.default_rng(3)
    most = rng.integers(0, 5000, 400).astype(float)
    limit = np.where(rng.random(400) < 0.2, 9999.0, np.floor(rng.random(400) ** 3 * 5000) + 1.0)
    strains = {
        "linear": lambda n: n / (limit + 0.5),
        "convex": lambda n: (n / (limit + 0.5)) ** 3,
        "concave": lambda n: (n / (limit + 0.5)) ** 0.3,
        "steps": lambda n: np.floor(n / 64) / (limit / 64),
        "noise": lambda n: rng.random(len(n)),
        "constant": lambda n: np.ones_like(n),
    }
    probes = 0

    def probe(batch: Array) -> tuple[NDArray[np.bool_], Array]:
        nonlocal probes
        probes += 1
        assert np.all(batch >= 1)
        assert np.all(batch == np.floor(batch))
        return batch <= limit, strains[shape](batch)

    found = largest_batch(probe, most, strains[shape](np.ones(400)))
    assert found.tolist() == np.minimum(most, limit).tolist()
    assert probes <= (6 if shape == "linear" else 45)


@pytest.mark.parametrize("shape", ["linear", "noise"])
def test_settled_shapes_are_probed_no_more(shape: str) -> None:
    rng = np.random.default_rng(4)
    # few shapes are in doubt for long
    most = np.where(rng.random(300) < 0.1, 5000.0, rng.integers(0, 4, 300))
    limit = np.floor(rng.random(300) * 6000) + 1.0
    probed: list[int] = []

    def of_rows(rows: NDArray[np.int64]) -> Probe:
        def probe(batch: Array) -> tuple[NDArray[np.bool_], Array]:
            probed.append(len(batch))
            assert len(batch) == len(rows)
            strain = batch / (limit[rows] + 0.5) if shape == "linear" else rng.random(len(batch))
            return batch <= limit[rows], strain

        return probe

    every = np.arange(300)
    found = largest_batch(of_rows(every), most, of_rows(every)(np.ones(300))[1], of_rows)
    assert found.tolist() == np.minimum(most, limit).tolist()
    assert probed[:2] == [300, 300]
    assert probed[-1] < 60
