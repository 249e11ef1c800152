"""What Ctrl-C and SIGTERM do to a command. Imports nothing heavy: they may come while libraries are being loaded.

The first one asks the work to end: by ``KeyboardInterrupt``, or by a call where the work listens. Whatever
has not ended :data:`ENDS_WITHIN_S` later is left as it is, with no draft of a file behind it.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

#: what asks a program to end
SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: seconds from being asked to the end of the program, whatever it does
ENDS_WITHIN_S = 1.5
#: exit code of a solve or an explanation that has no answer yet
NO_ANSWER = 3

_pressed: list[int] = []
#: when the command began that runs now, by ``time.perf_counter``; empty where none does
began: list[float] = []
_listeners: list[Callable[[], None]] = []
_armed: list[threading.Timer] = []
#: files that are being written; whoever ends the program removes them
drafts: set[Path] = set()
#: held while a draft takes the place of a file
replacing = threading.Lock()


def watch() -> None:
    """Note both signals from here on, and when a command began. Not signals that are ignored or taken already."""
    began[:] = [time.perf_counter()]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, note)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, note)
    atexit.register(_ignore)


def _ignore() -> None:
    """The work is done: a signal while the program ends no longer changes its exit code."""
    for number in SIGNALS:
        if signal.getsignal(number) is note:
            signal.signal(number, signal.SIG_IGN)


def note(number: int, frame: FrameType | None) -> None:
    """Remember the signal; tell whoever listens, else raise ``KeyboardInterrupt``."""
    _pressed.append(number)
    end_soon(ENDS_WITHIN_S)
    if not _listeners:
        raise KeyboardInterrupt
    ask()
    if len(_pressed) > 1:  # asked twice: leave at once
        leave()


def ask() -> None:
    """Tell whoever listens to end, as a signal does; the program goes on."""
    for tell in _listeners:
        tell()


def listen(tell: Callable[[], None]) -> None:
    """From here on signals call ``tell`` and raise nothing."""
    _listeners.append(tell)


def forget(tell: Callable[[], None]) -> None:
    """End of :func:`listen`."""
    _listeners.remove(tell)


def end_soon(seconds: float) -> None:
    """Leave the program after so many seconds, whatever it does then."""
    if not _armed:
        timer = threading.Timer(seconds, leave)
        timer.daemon = True
        _armed.append(timer)
        timer.start()


def leave(code: int | None = None) -> None:
    """End the program now: drafts are removed, threads and native code are not waited for."""
    with replacing:
        for draft in tuple(drafts):
            _remove(draft)
        if code is None:
            code = exit_code_of_stop()
            print("rackfit: stopped before the answer was complete", file=sys.stderr, flush=True)
        os._exit(code)


def _remove(draft: Path) -> None:
    import shutil

    if draft.is_dir():
        shutil.rmtree(draft, ignore_errors=True)
    else:
        draft.unlink(missing_ok=True)


def exit_code_of_stop() -> int:
    """3 for a question that has no answer yet, else 128 and the number of the signal, as a shell has it."""
    if {"solve", "explain"} & set(sys.argv[1:4]):
        return NO_ANSWER
    return 128 + (_pressed[-1] if _pressed else signal.SIGINT)


def came_of_ctrl_c(error: BaseException | None) -> bool:
    """Whether a signal caused an error.

    Compiled modules that it hits while they load make it ``ImportError`` or, in Rust, a panic, and may
    lose what caused it.
    """
    lost = isinstance(error, ImportError) or type(error).__name__ == "PanicException"
    if lost and _pressed:
        return True
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
