"""Progress of a search on a terminal: elapsed time, incumbent, bound and gap. Quiet in a pipe."""

from __future__ import annotations

from collections.abc import Callable
from shutil import get_terminal_size
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from rackfit.wording import amount, at_least, at_most
from solver.answer import Progress

if TYPE_CHECKING:
    from rackfit.documents.result import Result

#: who is told of each state besides a terminal: a process that answers for another
listeners: list[Callable[[Progress], None]] = []
#: who is told of the answer before what stands beside it is looked for
answer_listeners: list[Callable[[Result], None]] = []


def answered(result: Result) -> None:
    """Tell of an answer and its proof."""
    for listener in answer_listeners:
        listener(result)


class ProgressPrinter:
    """A callable that rewrites one line of ``stream``, if that is a terminal."""

    def __init__(self, stream: TextIO):
        self.stream = stream
        self.active = stream.isatty()
        self._width = 0

    def __enter__(self) -> ProgressPrinter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.active and self._width:
            self.stream.write("\r" + " " * self._width + "\r")
            self.stream.flush()

    def __call__(self, progress: Progress) -> None:
        """Show one state of the search."""
        for listener in listeners:
            listener(progress)
        if not self.active:
            return
        # a line that the terminal breaks is not rewritten as a whole
        line = describe(progress)[: get_terminal_size().columns - 1]
        self.stream.write("\r" + line.ljust(self._width))
        self.stream.flush()
        self._width = max(self._width, len(line))


def describe(progress: Progress) -> str:
    """One line: time, incumbent, bound, gap, and what was done."""

    best = "-" if progress.incumbent is None else f"${amount(progress.incumbent)}/M"
    bound = "-" if progress.bound is None else f"${at_least(progress.bound)}/M"
    gap = "-" if progress.gap is None else at_most(progress.gap)
    return f"{progress.elapsed_s:6.1f} s  best {best}  bound {bound}  gap {gap}  {progress.doing}"
