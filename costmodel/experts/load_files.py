"""Files of recorded expert load, read without executing anything in them.

Gives raw arrays; what a valid load is, is decided in ``costmodel.experts.expert_load``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.count_tables import read_csv
from costmodel.experts.raw_loads import MAX_FILE_BYTES, RawLoads, as_windows, summed_windows
from costmodel.experts.trtllm_statistics import read_statistics
from costmodel.experts.unpacked import check_arrays
from topology.catalogue import is_folder
from topology.errors import InstanceError, Problem, option
from topology.names import brief
from topology.reading import parse_json, read_text

Read = TypeVar("Read")

#: Key of SGLang's recorder dumps and of its ``--init-expert-location`` counts.
SGLANG_KEY = "logical_count"
#: Names of a number of experts per token, beside the counts or in a part that tells of the recording.
_TOP_K = ("num_experts_per_tok", "num_experts_per_token", "moe_router_topk", "top_k", "topk")
_PARTS = ("metadata", "meta", "config", "model_config")
#: Names of arrays that say where experts lie: SGLang's files, those of ``rackfit place``, what EPLB returns.
_PLACEMENTS = frozenset(
    {"physical_to_logical_map", "physical_to_logical", "logical_to_physical_map", "logical_to_all_physical_map",
     "phy2log", "log2phy", "logcnt"}
)  # fmt: skip


def read_arrays(path: Path) -> RawLoads:
    """Read one file, or a folder of TensorRT-LLM statistics. Raises ``InstanceError``."""
    if is_folder(path) or path.suffix == ".safetensors" or path.name == "meta_info.json":
        return read_statistics(path if is_folder(path) else path.parent)
    readers = {
        ".npz": read_npz,
        ".npy": read_npy,
        ".json": read_json,
        ".csv": read_csv,
        ".pt": read_pt,
    }
    return read_with(path, readers, "unknown kind of file", ", or a statistics folder")


def read_with(
    path: Path, readers: Mapping[str, Callable[[Path], Read]], unknown: str, beside: str = ""
) -> Read:
    """What the reader of a file's suffix finds. Raises ``InstanceError``, whatever is wrong with the file.

    ``unknown``: what to say of other suffixes; ``beside``: what is read beside those of ``readers``.
    """
    place, suffix = str(path), path.suffix.lower()
    if suffix not in readers:
        raise InstanceError(Problem(place, f"{unknown}; known: {', '.join(readers)}{beside}"))
    try:
        if not path.is_file():
            raise InstanceError(Problem(place, "No such file, or no ordinary one"))
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise InstanceError(Problem(place, f"{size} bytes; at most {MAX_FILE_BYTES} are read"))
        with warnings.catch_warnings():
            # numpy reads a header as Python's literals: Python warns of a damaged one's text, until 3.11 as deprecated
            warnings.simplefilter("ignore", SyntaxWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            return readers[suffix](path)
    except OSError as error:
        raise InstanceError(Problem(place, error.strerror or "cannot be read")) from None
    except InstanceError:
        raise
    except Exception as error:  # a damaged file makes numpy, zipfile and csv raise almost anything
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        if "allow_pickle" in reason or "pickled" in reason:
            reason = "holds pickled objects, which are never loaded; save plain numbers"
        raise InstanceError(Problem(place, f"cannot be read: {reason}")) from None


def read_npy(path: Path) -> RawLoads:
    """A numpy array of counts."""
    check_arrays(path)
    with path.open("rb") as file:
        array = np.load(file, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise ValueError("not a numpy array (an .npz archive needs that suffix)")
    return as_windows(array, path.stem, str(path))


def read_npz(path: Path) -> RawLoads:
    """A numpy archive: every array of counts is a window (or several); shapes must agree."""
    check_arrays(path)
    with path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("not an .npz archive (one numpy array needs the suffix .npy)")
        with archive:
            arrays = {key: archive[key] for key in archive.files}
    if any(not isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("the archive holds something else than arrays")
    top_k = top_k_of(arrays) if SGLANG_KEY in arrays else None
    if SGLANG_KEY in arrays:
        arrays = {SGLANG_KEY: arrays[SGLANG_KEY]}
    if not arrays:
        raise ValueError("the archive is empty")
    refuse_placements(arrays)
    parts = [as_windows(array, key, f"{path}: {key}") for key, array in arrays.items()]
    shapes = {key: part.windows.shape[1:] for key, part in zip(arrays, parts, strict=True)}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{key} {list(shape)}" for key, shape in list(shapes.items())[:8])
        raise InstanceError(Problem(str(path), f"arrays of different shapes: {listed}"))
    raw = RawLoads(
        np.concatenate([part.windows for part in parts]),
        tuple(name for part in parts for name in part.names),
    )
    return replace(summed_windows(raw), top_k=top_k) if SGLANG_KEY in arrays else raw


def read_json(path: Path) -> RawLoads:
    """A nested list, SGLang's ``{"logical_count": ...}`` or ``{name: [[...]], ...}``."""
    data = parse_json(read_text(path), str(path))
    if isinstance(data, dict) and SGLANG_KEY in data:
        raw = as_windows(numbers(data[SGLANG_KEY], SGLANG_KEY), path.stem, str(path))
        return replace(summed_windows(raw), top_k=top_k_of(data))
    if isinstance(data, dict):
        refuse_placements(data)
        parts = [
            as_windows(numbers(value, key), key, f"{path}: {key}") for key, value in data.items()
        ]
        if not parts or len({part.windows.shape[1:] for part in parts}) > 1:
            raise ValueError(f'expected "{SGLANG_KEY}", a list, or named lists of one shape')
        return RawLoads(
            np.concatenate([part.windows for part in parts]),
            tuple(name for part in parts for name in part.names),
        )
    return as_windows(numbers(data, "the list"), path.stem, str(path))


def refuse_placements(names: Iterable[str]) -> None:
    """Raise ``ValueError`` for a placement: numbers of experts would else be taken for counts."""
    for name in names:
        if name in _PLACEMENTS:
            raise ValueError(f"{name} is a placement, not how often experts were chosen")


def numbers(data: Any, what: str) -> NDArray[np.generic]:
    """A nested list as an array; ragged or non-numeric content is a ``ValueError`` that says so."""
    try:
        array = np.asarray(data)
    except (ValueError, OverflowError):
        raise ValueError(f"{what}: rows of different lengths") from None
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{what}: not all entries are numbers")
    return array


def read_pt(path: Path) -> RawLoads:
    """SGLang's recorder dump (``torch.save`` of a dictionary with ``logical_count``)."""
    from costmodel.experts.torch_dump import read_dump

    dump = read_dump(path)
    array = dump.get(SGLANG_KEY)
    if not isinstance(array, np.ndarray):
        mode = (
            "; record with the mode stat"
            + (f" ({names} reads records)" if (names := option("coactivation")) else "")
            if "records" in dump
            else ""
        )
        raise ValueError(f'no tensor "{SGLANG_KEY}" in the dump{mode}')
    return replace(summed_windows(as_windows(array, path.stem, str(path))), top_k=top_k_of(dump))


def top_k_of(data: Mapping[str, Any]) -> int | None:
    """Experts per token that a recording tells beside its counts, if it does. Raises ``ValueError`` for what is no such number.

    SGLang's recorder writes none; whoever keeps recordings of several models adds it.
    """
    parts = [data, *(part for name in _PARTS if isinstance(part := data.get(name), Mapping))]
    for part in parts:
        for name in _TOP_K:
            if (value := part.get(name)) is None:
                continue
            told = value.item() if isinstance(value, np.ndarray) and value.size == 1 else value
            if isinstance(told, bool) or not isinstance(told, int) or told < 1:
                raise ValueError(f"{name}: expected a whole number from 1, got {brief(told)}")
            return told
    return None
