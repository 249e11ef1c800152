"""Loads on a whole engine on one chip, with random weights, beside a replay that has seen none of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from pydantic import BaseModel, ConfigDict

from costmodel.measured.load.predict import Replayed, predict_load
from costmodel.measured.load.runs import read_load_runs
from rackfit.wording import counted
from topology.catalogue import data_dir, read_data

_FILE = data_dir("measured") / "engine_h200_load.json"


class Server(BaseModel):
    """What else the file says of a run: processes of the API, and tokens of a request that were sent together."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model: str
    api_servers: int
    tokens_sent_together: float = 1.0


@dataclass(frozen=True)
class Loaded:
    """One run with its replay."""

    server: Server
    replayed: Replayed

    @property
    def what(self) -> str:
        """The load in words."""
        run = self.replayed.run
        given, asked = run.prompt_len.mean, run.output_len.mean
        if run.profile is not None:
            given = run.profile.system_prompt_tokens + run.profile.question_tokens
            asked = run.profile.output_tokens
        users, rate = run.concurrency, run.requested_rate
        load = counted(users, "user") if users else f"{rate:g} requests/s"
        return f"{load}, {given:,.0f} + {asked:,.0f} tokens"

    @property
    def ttft_ms(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """First tokens, measured and replayed: the median and the 99th percentile, ms."""
        measured, met = self.replayed.run.ttft_ms, self.replayed.met.ttft_s
        assert measured.p50 is not None
        assert measured.p99 is not None
        return (measured.p50, 1e3 * met.p50), (measured.p99, 1e3 * met.p99)

    @property
    def tpot_ms(self) -> tuple[float, float] | None:
        """A further token, measured and replayed, ms; ``None`` where answers have one token."""
        measured = self.replayed.run.tpot_ms_corrected_mean
        return None if measured is None else (measured, 1e3 * self.replayed.met.tpot_s.mean)


@cache
def loaded() -> tuple[Loaded, ...]:
    """Every run of the shipped file under the profile ``calibrated``."""
    servers = [Server.model_validate(run) for run in read_data(_FILE)["runs"]]
    runs = read_load_runs(_FILE)
    return tuple(
        Loaded(server, predict_load(run, "calibrated"))
        for server, run in zip(servers, runs, strict=True)
    )
