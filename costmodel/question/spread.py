r"""Requests of unlike lengths as a steady state meets them: the means that enter passes, KV and prefill work.

Every part of a pass that is linear in tokens and in contexts depends on few means over requests of ``I`` new
and ``O`` output tokens (``C`` cached): a decode pass holds a request as often as it has steps, so that its mean
context weighs requests by their steps; an average prompt token lies in a prompt weighted by its length::

    context = sum O (I + C + O / 2) / sum O        kept = sum O (I + C + O) / sum O
    prompt_end = sum I (I + C) / sum I
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from costmodel.question.traffic.requests import Requests

#: longest sequence accepted; anything above is taken for a typing mistake
MAX_TOKENS = 100_000_000

Mean = Annotated[float, Field(gt=0, le=MAX_TOKENS)]


class Spread(BaseModel):
    """Means over requests of unlike lengths (see the module).

    ``new_tokens``: prompt tokens to compute. ``prompt_start``, ``prompt_end``: tokens before an average prompt
    and where the prompt of an average prompt token ends. ``steps``: decode passes. ``context``: of a decoding
    sequence. ``kept``: tokens of KV that a running sequence keeps for its whole answer. ``longest``: tokens of
    the longest request with its answer. ``in_turns``: whether a mixed replica may compute prompts for as long as it likes and
    then decode for as long: no prompt comes between two tokens, and prompts fill their passes, which no order beats.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    new_tokens: Mean
    prompt_start: Annotated[float, Field(ge=0, le=MAX_TOKENS)] = 0.0
    prompt_end: Mean
    steps: Mean
    context: Mean
    kept: Mean
    longest: Annotated[int, Field(ge=1, le=2 * MAX_TOKENS)]
    in_turns: bool = False


def spread_of(requests: Requests, exempt: float = 0.0, *, in_turns: bool = False) -> Spread | None:
    """The means of some requests; ``None`` where all have the same lengths, nothing is exempt and nothing takes turns.

    ``exempt``: share of the requests whose decoding is left out, those that leave least to do: their steps, and
    the contexts and KV of their steps, are each taken off at most, and an answer of one token has no step. A step has what
    is left of these over all steps, so that no requests without such a share have fewer steps, shorter contexts or less KV.
    """
    given, asked = (
        np.asarray(v, dtype=float) for v in (requests.input_tokens, requests.output_tokens)
    )
    cached = np.asarray(requests.cached_tokens, dtype=float)
    alike = all(len(np.unique(lengths)) == 1 for lengths in (given, asked, cached))
    if alike and not exempt and not in_turns:
        return None
    new, steps = given - cached, np.maximum(asked - 1.0, 0.0 if exempt else 1.0)
    work = [most_left(values, exempt) for values in (
        steps, steps * (given + asked / 2), steps * (given + asked)
    )]  # fmt: skip
    every = float(steps.mean())
    return Spread(
        new_tokens=float(new.mean()),
        prompt_start=float((new * cached).sum() / new.sum()),
        prompt_end=float((new * given).sum() / new.sum()),
        steps=work[0],
        context=work[1] / every,
        kept=work[2] / every,
        longest=requests.longest,
        in_turns=in_turns,
    )


def any_left(requests: Requests, exempt: float) -> bool:
    """Whether requests have a second token of an answer, whichever share ``exempt`` of them is left out."""
    return most_left(np.asarray(requests.output_tokens, dtype=float) - 1.0, exempt) > 0


def most_left(values: NDArray[np.float64], exempt: float) -> float:
    """Mean over all of what is left without the largest of a share of them."""
    kept = len(values) - int(exempt * len(values))
    return float(np.partition(values, kept - 1)[:kept].sum() / len(values))
