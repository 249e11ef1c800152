"""Speculative decoding with the model's own multi-token-prediction (MTP) modules, or with a draft model.

A decode pass verifies ``k`` drafted tokens beside the last one of every sequence and emits the drafts
up to the first that is wrong, and one more. Then what drafts runs again, ``k`` times (one layer of a module or of an EAGLE
head, all layers of a draft model). So a pass costs the FLOPs of ``1 + k`` tokens per sequence, reads the cache once,
reaches more experts, and gives ``emitted`` tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from math import sqrt
from operator import mul
from typing import Annotated

import numpy as np
from pydantic import (
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from costmodel.passes.operations import Draft
from costmodel.passes.tokens import Array, Tokens
from topology.names import Line
from topology.quantity import Given

#: drafts of one pass at most
MOST_DRAFTS = 16

Chance = Annotated[float, Field(ge=0, le=1)]
Curve = Annotated[tuple[Chance, ...], Field(min_length=1, max_length=MOST_DRAFTS)]


def _one_or_each(value: object) -> str:
    return "<each>" if isinstance(value, list | tuple) else "<one>"


class Speculative(Given):
    """Drafted tokens per pass, and the probability that a draft is right if those before it were.

    ``acceptance`` is one number for all drafts, or one for each of them in order (in text joined by commas), for as
    many drafts as are made or more. ``draft`` names what drafts (see :mod:`costmodel.models.drafts`); without it the
    model's own modules do.
    """

    draft_tokens: Annotated[int, Field(ge=1, le=MOST_DRAFTS)] = 1
    acceptance: Annotated[
        Annotated[Chance, Tag("<one>")] | Annotated[Curve, Tag("<each>")],
        Discriminator(_one_or_each),
    ]
    draft: Line | None = None

    @field_validator("acceptance", mode="before")
    @classmethod
    def _listed_in_text(cls, value: object) -> object:
        if isinstance(value, str):
            parts = value.split(",")
            return parts[0] if len(parts) == 1 else tuple(parts)
        return value

    @model_validator(mode="after")
    def _every_draft_has_one(self) -> Speculative:
        known = self.acceptance if isinstance(self.acceptance, tuple) else None
        if known is not None and len(known) < self.draft_tokens:
            raise ValueError(
                f"acceptance: {len(known)} probabilities for {self.draft_tokens} draft_tokens; give one for each, "
                "or one number for all"
            )
        return self

    def drafting(self, draft_tokens: int) -> Speculative | None:
        """The same with so many drafts, ``None`` with none. Raises ``ValueError`` for more than have an acceptance."""
        if not draft_tokens:
            return None
        return type(self)(draft_tokens=draft_tokens, acceptance=self.acceptance, draft=self.draft)

    @property
    def accepted(self) -> tuple[float, ...]:
        """Probability of each draft that it is right if those before it were."""
        if isinstance(self.acceptance, tuple):
            return self.acceptance[: self.draft_tokens]
        return (self.acceptance,) * self.draft_tokens

    @property
    def emitted(self) -> float:
        """Tokens that a sequence gains per pass on average.

        *Formula:* ``1 + a_1 + a_1 a_2 + ... + a_1 .. a_k``: draft ``i`` is emitted if it and all before it are right.
        *Source:* Leviathan et al. (2023), equation 1, is this for equal ``a_i``; the mean of a count is the sum of the
        chances that it is ``i`` or more.
        """
        return 1.0 + float(sum(accumulate(self.accepted, mul)))

    @property
    def spread(self) -> float:
        """Standard deviation of the tokens that a sequence gains in one pass.

        *Formula:* with ``p_i`` the chance that ``i`` drafts or more are right, their number has the second moment
        ``sum (2 i - 1) p_i``.
        """
        chances = list(accumulate(self.accepted, mul))
        second = sum((2 * place + 1) * chance for place, chance in enumerate(chances))
        return sqrt(max(0.0, second - sum(chances) ** 2))

    @property
    def accepted_words(self) -> str:
        """The probabilities as text, one number where they are equal."""
        known = self.accepted if isinstance(self.acceptance, tuple) else (self.acceptance,)
        return ", ".join(f"{chance:g}" for chance in known)


def draft_runs(draft: Draft, tokens: Tokens) -> Iterator[tuple[Array, Tokens]]:
    """Runs of what drafts beside one pass: how often (0 where nothing decodes), and over what.

    The first run reads what the pass read, verified or prompt tokens, whose cache entries it
    needs; each further run drafts one token of every decoding sequence from the draft before it.
    """
    decodes = (np.asarray(tokens.decode, dtype=float) > 0).astype(float)
    yield np.ones_like(decodes), tokens
    for _ in range(draft.tokens - 1):
        yield decodes, Tokens(decode=tokens.decode, context=tokens.context, fill=tokens.fill)
