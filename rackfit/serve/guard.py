"""What a process that answers a request may see of the machine: its own folder, the shipped data, Python's own code.

A path to anything else is one to nothing, whether or not it exists, so that no answer tells which. No process
and no connection is started.
"""

from __future__ import annotations

import errno
import os
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import topology
from topology.catalogue import data_dir
from topology.errors import InstanceError, Problem
from topology.names import shown

_FORBIDDEN = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect",
              "os.remove", "os.rename", "shutil.rmtree", "os.symlink", "os.link")  # fmt: skip
#: what Python itself reads of its folders
_CODE = (".py", ".pyc", ".so", ".pth", "METADATA", "entry_points.txt", "RECORD")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: functions of ``os`` that tell of a path without opening it
_TELLING = ("stat", "lstat", "access", "readlink")


def close(folder: Path) -> None:
    """Show this process no more than ``folder``, the shipped data and code; for good."""
    own, data = str(folder.resolve()), str(data_dir("chips").resolve().parent)
    above = Path(topology.__file__).resolve().parents[1]
    ours = [str(above / name) for name in ("topology", "costmodel", "solver", "rackfit")]
    # Python's own import does not ask os: its folders need not be seen, only read
    for name in _TELLING:
        setattr(os, name, _blind(getattr(os, name), (own, data, *ours)))
    python = [sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    python += [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    sys.addaudithook(_guard(own, data, (*ours, *python)))


def _within(path: str, *folders: str) -> bool:
    return any(path == folder or path.startswith(folder + os.sep) for folder in folders)


def _blind(tell: Callable[..., Any], folders: tuple[str, ...]) -> Callable[..., Any]:
    """A function of ``os`` to which every path outside ``folders`` is one to nothing."""

    def told(path: Any, *more: Any, **named: Any) -> Any:
        if isinstance(path, int):
            return tell(path, *more, **named)
        # by its words alone: to look a path up is to tell something of it
        if _within(os.path.abspath(os.fsdecode(path)), *folders):
            return tell(path, *more, **named)
        if tell.__name__ == "access":
            return False
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    return told


def _guard(own: str, data: str, code: tuple[str, ...]) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook that refuses every file outside ``own``, ``data`` and the ``code`` of Python."""

    def hook(event: str, values: tuple[Any, ...]) -> None:
        if event in _FORBIDDEN:
            raise InstanceError(Problem("request", f"{event} is not allowed"))
        if event not in ("open", "os.listdir", "os.scandir") or isinstance(values[0], int):
            return
        path = os.path.abspath(os.fsdecode(values[0] or "."))
        if _within(path, own):
            return
        reads = event != "open" or not (isinstance(values[2], int) and values[2] & _WRITING)
        if reads and _within(path, data):
            return
        if reads and _within(path, *code) and (event != "open" or path.endswith(_CODE)):
            return
        message = "is not offered: give a name of the catalogue, or a file's name and its content in files"
        raise InstanceError(Problem(shown(str(values[0]), 200), message))

    return hook
