"""Tensors of a ``torch.save`` file without torch: a zip of raw storages and a small pickle.

The pickle is read with a list of the few names a dictionary of tensors needs; any other name is
refused, so nothing in the file is executed.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.unpacked import check_archive, check_bytes, elements

STORAGES: dict[str, str] = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}


def rebuild_tensor(
    storage: NDArray[np.generic],
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    *_: Any,
) -> NDArray[np.generic]:
    """The tensor of ``torch._utils._rebuild_tensor_v2`` as a copied array, limits checked."""
    if len(size) != len(stride) or offset < 0 or min((*size, *stride), default=0) < 0:
        raise ValueError("a tensor of impossible shape")
    if elements(size) > storage.size:
        raise ValueError("a tensor larger than its storage")
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if 0 not in size and last >= storage.size:
        raise ValueError("a tensor that reaches beyond its storage")
    width = storage.dtype.itemsize
    view = np.lib.stride_tricks.as_strided(
        storage[offset:], size, tuple(step * width for step in stride)
    )
    return view.copy()


class TensorUnpickler(pickle.Unpickler):
    """Unpickler that knows tensors, storages and ordered dictionaries, and nothing else."""

    def __init__(self, data: bytes, storage: Callable[[str, str], NDArray[np.generic]]):
        super().__init__(io.BytesIO(data))
        self._storage = storage

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a name of the allowed list; anything else is refused."""
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return rebuild_tensor
        if module == "torch" and name in STORAGES:
            return STORAGES[name]
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        raise ValueError(f"holds pickled objects ({module}.{name}), which are never loaded")

    def persistent_load(self, pid: Any) -> NDArray[np.generic]:
        """The storage that a tensor refers to: ``("storage", dtype, key, device, length)``."""
        if not (isinstance(pid, tuple) and len(pid) == 5 and pid[0] == "storage"):
            raise ValueError("an unknown reference in the dump")
        return self._storage(str(pid[1]), str(pid[2]))


def read_dump(path: Path) -> dict[str, Any]:
    """The dictionary saved at ``path``, tensors as numpy arrays. Raises ``ValueError``."""
    with zipfile.ZipFile(path) as archive:
        check_archive(archive, path)
        names = set(archive.namelist())
        index = next((name for name in sorted(names) if name.endswith("/data.pkl")), None)
        if index is None:
            raise ValueError("not a torch.save file (no data.pkl inside)")
        root = index.removesuffix("data.pkl")

        read: dict[str, bytes] = {}
        copied = 0

        def storage(dtype: str, key: str) -> NDArray[np.generic]:
            nonlocal copied
            name = f"{root}data/{key}"
            if name not in names:
                raise ValueError(f"storage {key[:40]} is missing")
            if name not in read:
                read[name] = archive.read(name)
            copied += len(read[name])  # each tensor that refers to it may copy it
            check_bytes(copied, path)
            return np.frombuffer(read[name], dtype=dtype)

        try:
            found = TensorUnpickler(archive.read(index), storage).load()
        except (pickle.UnpicklingError, TypeError, AttributeError, IndexError, KeyError) as error:
            raise ValueError(f"a damaged dump: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("expected a dictionary in the dump")
    return found
