"""Files of experts used together: pair counts, or the experts of single tokens; nothing is executed.

Which of the two a file holds shows in the last axis: as long as there are experts, or shorter.
What is wrong with either is said by ``costmodel.experts.coactivation_checks``, all of it at once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.coactivation import CoActivation, pair_shares
from costmodel.experts.coactivation_checks import check_pairs, check_picks, dense_rows
from costmodel.experts.expert_load import ExpertLoads
from costmodel.experts.load_files import numbers, read_with
from costmodel.experts.unpacked import check_arrays, check_bytes
from topology.errors import InstanceError, Problem
from topology.reading import parse_json, read_text

Array = NDArray[np.generic]

#: Key of SGLang's per-token recorder: ``[layers, tokens, top_k]`` slots of one forward pass.
SGLANG_KEY = "topk_ids_of_layer"
#: Tokens kept of each half, evenly spaced: more change a share of tokens by less than half a percent.
MOST_TOKENS = 2**16
EXPECTED = (
    "expected pair counts [layers, experts, experts] or the experts of tokens [tokens, layers, "
    "top_k], here with {layers} layers and {experts} experts; got shape {shape}"
)


def read_coactivation(
    path: str | Path, loads: ExpertLoads, *, top_k: int | None = None
) -> CoActivation:
    """Read co-activation of the layers and experts of ``loads`` from ``.npy .npz .json .pt``.

    Pair counts count tokens that use both experts (on the diagonal those that use the one, or
    zeros, then with ``top_k`` experts per token, 8 by default); several arrays are added up.
    Experts of tokens are split: the first half of each array is what a search may read, the second is held out.
    SGLang's per-token recorder dump (``.pt``) is read with the slots turned into experts. Raises
    ``InstanceError`` with every problem.
    """
    place = str(path)
    arrays = read_arrays(Path(path))
    kinds = {kind_of(array, loads, name) for name, array in arrays.items()}
    if len(kinds) > 1:
        raise InstanceError(Problem(place, "holds both pair counts and the experts of tokens"))
    if kinds == {"pairs"}:
        parts = [dense_rows(array, 0, loads) for array in arrays.values()]
        problems = [
            problem
            for name, part in zip(arrays, parts, strict=True)
            for problem in check_pairs(part, loads, name, top_k)
        ]
        if problems:
            raise InstanceError(problems)
        return from_counts(np.sum([part.astype(float) for part in parts], axis=0), place, top_k)
    parts = [dense_rows(array, 1, loads) for array in arrays.values()]
    tokens, dropped, problems = check_picks(dict(zip(arrays, parts, strict=True)), loads, top_k)
    if problems:
        raise InstanceError(problems)
    seen = thinned(np.concatenate([part[: len(part) // 2] for part in tokens]))
    later = thinned(np.concatenate([part[len(part) // 2 :] for part in tokens]))
    pairs = pair_shares(seen, loads.num_experts)
    return CoActivation(pairs, seen.shape[2], place, seen, later, dropped)


def from_counts(counts: NDArray[np.float64], place: str, top_k: int | None) -> CoActivation:
    """Shares of tokens from checked pair counts ``[layers, experts, experts]``."""
    own = np.einsum("lee->le", counts)
    beside = counts.sum(axis=2) - own
    if own.any():
        top_k = round(1 + float(beside.sum() / own.sum()))
    else:
        top_k = 8 if top_k is None else top_k
        np.einsum("lee->le", counts)[...] = beside / (top_k - 1)
    tokens = np.einsum("lee->l", counts) / top_k
    return CoActivation(counts / tokens[:, None, None], top_k, place)


def thinned(picks: NDArray[np.int64]) -> NDArray[np.int64]:
    """At most :data:`MOST_TOKENS` of the tokens, evenly spaced."""
    if len(picks) <= MOST_TOKENS:
        return picks
    return picks[np.linspace(0, len(picks) - 1, MOST_TOKENS).astype(np.int64)]


def kind_of(array: Array, loads: ExpertLoads, place: str) -> str:
    """``pairs`` or ``picks``, by shape. Raises ``InstanceError`` where it is neither."""
    rows = {loads.windows.shape[1], loads.num_layers}
    shape = array.shape
    if len(shape) == 3 and 0 not in shape:
        if shape[0] in rows and shape[1:] == (loads.num_experts,) * 2:
            return "pairs"
        if shape[1] in rows and shape[2] < loads.num_experts:
            return "picks"
    layers = " or ".join(map(str, sorted(rows)))
    text = EXPECTED.format(layers=layers, experts=loads.num_experts, shape=list(shape))
    raise InstanceError(Problem(place, text))


def read_arrays(path: Path) -> dict[str, Array]:
    """Arrays of a file by name, as found. Raises ``InstanceError``."""
    readers: dict[str, Callable[[Path], dict[str, Array]]] = {
        ".npy": read_npy,
        ".npz": read_npz,
        ".json": read_json,
        ".pt": read_pt,
    }
    place = str(path)
    found = read_with(path, readers, "unknown kind of file for co-activation")
    if not found:
        raise InstanceError(Problem(place, "holds no arrays"))
    return {place if not name else f"{place}: {name}": array for name, array in found.items()}


def read_npy(path: Path) -> dict[str, Array]:
    """A numpy array."""
    check_arrays(path)
    with path.open("rb") as file:
        array = np.load(file, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise ValueError("not a numpy array (an .npz archive needs that suffix)")
    return {"": array}


def read_npz(path: Path) -> dict[str, Array]:
    """Every array of an archive."""
    check_arrays(path)
    with path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("not an .npz archive (one numpy array needs the suffix .npy)")
        with archive:
            return by_token({key: archive[key] for key in archive.files})


def read_json(path: Path) -> dict[str, Array]:
    """A nested list, or nested lists by name."""
    data = parse_json(read_text(path), str(path))
    if isinstance(data, dict):
        return by_token({key: numbers(value, key) for key, value in data.items()})
    return {"": numbers(data, "the list")}


def by_token(arrays: dict[str, Array]) -> dict[str, Array]:
    """Only SGLang's array where it is there, its tokens first: ``[tokens, layers, top_k]``."""
    if SGLANG_KEY not in arrays:
        return arrays
    array = np.asarray(arrays[SGLANG_KEY])
    if array.ndim != 3:
        raise ValueError(f"{SGLANG_KEY}: expected [layers, tokens, top_k], got {array.shape}")
    return {SGLANG_KEY: array.transpose(1, 0, 2)}


def read_pt(path: Path) -> dict[str, Array]:
    """SGLang's per-token recorder dump, slots turned into experts, passes one after another.

    Its records hold slots, as the engine dispatched to them; ``last_physical_to_logical_map``
    says which expert each is. Source: SGLang ``srt/eplb/expert_distribution.py``.
    """
    from costmodel.experts.torch_dump import read_dump

    dump: dict[str, Any] = read_dump(path)
    records = dump.get("records")
    if not isinstance(records, list) or not records:
        raise ValueError('no "records" in the dump; record with the mode per_token')
    passes = [record.get(SGLANG_KEY) if isinstance(record, dict) else None for record in records]
    if not all(isinstance(one, np.ndarray) and one.ndim == 3 for one in passes):
        raise ValueError(f'no "{SGLANG_KEY}" in the records; record with the mode per_token')
    check_bytes(sum(8 * one.size for one in passes if isinstance(one, np.ndarray)), path)
    slots = np.concatenate([one for one in passes if isinstance(one, np.ndarray)], axis=1)
    slots = slots.astype(np.int64)
    table = dump.get("last_physical_to_logical_map")
    if not isinstance(table, np.ndarray) or table.ndim != 2 or len(table) != len(slots):
        raise ValueError(f'no "last_physical_to_logical_map" with {len(slots)} layers in the dump')
    if slots.size and slots.max() >= table.shape[1]:
        raise ValueError(f"slot {slots.max()} of {table.shape[1]} slots")
    rows = np.arange(len(slots))[:, None, None]
    experts = np.where(slots < 0, slots, table.astype(np.int64)[rows, slots])
    return {SGLANG_KEY: experts.transpose(1, 0, 2)}
