"""Files laid out as ``torch.save`` does, written without torch."""

import io
import pickle
import sys
import types
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest


def torch_file(path: Path, monkeypatch: pytest.MonkeyPatch, data: dict[str, Any]) -> Path:
    """``data`` with its arrays as tensors of whole numbers."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    rebuild = types.FunctionType((lambda *a: None).__code__, {}, "_rebuild_tensor_v2")
    rebuild.__module__, rebuild.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = rebuild
    storage = type("LongStorage", (), {"__module__": "torch"})
    torch.LongStorage, torch._utils = storage, utils
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)
    stored = []

    class Stored(int):
        pass

    class Pickler(pickle.Pickler):
        def reducer_override(self, item):
            if not isinstance(item, np.ndarray):
                return NotImplemented
            stored.append(np.ascontiguousarray(item, dtype=np.int64))
            strides = tuple(step // 8 for step in stored[-1].strides)
            where = (Stored(len(stored) - 1), 0, item.shape, strides, False, OrderedDict())
            return rebuild, where

        def persistent_id(self, item):
            if isinstance(item, Stored):
                return ("storage", storage, str(int(item)), "cpu", stored[item].size)
            return None

    buffer = io.BytesIO()
    Pickler(buffer, protocol=2).dump(data)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", buffer.getvalue())
        for key, array in enumerate(stored):
            archive.writestr(f"archive/data/{key}", array.tobytes())
    return path
