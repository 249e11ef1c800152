"""Processes that answer requests, so that one that fails, hangs or grows touches no other."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from dataclasses import dataclass, field
from typing import Any

from rackfit.serve import worker
from rackfit.serve.asked import Question

#: seconds that a process has to end by itself after its time
GRACE_S = 5.0
#: the longest answer that is passed on
_MOST_ANSWER_BYTES = 256 * 2**20
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


class Busy(Exception):
    """More requests wait than the server keeps."""


@dataclass
class Processes:
    """Answers requests, ``at_once`` of them; each has ``time_limit_s`` and ``memory_bytes``."""

    at_once: int
    time_limit_s: float
    memory_bytes: int
    waiting_at_most: int = 64
    _spare: asyncio.subprocess.Process | None = None
    _waiting: int = 0
    _free: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._free = asyncio.Semaphore(self.at_once)

    async def ask(self, question: Question) -> dict[str, Any]:
        """The answer of :func:`rackfit.serve.worker.answer`. Raises :class:`Busy`."""
        if self._waiting >= self.waiting_at_most:
            raise Busy
        self._waiting += 1
        try:
            async with self._free:
                return await self._answered(question)
        finally:
            self._waiting -= 1

    async def warm(self) -> None:
        """Start a process that waits for the next request with everything loaded."""
        if self._spare is None or self._spare.returncode is not None:
            self._spare = await self._started()

    async def close(self) -> None:
        """End the process that waits."""
        if self._spare is not None:
            await _end(self._spare)

    async def _answered(self, question: Question) -> dict[str, Any]:
        process, self._spare = self._spare, None
        if process is None or process.returncode is not None:
            process = await self._started()
        following = asyncio.create_task(self.warm())
        try:
            with tempfile.TemporaryDirectory(prefix="rackfit-request-") as folder:
                told = {
                    "folder": folder, "command": question.command, "words": question.words(self.time_limit_s),
                    "files": question.written(),
                }  # fmt: skip
                line = json.dumps(told).encode() + b"\n"
                out, _ = await asyncio.wait_for(
                    process.communicate(line), self.time_limit_s + GRACE_S
                )
        except TimeoutError:
            return _failed("time_limit", f"took longer than {self.time_limit_s:g} s")
        finally:
            await _end(process)
            await following
        if not out or len(out) > _MOST_ANSWER_BYTES:
            return _failed("too_large", "needs more memory than a request has here")
        found: dict[str, Any] = json.loads(out)
        return found

    async def _started(self) -> asyncio.subprocess.Process:
        surroundings = {key: value for key, value in os.environ.items() if key in _KEPT}
        return await asyncio.create_subprocess_exec(
            sys.executable, "-B", "-m", worker.__name__, str(self.memory_bytes),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, env=surroundings, start_new_session=True,
        )  # fmt: skip


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def _failed(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "problems": [{"place": "request", "message": message}]}}
