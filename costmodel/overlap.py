"""Two-batch overlap: each half of a pass computes while the other half's experts are exchanged.

*Formula:* with ``c`` and ``x`` the seconds of computing and exchanging one half, the pass takes
``max(2 c, 2 x)``. Two halves read the weights twice and pay every kernel twice, so that small batches
lose. *Source:* DeepSeek-V3 report, sections 3.2.1 and 3.4 (dual micro-batches); SGLang's two-batch overlap.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from costmodel.tokens import Array, Tokens

#: parts of a pass that another half can hide
EXCHANGE = ("dispatch", "combine")


def half(tokens: Tokens) -> Tokens:
    """Half the sequences and prompts of a pass, at the same lengths."""
    return replace(
        tokens,
        decode=np.asarray(tokens.decode, dtype=float) / 2,
        prefill=np.asarray(tokens.prefill, dtype=float) / 2,
        prompts=np.asarray(tokens.prompts, dtype=float) / 2,
    )


def both_halves(half_s: Array, parts: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
    """Seconds of a pass and its parts from those of one half; of the exchange what stays exposed.

    Stage by stage where given arrays.
    """
    exchange_s = 2.0 * sum((parts[part] for part in EXCHANGE if part in parts), start=np.zeros(()))
    compute_s = 2.0 * half_s - exchange_s
    hidden = np.minimum(compute_s, exchange_s)
    exposed = 1.0 - hidden / np.where(exchange_s > 0, exchange_s, 1.0)
    shares = {part: 2.0 * (exposed if part in EXCHANGE else np.ones(())) for part in parts}
    total = np.asarray(np.maximum(compute_s, exchange_s))
    return total, {part: np.asarray(shares[part] * spent) for part, spent in parts.items()}
