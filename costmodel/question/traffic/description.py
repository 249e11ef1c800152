"""Traffic that is described, not recorded: an arrival process and length distributions, drawn from a seed."""

from __future__ import annotations

from statistics import NormalDist
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from costmodel.question.spread import MAX_TOKENS
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Workload

Array = NDArray[np.float64]
Positive = Annotated[float, Field(ge=1, le=MAX_TOKENS)]
#: requests/s at least: of fewer the times of a replay have no fractions of seconds left
LEAST_RATE = 1e-6


class Arrivals(BaseModel):
    """When requests come. ``gamma``: gaps with the coefficient of variation ``cv`` (1 is Poisson)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    process: Literal["poisson", "gamma", "constant"] = "poisson"
    #: requests per second
    rate: Annotated[float, Field(ge=LEAST_RATE, lt=1e9)]
    cv: Annotated[float, Field(ge=0.01, le=100)] = 1.0

    def gaps_s(self, count: int, rng: np.random.Generator) -> Array:
        """Seconds between requests ``[count]``."""
        if self.process == "constant":
            return np.full(count, 1.0 / self.rate)
        if self.process == "poisson":
            return rng.exponential(1.0 / self.rate, count)
        shape = self.cv**-2
        return rng.gamma(shape, 1.0 / (self.rate * shape), count)


class Lengths(BaseModel):
    """How many tokens: a number, a lognormal by ``mean`` and ``std``, or quantiles.

    Between quantiles, and beyond the outer ones, the logarithm of the length is a straight line over the
    normal score of the share.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    fixed: Positive | None = None
    mean: Positive | None = None
    std: Annotated[float, Field(ge=0, le=MAX_TOKENS)] | None = None
    p10: Positive | None = None
    p25: Positive | None = None
    p50: Positive | None = None
    p75: Positive | None = None
    p90: Positive | None = None
    p95: Positive | None = None
    p99: Positive | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Lengths:
        quantiles = [value for _, value in self.quantiles()]
        ways = (self.fixed is not None, self.mean is not None, bool(quantiles))
        if sum(ways) != 1:
            raise ValueError(
                "say the length one way: fixed, mean (and std), or two or more quantiles"
            )
        if self.std is not None and self.mean is None:
            raise ValueError("std needs mean")
        if len(quantiles) == 1:
            raise ValueError("one quantile is no distribution: give two or more, or fixed")
        if quantiles != sorted(quantiles):
            raise ValueError("quantiles must not fall")
        return self

    def quantiles(self) -> list[tuple[float, float]]:
        """Shares and lengths that are given."""
        names = ("p10", "p25", "p50", "p75", "p90", "p95", "p99")
        found = [(int(name[1:]) / 100, getattr(self, name)) for name in names]
        return [(share, value) for share, value in found if value is not None]

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Lengths ``[count]``, whole and at least 1."""
        if self.fixed is not None:
            drawn = np.full(count, self.fixed)
        elif self.mean is not None:
            ratio = (self.std or 0.0) / self.mean
            sigma = np.sqrt(np.log1p(ratio**2))
            drawn = self.mean * np.exp(rng.normal(-(sigma**2) / 2, sigma, count))
        else:
            shares, values = zip(*self.quantiles(), strict=True)
            scores = np.array([NormalDist().inv_cdf(share) for share in shares])
            logs = np.log(np.array(values))
            score = rng.normal(0.0, 1.0, count)
            place = np.clip(np.searchsorted(scores, score) - 1, 0, len(scores) - 2)
            slope = (logs[place + 1] - logs[place]) / (scores[place + 1] - scores[place])
            drawn = np.exp(logs[place] + slope * (score - scores[place]))
        return np.asarray(np.clip(np.rint(drawn), 1, MAX_TOKENS), dtype=np.int64)


class BothLengths(BaseModel):
    """Prompt and answer, drawn apart from each other."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: Lengths
    output: Lengths


class Description(BaseModel):
    """Arrivals and lengths."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    arrivals: Arrivals
    lengths: BothLengths

    def draw(self, count: int, seed: int) -> Requests:
        """So many requests; the same seed gives the same requests."""
        rng = np.random.default_rng(seed)
        return Requests(
            np.cumsum(self.arrivals.gaps_s(count, rng)),
            self.lengths.input.draw(count, rng),
            self.lengths.output.draw(count, rng),
            np.zeros(count, dtype=np.int64),
        )


def steady(workload: Workload, arrivals: Arrivals, count: int, seed: int) -> Requests:
    """Requests of a workload's own lengths."""
    rng = np.random.default_rng(seed)
    return Requests(
        np.cumsum(arrivals.gaps_s(count, rng)),
        np.full(count, workload.input_tokens, dtype=np.int64),
        np.full(count, workload.output_tokens, dtype=np.int64),
        np.full(count, workload.cached_tokens, dtype=np.int64),
    )
