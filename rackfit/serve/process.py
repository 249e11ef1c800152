"""A process that answers requests one after the other: its start, what it is told and says, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rackfit.serve import worker

#: the longest answer that is passed on
_MOST_ANSWER_BYTES = 256 * 2**20
#: seconds that a process has to leave a request that nobody waits for, and to say that it can take another
LEAVES_S, _SAYS_S = 2.0, 30.0
#: what a process may know of the server's surroundings
_KEPT = (
    "PATH",
    "PYTHONPATH",
    "LANG",
    "LC_ALL",
    "OMP_NUM_THREADS",
    "HOME",
    "XDG_CACHE_HOME",
    "VIRTUAL_ENV",
)

#: hears a line on the way to the answer: a first sight, a state of the search, or what is proven so far
Told = Callable[[bytes], None]


@dataclass
class Process:
    """Answers lines, each with lines of which the last is a document or an error."""

    inside: asyncio.subprocess.Process
    folder: tempfile.TemporaryDirectory[str]
    #: requests that it was given
    served: int = 0
    _answered: bool = field(default=True, init=False)

    @classmethod
    async def started(cls, memory_bytes: int) -> Process:
        """A process with so much memory that loads what it needs and waits."""
        surroundings = {key: value for key, value in os.environ.items() if key in _KEPT}
        folder = tempfile.TemporaryDirectory(prefix="rackfit-request-")
        inside = await asyncio.create_subprocess_exec(
            sys.executable, "-B", "-m", worker.__name__, str(memory_bytes), folder.name,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, env=surroundings, start_new_session=True,
            limit=_MOST_ANSWER_BYTES,
        )  # fmt: skip
        return cls(inside, folder)

    @property
    def ended(self) -> bool:
        """Whether it is known to have ended."""
        return self.inside.returncode is not None

    async def answer(self, task: dict[str, Any], told: Told | None) -> bytes | None:
        """The last line of its answer; ``None`` where it ended without, or with too long a line."""
        assert self.inside.stdin is not None
        self.served += 1
        self._answered = False
        with contextlib.suppress(ConnectionError):  # it ended before it had read everything
            self.inside.stdin.write(json.dumps(task).encode() + b"\n")
            await self.inside.stdin.drain()
        return await self._last(told)

    async def waits_again(self) -> bool:
        """Whether it is fit for another request; one that nobody waits for is left first."""
        try:
            if not self._answered:
                with contextlib.suppress(ProcessLookupError):
                    self.inside.send_signal(signal.SIGINT)
                await asyncio.wait_for(self._last(None), LEAVES_S)
            return await asyncio.wait_for(self._line(), _SAYS_S) == worker.READY
        except TimeoutError:
            return False

    async def end(self) -> None:
        """End it, whatever it does."""
        assert self.inside.stdout is not None
        if self.inside.stdout.at_eof():
            # it ends by itself: a signal would ask for its status, and take it from the watcher that waits for it
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.inside.wait(), LEAVES_S)
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):
                self.inside.kill()
        await self.inside.wait()
        self.folder.cleanup()

    async def _last(self, told: Told | None) -> bytes | None:
        while (line := await self._line()) is not None:
            if line.startswith(worker.LAST):
                self._answered = True
                return line
            if told is not None:
                told(line)
        return None

    async def _line(self) -> bytes | None:
        assert self.inside.stdout is not None
        try:
            line = await self.inside.stdout.readline()
        except ValueError:
            return None
        return line if line.endswith(b"\n") else None
