"""Processes that answer requests, so that one that fails, hangs or grows touches no other."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rackfit.serve import worker
from rackfit.serve.offered import Question

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


#: hears ``elapsed_s``, ``incumbent``, ``bound`` and ``gap`` of a search
Told = Callable[[dict[str, Any]], None]


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

    async def ask(self, question: Question, told: Told | None = None) -> dict[str, Any]:
        """The answer of :func:`rackfit.serve.worker.answer`. Raises :class:`Busy`.

        ``told`` hears each state of a search before the answer.
        """
        if self._waiting >= self.waiting_at_most:
            raise Busy
        self._waiting += 1
        try:
            async with self._free:
                return await self._answered(question, told)
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

    async def _answered(self, question: Question, told: Told | None) -> dict[str, Any]:
        process, self._spare = self._spare, None
        if process is None or process.returncode is not None:
            process = await self._started()
        following = asyncio.create_task(self.warm())
        try:
            with tempfile.TemporaryDirectory(prefix="rackfit-request-") as folder:
                task = {
                    "folder": folder, "command": question.command, "words": question.words(self.time_limit_s),
                    "files": question.written(), "progress": told is not None,
                }  # fmt: skip
                line = json.dumps(task).encode() + b"\n"
                answered = _conversation(process, line, told)
                found = await asyncio.wait_for(answered, self.time_limit_s + GRACE_S)
        except TimeoutError:
            return _failed("time_limit", f"took longer than {self.time_limit_s:g} s")
        finally:
            await _end(process)
            await following
        if found is None:
            return _failed("too_large", "needs more memory than a request has here")
        return found

    async def _started(self) -> asyncio.subprocess.Process:
        surroundings = {key: value for key, value in os.environ.items() if key in _KEPT}
        return await asyncio.create_subprocess_exec(
            sys.executable, "-B", "-m", worker.__name__, str(self.memory_bytes),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, env=surroundings, start_new_session=True,
            limit=_MOST_ANSWER_BYTES,
        )  # fmt: skip


async def _conversation(
    process: asyncio.subprocess.Process, line: bytes, told: Told | None
) -> dict[str, Any] | None:
    """What a process answers to a line; ``None`` where it ended without, or with too long an answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(ConnectionError):  # it ended before it had read everything
        process.stdin.write(line)
        await process.stdin.drain()
    while True:
        try:
            said = await process.stdout.readline()
        except ValueError:
            return None
        if not said.endswith(b"\n"):
            return None
        found: dict[str, Any] = json.loads(said)
        if "progress" not in found:
            return found
        if told is not None:
            told(found["progress"])


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def _failed(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "problems": [{"place": "request", "message": message}]}}
