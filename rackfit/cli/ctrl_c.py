"""Whether an error came of Ctrl-C. Imports nothing heavy: it is asked when Ctrl-C hit a library being loaded."""

from __future__ import annotations

import signal
from types import FrameType

_pressed: list[int] = []


def watch() -> None:
    """Note Ctrl-C from here on, which raises ``KeyboardInterrupt`` as before; not where it is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _note)


def _note(number: int, frame: FrameType | None) -> None:
    _pressed.append(number)
    signal.default_int_handler(number, frame)


def came_of_ctrl_c(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused an error.

    Compiled modules that it hits while they load make it ``ImportError`` or, in Rust, a panic, and may
    lose what caused it.
    """
    lost = isinstance(error, ImportError) or type(error).__name__ == "PanicException"
    if lost and _pressed:
        return True
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
