"""A request that takes too long or too much ends alone."""

from __future__ import annotations

import asyncio

import pytest

from rackfit.serve import processes as module
from rackfit.serve.asked import Solve
from rackfit.serve.processes import Busy, Processes

QUESTION = Solve.model_validate(
    {"scenario": {"model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": "chat"}, "gap": 0.5}
)


async def asked(processes: Processes) -> str:
    try:
        return str((await processes.ask(QUESTION))["error"]["kind"])
    finally:
        await processes.close()


def test_a_request_that_outlives_its_time_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE_S", 0.0)
    assert asyncio.run(asked(Processes(1, 1e-3, 8 * 10**9))) == "time_limit"


def test_a_request_that_grows_is_ended() -> None:
    """An address space smaller than Python's own: the first thing that is needed is refused."""
    assert asyncio.run(asked(Processes(1, 300.0, 10**8))) == "too_large"


def test_no_more_wait_than_told() -> None:
    with pytest.raises(Busy):
        asyncio.run(asked(Processes(1, 1.0, 10**9, waiting_at_most=0)))
