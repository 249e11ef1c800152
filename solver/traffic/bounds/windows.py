r"""How much less than a steady question at mean contexts requests of unlike lengths read and keep.

Layers with a window, a local window or a bounded number of entries read ``f(context)`` entries, and ``f`` is concave:
``E f(context) <= f(E context)``. A question at the mean context overstates what these layers do, at most by the
least ratio of the two over all layers, for reading in decode, attending in prefill, and keeping KV. Time and bytes
of a layout are then no less than that ratio of the priced ones, so it serves at most so many times more.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from costmodel.passes.context import mean_attended
from costmodel.question.instance import Instance
from costmodel.question.spread import most_left
from costmodel.question.traffic.requests import Requests

Array = NDArray[np.float64]


def least_share(instance: Instance, requests: Requests, exempt: float) -> float:
    """Cost of requests over that of ``instance``, the question at their means, at least; 1 without such layers.

    ``exempt``: share of the requests whose decoding the means leave out.
    """
    spread = instance.workload.spread
    capped = {
        attention
        for kind in instance.operations.kinds
        for attention in kind.attentions
        if attention.window or attention.read_top_k or attention.local_window
    }
    if spread is None or not capped:
        return 1.0
    given, asked, cached = (
        np.asarray(own, dtype=float)
        for own in (requests.input_tokens, requests.output_tokens, requests.cached_tokens)
    )
    new, steps = given - cached, np.maximum(asked - 1.0, 0.0 if exempt else 1.0)
    time, kept, every = 1.0, 1.0, float(steps.mean())
    for attention in capped:
        ends = _each(attention.read_tokens, given) + _each(attention.read_tokens, given + asked)
        read = most_left(steps * ends / 2, exempt) / every
        time = min(time, read / attention.read_tokens(spread.context))
        attended = [mean_attended(attention, *pair) for pair in zip(cached, given, strict=True)]
        priced = mean_attended(attention, spread.prompt_start, spread.prompt_end)
        time = min(time, float((new * attended).sum() / new.sum()) / priced)
        held = most_left(steps * _each(attention.stored_tokens, given + asked), exempt)
        most = attention.stored_tokens(spread.kept)
        kept = min(kept, held / every / most) if most > 0 else kept
    return time * kept


def _each(entries: Callable[[float], float], contexts: Array) -> Array:
    """Entries at each context."""
    unlike, places = np.unique(contexts, return_inverse=True)
    return np.array([entries(float(one)) for one in unlike])[places]
