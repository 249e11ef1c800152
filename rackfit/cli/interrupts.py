"""What Ctrl-C means to a command: before an answer exit 3, while the answer is written nothing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from topology.errors import NoLayoutInTime


@contextmanager
def answer_or_exit_3(what: str) -> Iterator[None]:
    """Turn Ctrl-C inside, the loading of libraries included, into :class:`NoLayoutInTime`.

    ``what`` names what was not there yet, such as ``the first verified layout``.
    """
    try:
        yield
    except (KeyboardInterrupt, ImportError) as error:
        if not came_of_ctrl_c(error):
            raise
        raise NoLayoutInTime(f"stopped before {what}") from None


def came_of_ctrl_c(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused an error: compiled modules that it hits while they load make it ``ImportError``."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


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
