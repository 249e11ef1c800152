"""Processes that answer requests: one that takes too long or too much ends alone, one that is well answers the next."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rackfit.serve import processes as module
from rackfit.serve.asked import Solve
from rackfit.serve.process import Process
from rackfit.serve.processes import Busy, Processes
from rackfit.serve.worker import answer
from solver import search

MEMORY = 8 * 10**9


def question(tpot_s: float = 0.05, **more: Any) -> Solve:
    scenario = {
        "model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": "chat", "slo": {"tpot": tpot_s}, **more,
    }  # fmt: skip
    return Solve.model_validate({"scenario": scenario, "gap": 0.5})


def with_processes(
    work: Callable[[Processes], Awaitable[Any]], limit_s: float = 300.0, memory: int = MEMORY
) -> Any:
    """What work makes of processes of its own."""

    async def run() -> Any:
        processes = Processes(1, limit_s, memory)
        try:
            return await work(processes)
        finally:
            await processes.close()

    return asyncio.run(run())


def kind(said: bytes) -> str:
    found: dict[str, Any] = json.loads(said)
    return str(found["error"]["kind"]) if "error" in found else "document"


def served(processes: Processes) -> list[int]:
    """Requests that each process which waits has served."""
    return [process.served for process in processes._warm]


async def asked(processes: Processes) -> str:
    return kind(await processes.ask(question()))


def test_a_request_that_outlives_its_time_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE_S", 0.0)
    assert with_processes(asked, 1e-3) == "time_limit"


def test_a_request_that_grows_is_ended() -> None:
    """An address space smaller than Python's own: the first thing that is needed is refused."""
    assert with_processes(asked, memory=10**8) == "too_large"


def test_no_more_wait_than_told() -> None:
    with pytest.raises(Busy):
        asyncio.run(Processes(1, 1.0, 10**9, waiting_at_most=0).ask(question()))


def test_one_process_answers_plain_questions_as_a_fresh_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after one that nothing fits, one that is wrong, and one that was left; nothing brought is left behind."""

    monkeypatch.setattr("rackfit.serve.process.LEAVES_S", 300.0)

    async def work(processes: Processes) -> tuple[list[bytes], list[str], list[str], list[int]]:
        said = [await processes.ask(question())]
        (first,) = processes._warm
        left = asyncio.create_task(processes.ask(question(0.04)))
        await asyncio.sleep(0.05)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        for asked in (question(1e-5), question(model="no-such"), question(0.03), question()):
            said.append(await processes.ask(asked))
        assert processes._warm == [first]
        brought = [path.read_text() for path in Path(first.folder.name).iterdir()]
        return said, [kind(one) for one in said], brought, served(processes)

    said, kinds, brought, count = with_processes(work)
    assert kinds == ["document", "infeasible", "bad_input", "document", "document"]
    assert brought == [""]
    assert count == [6]
    monkeypatch.chdir(tmp_path)
    for own, asked in zip(
        (said[0], said[3], said[4]), (question(), question(0.03), question()), strict=True
    ):
        for name, content in asked.written().items():
            Path(name).write_text(content)
        search._kept.clear()
        fresh = answer([asked.command, *asked.words(300.0)])
        found, expected = json.loads(own)["document"], json.loads(fresh)["document"]
        del found["solve"], expected["solve"]  # the clock
        assert found == expected


def test_what_brings_a_file_has_a_process_of_its_own() -> None:
    async def work(processes: Processes) -> tuple[list[int], Any]:
        brings = Solve.model_validate(question().model_dump() | {"files": {"a.csv": "x"}})
        await processes.ask(brings)
        nobody = served(processes)
        await processes.ask(question())
        await processes.ask(brings)
        return nobody, served(processes)

    assert with_processes(work) == ([], [1])


def test_who_comes_after_a_failure_has_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that ends in the middle of its second request, or says that memory is short, was not fit for it."""

    async def work(processes: Processes) -> list[str]:
        found = []
        well = Process.answer
        for said in (
            None,
            b'{"error": {"kind": "too_large"}}\n',
            b'{"error": {"kind": "internal"}}\n',
        ):
            await processes.ask(question())
            (used,) = processes._warm

            async def fails(
                self: Process, *given: Any, used: Process = used, said: Any = said
            ) -> Any:
                return said if self is used else await well(self, *given)

            # the one whose answer is made up never says that it is ready
            with monkeypatch.context() as patched:
                patched.setattr("rackfit.serve.process._SAYS_S", 0.1)
                patched.setattr(Process, "answer", fails)
                found.append(kind(await processes.ask(question())))
            assert used.ended
        return found

    assert with_processes(work) == ["document"] * 3


def test_one_that_ends_by_itself_is_not_sent_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its status may be asked for twice, of which Python warns on the server's terminal."""

    async def run() -> list[str]:
        process = await Process.started(MEMORY)
        assert process.inside.stdin is not None
        process.inside.stdin.close()
        while await process._line() is not None:
            pass
        sent: list[str] = []
        monkeypatch.setattr(process.inside, "kill", lambda: sent.append("kill"))
        await process.end()
        assert process.ended
        return sent

    assert asyncio.run(run()) == []
