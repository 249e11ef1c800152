"""Standard streams as every command needs them: there, and able to take any text."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import Any


class _Closed(io.TextIOBase):
    """Stands for a stream that was closed before the program began: writing to it fails."""

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def usable_streams() -> None:
    """Fill closed descriptors, so that no file gets the number of a stream; write odd text as escapes."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = _Closed()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        changed: Any = getattr(stream, "reconfigure", None)
        if changed is not None:
            with contextlib.suppress(ValueError):
                changed(errors="backslashreplace")
