"""What is asked of a deployment: request lengths, arrival rate, expert load, latency targets."""

from __future__ import annotations

from math import ceil
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from costmodel.question.spread import MAX_TOKENS, Spread
from topology.names import Line, Name, Prose
from topology.quantity import Given, PositiveSeconds

Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
PromptOrder = Literal["first-come", "shortest"]

_YEAR_S = 366 * 86_400.0


class Workload(Given):
    """Requests of one kind.

    ``input_tokens`` counts the whole prompt, ``cached_tokens`` of them have their KV already in
    HBM (a prefix cache hit), ``output_tokens`` are generated. With ``hold_s`` the cached tokens are not
    simply there: a share ``return_rate`` of the requests continues a conversation whose first
    ``cached_tokens`` were computed ``hold_s`` earlier, the others bring a prompt that is all new; whether
    and where that KV waits is then part of the layout. ``prompts_together`` requests start at the same
    time, as those of a load generator do whose requests are all equally long; a worker that also decodes
    then prefills their prompts in one pass. ``images`` and ``audio_frames`` pass the model's encoders before
    prefill; the tokens they become are counted in ``input_tokens``. ``expert_load`` is ``"skewed"`` (a
    generator matched to published skew, an assumption), ``"uniform"``, or a file of recorded counts.
    """

    name: Name = "custom"
    description: Prose = ""
    input_tokens: Tokens
    output_tokens: Tokens
    cached_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS)] = 0
    #: seconds that KV waits for its conversation to go on (at most a year)
    hold_s: PositiveSeconds | None = None
    #: share of requests that go on after that
    return_rate: Annotated[float, Field(gt=0, le=1)] | None = None
    #: images of a request, on average, and the patches that the model's encoder computes of each
    images: Annotated[float, Field(ge=0, le=10_000)] = 0.0
    image_patches: Annotated[int, Field(ge=1, le=1_000_000)] = 4096
    #: frames of sound that the model's audio encoder computes for a request
    audio_frames: Annotated[int, Field(ge=0, le=MAX_TOKENS)] = 0
    prompts_together: Annotated[int, Field(ge=1, le=65_536)] = 1
    expert_load: Line = "skewed"
    expert_load_seed: Annotated[int, Field(ge=0)] = 0
    #: what passes meet where lengths differ; ``input_tokens`` and ``output_tokens`` are then the rounded means
    spread: Spread | None = None

    @model_validator(mode="after")
    def _cached_is_part_of_input(self) -> Workload:
        if self.cached_tokens >= self.input_tokens:
            raise ValueError(
                f"cached_tokens {self.cached_tokens} must be fewer than input_tokens {self.input_tokens}: "
                "the last prompt token is always computed"
            )
        if self.hold_s is None and self.return_rate is not None:
            raise ValueError("return_rate says how many of the held come back: give hold_s too")
        if self.hold_s is not None and (self.return_rate is None or not self.cached_tokens):
            raise ValueError(
                f"hold_s {self.hold_s:g} needs return_rate (the share of requests that go on, above 0 up "
                "to 1) and cached_tokens (how many of their tokens were computed before)"
            )
        if self.hold_s is not None and self.hold_s > _YEAR_S:
            raise ValueError(f"hold_s {self.hold_s:g} s is more than a year, {_YEAR_S:g} s")
        return self

    def first_time(self) -> Workload:
        """Requests of this kind whose prompt is all new."""
        return self.model_copy(update={"cached_tokens": 0, "hold_s": None, "return_rate": None})

    def returning(self) -> Workload:
        """Requests of this kind that find the KV of their cached tokens."""
        return self.model_copy(update={"hold_s": None, "return_rate": None})

    @property
    def new_tokens(self) -> float:
        """Prompt tokens that prefill must compute."""
        if self.spread is not None:
            return self.spread.new_tokens
        return self.input_tokens - self.cached_tokens

    @property
    def prompt_start(self) -> float:
        """Tokens before the first that prefill computes."""
        return float(self.cached_tokens) if self.spread is None else self.spread.prompt_start

    @property
    def prompt_end(self) -> float:
        """Where the prompt of an average prompt token ends."""
        return float(self.input_tokens) if self.spread is None else self.spread.prompt_end

    @property
    def decode_steps(self) -> float:
        """Decode steps of a request: its first token comes from prefill. One at least is charged."""
        return max(self.output_tokens - 1, 1) if self.spread is None else self.spread.steps

    @property
    def decode_context(self) -> float:
        """Average context of a decoding sequence, tokens (ages spread evenly over the answer)."""
        if self.spread is not None:
            return self.spread.context
        return self.input_tokens + self.output_tokens / 2

    @property
    def final_context(self) -> int:
        """Context at the last token: the KV reserved for a sequence, so that none is ever evicted."""
        if self.spread is not None:
            return ceil(self.spread.kept)
        return self.input_tokens + self.output_tokens

    @property
    def longest_words(self) -> str:
        """Why the longest request may be too long; "than .." goes on."""
        if self.spread is None:
            return f"{self.input_tokens} input + {self.output_tokens} output tokens are more"
        return f"the longest request has {self.spread.longest} tokens with its answer, more"

    @property
    def longest(self) -> int:
        """Tokens of the longest request with its answer."""
        return self.final_context if self.spread is None else self.spread.longest


class Slo(BaseModel):
    """Latency targets; ``None`` is no target.

    ``ttft``: seconds to the first token, for a request that just missed a pass (the worst case).
    ``tpot``: seconds per further output token. ``of_replays``: whether these are 99th percentiles that replays met, which no
    steady state tells: :func:`costmodel.evaluate.evaluate` does not hold a layout to them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    ttft: PositiveSeconds | None = None
    tpot: PositiveSeconds | None = None
    of_replays: bool = False


class Prices(Given):
    """Money beside the chips' own rental price."""

    #: multiplies each chip's price (2.0 = twice the catalogue's)
    chip_price_factor: Annotated[float, Field(ge=1e-9, le=1000)] = 1.0
    #: watts drawn per watt of chip: host, network and cooling
    power_overhead: Annotated[float, Field(ge=1, le=5)] = 1.3


class Limits(Given):
    """What an engine needs beside weights and KV, and where the search stops."""

    #: largest number of prompt tokens one attention rank computes in one pass
    prefill_chunk_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 8192
    #: which waiting prompt is computed next: the one that came first, or the shortest, where the router holds them back
    prompt_order: PromptOrder = "first-come"
    #: largest number of pipeline stages considered
    max_pipeline_stages: Annotated[int, Field(ge=1, le=64)] = 8
    #: largest number of domains one replica may span; by default 8, or more where its weights need more
    max_domains_per_replica: Annotated[int, Field(ge=1, le=64)] | None = None
    #: whether mixed replicas in pipeline stages are searched
    mixed_stages: bool = True
    #: sequences one attention rank may hold
    max_sequences_per_rank: Annotated[int, Field(ge=1, le=65_536)] = 4096

    def at_most(self, sequences: int) -> Limits:
        """The same with so many sequences on a rank at most."""
        own = min(self.max_sequences_per_rank, sequences)
        return self.model_copy(update={"max_sequences_per_rank": own})

    def prompts_in_pass(self, workload: Workload) -> int:
        """Prompts of one rank that a prefill pass takes: whole ones within its tokens, or one in even chunks.

        Prompts of unlike lengths fill its tokens: as many count as have them on average, rounded up.
        """
        if workload.spread is not None:
            return max(1, ceil(self.prefill_chunk_tokens / workload.new_tokens))
        return max(1, int(self.prefill_chunk_tokens // workload.new_tokens))
