"""Files of load tests: one measured run each, with how the server was started and what its requests met.

JSON with ``runs``; times in ms, rates per second. Keys beyond those read here are allowed, as every
source has its own.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from costmodel.question.spread import MAX_TOKENS
from topology.catalogue import problems_of, read_data
from topology.errors import InstanceError, Problem

Count = Annotated[int, Field(ge=1, le=1_000_000)]
Tokens = Annotated[int, Field(ge=0, le=MAX_TOKENS)]
Rate = Annotated[float, Field(ge=1e-6, lt=1e9)]
Milliseconds = Annotated[float, Field(ge=0, lt=1e12)]

#: seconds of a stage where the file does not say
STAGE_S = 600.0


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class ServerArguments(_Part):
    """What the server was started with, as far as known."""

    max_num_batched_tokens: Count | None = None
    #: when prompts are computed, if not whenever there is room: "prefill scheduled every 8 steps, long-prefill threshold 512"
    max_num_batched_tokens_note: str | None = None
    max_num_seqs: Count | None = None
    prefix_caching: bool | None = None


class Lengths(_Part):
    """A load generator's prompts: a system prompt shared by a group, a question, a forced answer."""

    system_prompt_tokens: Tokens = 0
    question_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)]
    output_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)]


class Percentiles(_Part):
    """Measured times, ms."""

    mean: Milliseconds | None = None
    p50: Milliseconds | None = None
    p90: Milliseconds | None = None
    p99: Milliseconds | None = None


class Recorded(_Part):
    """Requests one by one, in the order of their arrival."""

    t_s: Annotated[list[Annotated[float, Field(ge=0, lt=1e10)]], Field(min_length=1)]
    input_tokens: list[Annotated[int, Field(ge=1, le=MAX_TOKENS)]]
    output_tokens: list[Annotated[int, Field(ge=1, le=MAX_TOKENS)]]

    @model_validator(mode="after")
    def _one_of_each(self) -> Recorded:
        counts = (len(self.t_s), len(self.input_tokens), len(self.output_tokens))
        if len(set(counts)) > 1:
            raise ValueError(
                "t_s, input_tokens and output_tokens: {}, {} and {} requests".format(*counts)
            )
        if any(after < before for before, after in pairwise(self.t_s)):
            raise ValueError("t_s: sort the requests by time")
        return self


class MeanLength(_Part):
    """Mean tokens."""

    mean: Annotated[float, Field(ge=1, le=MAX_TOKENS)] | None = None


class Throughput(_Part):
    """Measured tokens per second; the total counts prompts, cached tokens of them too."""

    output_tokens_per_s: float | None = None
    total_tokens_per_s: float | None = None


class LoadRun(_Part):
    """One run. ``stage`` -1 pools several stages, run one after another at ``stage_rates``."""

    id: str
    hf_model_id: str
    chip: str
    gpus: Count
    tp: Count = 1
    dp: Count = 1
    engine: str
    engine_version: str = ""
    dtype: str = ""
    exp_id: int | None = None
    parallelism: Any = None
    server_args: ServerArguments = ServerArguments()
    loop: Literal["open", "closed"]
    profile: Lengths | None = None
    requests: Recorded | None = None
    #: in words; a closed loop of conversations may say that its gaps are capped
    arrivals: str = ""
    stage: int = 0
    requested_rate: Rate | None = None
    achieved_rate: Rate | None = None
    stage_rates: list[Rate] | None = None
    duration_s: Annotated[float, Field(ge=1e-3, lt=1e8)] | None = None
    concurrency: Count | None = None
    n_requests: Count | None = None
    prompt_len: MeanLength = MeanLength()
    output_len: MeanLength = MeanLength()
    speculative: str | None = None
    prefix_hit_rate_measured: float | None = None
    ttft_ms: Percentiles = Percentiles()
    e2e_ms: Percentiles = Percentiles()
    #: per token, also where a pass emits several
    itl_ms_as_reported: Percentiles = Percentiles()
    throughput: Throughput = Throughput()
    tpot_ms_corrected_mean: Milliseconds | None = None
    overloaded: bool | None = None

    @property
    def pooled(self) -> bool:
        """Whether the figures are those of all stages together."""
        return self.stage == -1

    @property
    def converses(self) -> bool:
        """Whether requests of a closed loop are turns of conversations, whose prompts share their beginnings."""
        return self.loop == "closed" and self.server_args.prefix_caching is not False

    @property
    def mean_lengths(self) -> tuple[float, float] | None:
        """Mean tokens of a prompt and of an answer: as they are given, or tokens/s over requests/s; ``None``: unknown."""
        given, asked = self.prompt_len.mean, self.output_len.mean
        total, own = self.throughput.total_tokens_per_s, self.throughput.output_tokens_per_s
        if self.achieved_rate and total and own and total > own:
            given = given or (total - own) / self.achieved_rate
            asked = asked or own / self.achieved_rate
        return None if given is None or asked is None else (max(1.0, given), max(1.0, asked))

    @property
    def longest_pause_s(self) -> float:
        """Seconds at which the load generator capped the pauses of conversations."""
        found = re.search(r"gaps capped at (\d{1,6}(?:\.\d{1,3})?) s\b", self.arrivals)
        return float("inf") if found is None else float(found[1])

    @property
    def attention_dp(self) -> int:
        """Attention ranks over which the chips of ``tp`` are shared."""
        return self._stated("attention_dp") or 1

    @property
    def data_parallel(self) -> int:
        """Ranks of ``tp`` chips each."""
        return self.dp if self.dp > 1 else self._stated("dp") or 1

    def _stated(self, key: str) -> int | None:
        found = self.parallelism.get(key) if isinstance(self.parallelism, dict) else None
        return found if isinstance(found, int) and found > 0 else None


def read_load_runs(path: Path) -> list[LoadRun]:
    """The runs of a file. Raises ``InstanceError`` with every problem."""
    data = read_data(path)
    runs = data.get("runs") if isinstance(data, dict) else None
    if not isinstance(runs, list) or not runs:
        raise InstanceError(
            Problem(
                str(path), "expected an object with a list `runs`, one object for each load test"
            )
        )
    found, problems = [], []
    for index, run in enumerate(runs):
        try:
            found.append(LoadRun.model_validate(run))
        except ValidationError as error:
            problems += problems_of(error, f"{path}: runs[{index}]")
    if problems:
        raise InstanceError(problems[:20])
    return found
