"""Ten thousand odd inputs of a placement: a valid answer or a clear refusal."""

import contextlib
import io
import json
import os
from dataclasses import replace

import numpy as np
import pytest

from costmodel.experts.coactivation import pair_shares
from costmodel.experts.dispatch import check_placement
from costmodel.experts.expert_load import read_loads
from topology.errors import InstanceError


def fuzzed_together(rng, folder, loads):
    """A file of pair counts or of tokens, as often whole as not."""
    layers, experts = loads.shape
    top_k = int(rng.integers(1, max(min(experts, 5), 2)))
    tokens = int(rng.integers(1, 40))
    picks = np.argsort(rng.random((tokens, layers, experts)), axis=2)[:, :, :top_k]
    array = picks
    if rng.random() < 0.5:
        array = pair_shares(picks, experts) * tokens
    if rng.random() < 0.3:
        array = array.astype(float)
        array[rng.random(array.shape) < 0.1] = rng.choice([0, np.nan, -1, np.inf, 1e308, 3])
    if rng.random() < 0.1:
        array = array[..., : rng.integers(array.shape[-1] + 1)]
    path = folder / f"together.{rng.choice(['npy', 'npz', 'json'])}"
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".npz":
        np.savez(path, **{f"a{i}": array for i in range(rng.integers(1, 3))})
    else:
        path.write_text(json.dumps(array.tolist()))
    if rng.random() < 0.1:
        data = bytearray(path.read_bytes())
        data[rng.integers(len(data))] = rng.integers(256)
        path.write_bytes(bytes(data))
    return path


@pytest.mark.slow
def test_ten_thousand_fuzzed_inputs_give_a_valid_placement_or_a_clear_refusal(tmp_path):
    from rackfit.placement.place import place
    from solver.experts.request import PlaceOptions

    rng = np.random.default_rng(0)
    placed = refused = used = 0
    for trial in range(10_000):
        layers, experts = rng.integers(1, 4), int(rng.integers(1, 20))
        loads = rng.lognormal(0, rng.choice([0, 1, 4]), (layers, experts))
        if rng.random() < 0.2:
            loads[rng.random(loads.shape) < 0.5] = rng.choice([0, np.nan, -1, np.inf, 1e308])
        path = tmp_path / f"loads.{rng.choice(['npy', 'json', 'csv', 'npz'])}"
        if path.suffix == ".npy":
            np.save(path, loads)
        elif path.suffix == ".npz":
            np.savez(path, **{f"w{i}": loads for i in range(rng.integers(1, 3))})
        elif path.suffix == ".json":
            path.write_text(json.dumps(loads.tolist()))
        else:
            path.write_text("\n".join(",".join(map(str, row)) for row in loads))
        if rng.random() < 0.1:
            data = bytearray(path.read_bytes())
            for _ in range(rng.integers(1, 6)):
                data[rng.integers(len(data))] = rng.integers(256)
            path.write_bytes(
                bytes(data[: rng.integers(len(data) + 1)] if rng.random() < 0.5 else data)
            )
        options = PlaceOptions(
            gpus=int(rng.integers(0, 7)),
            slots=experts + int(rng.integers(-1, 12)),
            gpus_per_node=[None, None, 1, 2, 3][rng.integers(5)],
            groups=int(rng.choice([1, 1, 1, 2, 3, 4])),
            top_groups=int(rng.choice([1, 1, 1, 2, 3])),
            top_k=int(rng.integers(1, 6)),
            dispatch=("even", "sglang-static", "lp")[rng.integers(3)],
            objective=("sum", "mean", "worst")[rng.integers(3)],
            effort="fast",
            seed=trial,
        )
        together = fuzzed_together(rng, tmp_path, loads) if rng.random() < 0.3 else None
        if together is not None and rng.random() < 0.7:
            gpus = int(rng.choice([2, 4, 6]))
            slots = max(-(-options.slots // gpus), 1) * gpus
            options = replace(
                options, gpus=gpus, slots=slots, gpus_per_node=gpus // 2, groups=1,
                top_groups=1, top_k=None, objective="sum",
            )  # fmt: skip
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                found = place(read_loads(path), options, None, together)
        except InstanceError:
            refused += 1
        else:
            placed += 1
            check_placement(
                found.table.physical_to_logical, found.table.num_experts, found.table.slots_per_chip
            )
            assert (found.bound <= found.imbalance * (1 + 1e-9)).all()
            assert np.isfinite(found.imbalance).all()
            json.dumps(found.document(), allow_nan=False)
            used += found.compared is not None
        os.unlink(path)
    assert placed > 1000
    assert refused > 1000
    assert used > 100
