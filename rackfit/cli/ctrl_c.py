"""Whether an error came of Ctrl-C or SIGTERM. Imports nothing heavy: it is asked when one hit a library being loaded."""

from __future__ import annotations

import signal
from types import FrameType

#: what asks a program to end
SIGNALS = (signal.SIGINT, signal.SIGTERM)
_pressed: list[int] = []


def watch() -> None:
    """Note both from here on; each raises ``KeyboardInterrupt``. Not where they are ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, note)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, note)


def note(number: int, frame: FrameType | None) -> None:
    """Remember the signal and raise ``KeyboardInterrupt``."""
    _pressed.append(number)
    raise KeyboardInterrupt


def exit_code_of_signal() -> int:
    """128 and the number of the last signal, as a shell has it."""
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
