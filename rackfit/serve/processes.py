"""Processes that answer requests, so that one that fails, hangs or grows touches no other.

A question that brings a file, a document or a command has a process of its own. One of names of the catalogue and
numbers alone goes to a process that has answered such questions before, where one waits: it is quick, as what was
worked out for the last is there. It ends as soon as it fails, grows, or has served :data:`_MOST_SERVED`.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

from rackfit.serve.offered import Question
from rackfit.serve.places import as_asked
from rackfit.serve.process import Process, Told

#: seconds that a process has to end by itself after its time
GRACE_S = 5.0
#: requests that one process answers at most
_MOST_SERVED = 500
#: answers after which a process is as it was before
_HARMLESS = (
    b'{"document"', b'{"error": {"kind": "infeasible"', b'{"error": {"kind": "bad_input"',
    b'{"error": {"kind": "no_layout_in_time"',
)  # fmt: skip
#: ends that what a process served before plays no part in
_ITS_OWN = (*_HARMLESS, b'{"error": {"kind": "time_limit"')


class Busy(Exception):
    """More requests wait than the server keeps."""


@dataclass
class Processes:
    """Answers requests, ``at_once`` of them; each has ``time_limit_s`` and ``memory_bytes``."""

    at_once: int
    time_limit_s: float
    memory_bytes: int
    waiting_at_most: int = 64
    _spare: Process | None = None
    _warm: list[Process] = field(default_factory=list)
    _waiting: int = 0
    _free: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._free = asyncio.Semaphore(self.at_once)

    async def ask(self, question: Question, told: Told | None = None) -> bytes:
        """The last line of :func:`rackfit.serve.worker.answer`. Raises :class:`Busy`.

        ``told`` hears every line before it.
        """
        if self._waiting >= self.waiting_at_most:
            raise Busy
        self._waiting += 1
        try:
            async with self._free:
                return as_asked(await self._answered(question, told), question)
        finally:
            self._waiting -= 1

    async def warm(self) -> None:
        """Start a process that waits for the next request with everything loaded."""
        if self._spare is None or self._spare.ended:
            self._spare = await Process.started(self.memory_bytes)

    async def close(self) -> None:
        """End the processes that wait."""
        for process in (*self._warm, self._spare):
            if process is not None:
                await process.end()

    async def _answered(self, question: Question, told: Told | None) -> bytes:
        process = await self._taken(question)
        before, following = process.served, asyncio.create_task(self.warm())
        found = None
        try:
            found = await self._within_limits(process, question, told)
        finally:
            harmless = found is None or found.startswith(_HARMLESS)
            more = question.plain and harmless and process.served < _MOST_SERVED
            if more and not process.ended and await process.waits_again():
                self._warm.append(process)
            else:
                await process.end()
            await following
        if before and not (found or b"").startswith(_ITS_OWN):
            # what others asked before may have taken the memory
            return await self._answered(question, told)
        return found or _failed("too_large", "needs more memory than a request has here")

    async def _taken(self, question: Question) -> Process:
        """A process for a question: for a plain one that which served last, else a fresh one."""
        while question.plain and self._warm:
            process = self._warm.pop()
            if not process.ended:
                return process
            await process.end()
        spare, self._spare = self._spare, None
        if spare is None or spare.ended:
            return await Process.started(self.memory_bytes)
        return spare

    async def _within_limits(
        self, process: Process, question: Question, told: Told | None
    ) -> bytes | None:
        task = {
            "command": question.command, "words": question.words(self.time_limit_s),
            "files": question.written(), "fields": question.fields(), "tell": told is not None,
        }  # fmt: skip
        try:
            return await asyncio.wait_for(process.answer(task, told), self.time_limit_s + GRACE_S)
        except TimeoutError:
            return _failed("time_limit", f"took longer than {self.time_limit_s:g} s")


def _failed(kind: str, message: str) -> bytes:
    problem = {"place": "request", "message": message}
    return json.dumps({"error": {"kind": kind, "problems": [problem]}}).encode() + b"\n"
