"""Parts of a profile beside what one chip achieves: first tokens, a server's host, and how far the fit was off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from topology.quantity import Seconds

Positive = Annotated[float, Field(gt=0)]

#: how requests come to prefill
Regime = Literal["equal", "drawn", "disaggregated"]


class FirstToken(BaseModel):
    """How an engine's mean TTFT follows from prefill times under load.

    *Formula:* ``base_s + (1 + (prefill_factor - 1) * busy * others) * prefill + queue_share * others * (users *
    prefill_per_prompt + passes * layers * prefill_layer_s) + decode_passes * others * decode_pass``: what every request pays (front end,
    scheduling); its own prefill, longer the more of the time (``busy``) its worker prefills for others; a share of everybody
    else's with what the host adds to each layer of their passes; and the decode passes that it waits for. ``others`` is (users - 1) /
    users of a worker: who is alone waits for nobody.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_s: Seconds = 0.0
    prefill_factor: Annotated[float, Field(ge=1)] = 1.0
    queue_share: Annotated[float, Field(ge=0)] = 0.0
    decode_passes: Annotated[float, Field(ge=0)] = 0.0
    prefill_layer_s: Seconds = 0.0


class HostTime(BaseModel):
    """Seconds of an engine's server before a request joins its queue: ``request_s + prompt_token_s * prompt tokens``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    request_s: Seconds = 0.0
    prompt_token_s: Seconds = 0.0

    def of(self, prompt_tokens: float) -> float:
        """Seconds of a prompt."""
        return self.request_s + self.prompt_token_s * prompt_tokens


def first_token_of(constants: Mapping[str, FirstToken], engine: str, regime: Regime) -> FirstToken:
    """Constants of a regime under an engine, else of the regime, else physics.

    ``regime``: how requests come to prefill: ``disaggregated`` to a pool of its own, ``equal``: all of one length at once, ``drawn``: one by one.
    """
    return constants.get(f"{engine} {regime}", constants.get(regime, FirstToken()))


class HeldOut(BaseModel):
    """How far predictions were off whose model, system or engine the fit had never seen.

    ``levels`` are probabilities, the other lists quantiles at them. ``tpot`` and ``ttft``: measured over predicted (``ttft`` of
    lightly loaded workers, where no queue of a burst hides the figure). ``layout_ratio``: of two layouts of one model on one kind
    of chip under one engine and load, the measured ratio of TPOT over the predicted one, either layout first; what both get wrong
    alike is not in it, so that it is narrower than ``tpot``. ``unlike``: measured over predicted times of chips that no fit saw. An
    empty list is not known.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    levels: tuple[Annotated[float, Field(gt=0, lt=1)], ...]
    tpot: tuple[Positive, ...]
    ttft: tuple[Positive, ...] = ()
    layout_ratio: tuple[Positive, ...] = ()
    #: by chip that no fit saw, the median of its runs
    unlike: dict[str, Positive] = Field(default_factory=dict)
    #: predictions and pairs of layouts that the quantiles are of
    predictions: int = 0
    ttft_predictions: int = 0
    layout_pairs: int = 0

    @model_validator(mode="after")
    def _rises(self) -> HeldOut:
        for name in ("levels", "tpot", "ttft", "layout_ratio"):
            values = getattr(self, name)
            if name != "levels" and values and len(values) != len(self.levels):
                raise ValueError(f"{name}: {len(values)} quantiles, levels has {len(self.levels)}")
            if any(a > b for a, b in pairwise(values)):
                raise ValueError(f"{name}: must not fall from one level to the next")
        if len(self.levels) < 2:
            raise ValueError("levels: at least two are needed")
        return self

    @property
    def most_confidence(self) -> float:
        """The widest interval that the quantiles allow."""
        return 1.0 - 2.0 * max(self.levels[0], 1.0 - self.levels[-1])

    def factors(
        self, figure: Literal["tpot", "ttft"], confidence: float, shifts: Sequence[float] = ()
    ) -> tuple[float, float]:
        """What a predicted figure is multiplied by for the ends of its interval: at most 1 and at least 1.

        ``shifts``: logarithms of what times may be longer by beside that, each as likely (:meth:`Profile.shifts`). A profile that
        is off to one side is not corrected here. Raises ``ValueError`` beyond the quantiles' reach.
        """
        values = np.log(getattr(self, figure))
        levels, ends = np.array(self.levels), self._ends(confidence)
        if len(shifts):
            least, most = min(0.0, *shifts), max(0.0, *shifts)
            grid = np.linspace(values[0] + least, values[-1] + most, 512)
            # distribution of the mixture
            below = np.mean(
                [np.interp(grid - one, values, levels, left=0.0, right=1.0) for one in shifts],
                axis=0,
            )
            low, high = np.interp(ends, below, grid)
        else:
            low, high = np.interp(ends, levels, values)
        return min(1.0, float(np.exp(low))), max(1.0, float(np.exp(high)))

    def ratio_noise(self, confidence: float) -> float:
        """By how much the predicted ratio of two layouts' costs may be off, as a share of it."""
        return max(1.0, self._at(self.layout_ratio, self._ends(confidence)[1])) - 1.0

    def turned(self, excess: float) -> float:
        """Share of pairs whose ratio was off by more than ``excess`` in favour of the second layout.

        At most the level beyond the last quantile is known: a larger excess gives that.
        """
        below = float(np.interp(np.log1p(excess), np.log(self.layout_ratio), self.levels))
        return 1.0 - below

    def _ends(self, confidence: float) -> tuple[float, float]:
        if not 0 < confidence <= self.most_confidence + 1e-9:
            raise ValueError(
                f"confidence: must be above 0 and at most {self.most_confidence:g}, got {confidence:g}"
            )
        return (1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0

    def _at(self, values: tuple[float, ...], level: float) -> float:
        """A quantile, between those given on the scale of logarithms."""
        return _quantile(self.levels, values, level)


@lru_cache(maxsize=256)
def _quantile(levels: tuple[float, ...], values: tuple[float, ...], level: float) -> float:
    return float(np.exp(np.interp(level, levels, np.log(values))))
