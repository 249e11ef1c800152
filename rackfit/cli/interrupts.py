"""What Ctrl-C means to a command: before an answer exit 3, while the answer is written nothing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rackfit.cli.ctrl_c import came_of_ctrl_c
from topology.errors import NoLayoutInTime


@contextmanager
def answer_or_exit_3(what: str) -> Iterator[None]:
    """Turn Ctrl-C inside, the loading of libraries included, into :class:`NoLayoutInTime`.

    ``what`` names what was not there yet, such as ``the first verified layout``.
    """
    try:
        yield
    except BaseException as error:  # a Rust panic is no Exception
        if isinstance(error, SystemExit) or not came_of_ctrl_c(error):
            raise
        raise NoLayoutInTime(f"stopped before {what}") from None


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let an answer that was found be written whole: Ctrl-C inside is ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
