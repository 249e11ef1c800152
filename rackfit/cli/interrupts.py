"""Work that a signal or a time limit ends: in a thread of its own, so that nothing in it can hold the command up."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from rackfit import stopping
from topology.errors import NoLayoutInTime

T = TypeVar("T")
#: seconds that work has to end by itself once it was asked to
GRACE_S = 0.7
#: seconds between two looks
_LOOK_S = 0.02


class _Left(BaseException):
    """Ends work that nobody waits for any more."""


class _Quiet:
    """Says nothing of work that is left while it cleans up, where Python has nobody to hand the error to."""

    def __init__(self) -> None:
        self.before = sys.unraisablehook

    def __call__(self, raised: sys.UnraisableHookArgs, /) -> None:
        if not issubclass(raised.exc_type, _Left):
            self.before(raised)


def _break_off(thread: threading.Thread) -> None:
    """Raise in another thread, which else takes half of the time that is left; native code is not reached."""
    if not isinstance(sys.unraisablehook, _Quiet):
        sys.unraisablehook = _Quiet()
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(_Left)
        )
        thread.join(_LOOK_S)


class Stop(Generic[T]):
    """When work has to end, and what there is of it then.

    The work may set ``clock`` (it is stopped) and ``kept`` (makes an answer of the best found so far).
    ``what`` names what was not there yet, such as ``the first verified layout``.
    """

    def __init__(self, what: str, limit_s: float | None = None):
        self.what = what
        self.limit_s = limit_s
        # libraries that were loaded before count, too
        self.started = stopping.began[0] if stopping.began else time.perf_counter()
        self.asked = False
        self.clock: Any = None
        self.kept: Callable[[], T | None] = lambda: None

    def ask(self) -> None:
        """Ask the work to end."""
        self.asked = True
        if self.clock is not None:
            self.clock.stop()

    @property
    def late(self) -> bool:
        """Whether the time limit has passed."""
        limit = self.limit_s
        return limit is not None and time.perf_counter() - self.started >= limit

    def run(self, work: Callable[[], T], finish: Callable[[T], None]) -> None:
        """Do the work, then ``finish`` with its answer.

        Raises what the work raises, ``NoLayoutInTime`` where it had to be left without an answer. A signal
        that comes while ``finish`` runs lets it go on as long as :data:`rackfit.stopping.ENDS_WITHIN_S` allows.
        """
        main = threading.current_thread() is threading.main_thread()
        if main:
            stopping.listen(self.ask)
        try:
            finish(self._answer(work))
        finally:
            if main:
                stopping.forget(self.ask)

    def _answer(self, work: Callable[[], T]) -> T:
        outcome: list[T] = []
        failure: list[BaseException] = []

        def run() -> None:
            try:
                outcome.append(work())
            except BaseException as error:  # handed on below
                failure.append(error)

        # messages name what whoever asks calls an option
        context = copy_context()
        thread = threading.Thread(target=context.run, args=(run,), name="rackfit-work", daemon=True)
        if not self.late:  # as libraries may have taken all the time there was
            thread.start()
        since: float | None = None
        while thread.is_alive():
            thread.join(_LOOK_S)
            if since is None and (self.asked or self.late):
                since = time.perf_counter()
            if since is not None:
                self.ask_again()
                if time.perf_counter() - since > GRACE_S:
                    _break_off(thread)
                    break
        if failure and not isinstance(failure[0], _Left):
            raise failure[0]
        answer = outcome[0] if outcome else self.kept()
        if answer is None:
            why = "stopped" if self.asked else "the time limit came"
            raise NoLayoutInTime(f"{why} before {self.what}")
        return answer

    def ask_again(self) -> None:
        """Ask the clock, which may have been made only after the signal came."""
        if self.clock is not None:
            self.clock.stop()
