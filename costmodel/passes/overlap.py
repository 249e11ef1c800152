r"""Two-batch overlap: each half of a pass computes while the other half's experts are exchanged.

*Formula:* of one half, let ``a`` be the seconds of attention and all that is not the experts', ``m`` those
of the experts (router, shared and routed), ``d`` of dispatch and ``b`` of combine. The halves take turns,
so that an exchange hides behind what the other half computes meanwhile, and behind nothing else:
``max(a, d) + max(m, d) + max(m, b) + max(a, b)``: dispatch of the first half beside attention of the second, of
the second beside the experts of the first, combine of the first beside the experts of the second, of the
second beside attention of the first in the next layer. Two halves read the weights twice and pay every
kernel twice, so that small batches lose. *Source:* DeepSeek-V3 report, sections 3.2.1 and 3.4 (dual
micro-batches); SGLang's two-batch overlap, whose combine "appears 2x slower than DeepSeek's due to shorter
attention computation, causing communication kernels to busy-wait" (LMSYS, 96 x H100, 2025).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from costmodel.passes.tokens import Array

#: parts of a pass that another half can hide
EXCHANGE = ("dispatch", "combine")
#: parts that are computed between a half's dispatch and its combine
_EXPERTS = ("router", "shared_experts", "routed_experts")


def split_parts(parts: Mapping[str, Array | float]) -> tuple[Array, Array, Array, Array]:
    """Seconds of a half: attention and all else, experts, dispatch, combine."""
    dispatch, combine = (np.asarray(parts.get(part, 0.0)) for part in EXCHANGE)
    experts = np.asarray(
        sum((parts[part] for part in _EXPERTS if part in parts), start=np.zeros(()))
    )
    rest = [own for part, own in parts.items() if part not in (*EXCHANGE, *_EXPERTS)]
    return np.asarray(sum(rest, start=np.zeros(()))), experts, dispatch, combine


def both_halves(half_s: Array, parts: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
    """Seconds of a pass and its parts from those of one half; of the exchange what stays exposed.

    Stage by stage where given arrays.
    """
    _, experts, dispatch, combine = split_parts(parts)
    attention = half_s - dispatch - combine - experts
    total = sum(
        np.maximum(computed, sent)
        for computed in (attention, experts)
        for sent in (dispatch, combine)
    )
    sent = 2.0 * (dispatch + combine)
    exposed = (total - 2.0 * (attention + experts)) / np.where(sent > 0, sent, 1.0)
    shares = {part: 2.0 * (exposed if part in EXCHANGE else np.ones(())) for part in parts}
    return np.asarray(total), {
        part: np.asarray(shares[part] * spent) for part, spent in parts.items()
    }
