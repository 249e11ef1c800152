"""TensorRT-LLM's expert statistics: ``meta_info.json`` beside ``rank*.safetensors``.

Each tensor is named ``<iteration>_<layer>`` and counts the tokens that this rank sent to each
expert. Ranks are summed; iterations are summed in up to a few equal windows.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.raw_loads import MAX_FILE_BYTES, MOST_WINDOWS, RawLoads
from costmodel.experts.unpacked import check_bytes
from topology.errors import InstanceError, Problem
from topology.reading import parse_json, read_bytes

DTYPES = {"I64": "<i8", "I32": "<i4", "I16": "<i2", "U8": "u1", "F64": "<f8", "F32": "<f4"}


def read_safetensors(path: Path) -> dict[str, NDArray[np.generic]]:
    """Tensors of one safetensors file: an 8-byte header length, a JSON header, raw bytes."""
    data = read_bytes(path, MAX_FILE_BYTES)
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise ValueError("not a safetensors file")
    header = parse_json(data[8 : 8 + length].decode(), str(path))
    body = memoryview(data)[8 + length :]
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in DTYPES:
            raise ValueError(
                f"tensor {name[:40]!r} has dtype {str(entry['dtype'])[:20]}; known: {', '.join(DTYPES)}"
            )
        start, stop = entry["data_offsets"]
        if not 0 <= start <= stop <= len(body):
            raise ValueError(f"tensor {name} lies outside the file")
        tensors[name] = np.frombuffer(body[start:stop], DTYPES[entry["dtype"]]).reshape(
            entry["shape"]
        )
    return tensors


def read_statistics(folder: Path) -> RawLoads:
    """The statistics of ``folder`` as windows, with the model's layer indices. ``InstanceError``."""
    files = sorted(folder.glob("rank*.safetensors"))
    if not files:
        raise InstanceError(
            Problem(str(folder), "no rank*.safetensors (TensorRT-LLM expert statistics)")
        )
    counts: dict[tuple[int, int], Any] = {}
    for path in files:
        total = 0
        try:
            for name, tensor in read_safetensors(path).items():
                named = re.fullmatch(r"(\d{1,9})_(\d{1,9})", name, re.ASCII)
                if named is None:
                    raise ValueError(f"tensor {name[:40]!r} is not named <iteration>_<layer>")
                key = (int(named[1]), int(named[2]))
                total += 8 * tensor.size
                check_bytes(total, path)
                counts[key] = counts.get(key, 0) + tensor.astype(np.float64)
        except OSError as error:
            raise InstanceError(Problem(str(path), error.strerror or "cannot be read")) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InstanceError(Problem(str(path), f"not expert statistics: {error}")) from None
    if not counts:
        raise InstanceError(Problem(str(folder), "rank*.safetensors hold no tensor"))
    iterations = sorted({iteration for iteration, _ in counts})
    layers = sorted({layer for _, layer in counts})
    shapes = {np.shape(tensor) for tensor in counts.values()}
    if len(counts) != len(iterations) * len(layers) or len(shapes) != 1:
        raise InstanceError(
            Problem(str(folder), "layers or experts differ between iterations or ranks")
        )
    stacked = np.array([[counts[step, layer] for layer in layers] for step in iterations])
    parts = np.array_split(stacked, min(MOST_WINDOWS, len(iterations)))
    windows = np.stack([part.sum(axis=0) for part in parts])
    names = tuple(f"window {index}" for index in range(len(parts)))
    return RawLoads(windows, names, layer_ids=tuple(layers))
