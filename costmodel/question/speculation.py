"""Speculative decoding with the model's own multi-token-prediction (MTP) modules.

A decode pass verifies ``k`` drafted tokens beside the last one of every sequence and emits the drafts
up to the first that is wrong, and one more. Then the module drafts again, ``k`` runs of one layer. So a
pass costs the FLOPs of ``1 + k`` tokens per sequence, reads the cache once, reaches more experts, and
gives ``emitted`` tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from costmodel.passes.operations import Draft
from costmodel.passes.tokens import Array, Tokens


class Speculative(BaseModel):
    """Drafted tokens per pass, and the probability that a draft is right if those before it were."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    draft_tokens: Annotated[int, Field(ge=1, le=16)] = 1
    acceptance: Annotated[float, Field(ge=0, le=1)]

    @property
    def emitted(self) -> float:
        """Tokens that a sequence gains per pass on average.

        *Formula:* ``1 + a + ... + a^k``. *Source:* Leviathan et al. (2023), equation 1.
        """
        return float(sum(self.acceptance**place for place in range(self.draft_tokens + 1)))


def draft_runs(draft: Draft, tokens: Tokens) -> Iterator[tuple[Array, Tokens]]:
    """Runs of the module beside one pass: how often (0 where nothing decodes), and over what.

    The first run reads what the pass read, verified or prompt tokens, whose cache entries the module
    needs; each further run drafts one token of every decoding sequence from the draft before it.
    """
    decodes = (np.asarray(tokens.decode, dtype=float) > 0).astype(float)
    yield np.ones_like(decodes), tokens
    for _ in range(draft.tokens - 1):
        yield decodes, Tokens(decode=tokens.decode, context=tokens.context, fill=tokens.fill)
