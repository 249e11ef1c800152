"""How long prompts of measured runs wait by their engine's settings, and behind how many passes of others.

Three settings hold a prompt back while its worker decodes. Where a recipe states one, the wait follows from it;
nothing here is fitted:

*Looks.* SGLang looks for new requests once in ``recv_interval`` decode passes: half of them on average.

*Gathering.* TensorRT-LLM may wait up to ``batch_wait_iters`` passes after the first prompt until prompts fill a
share of a pass. Who comes first waits for the whole window ``w``, the ``a w`` that follow at ``a`` prompts per pass
for half of it: ``w (1 + a w / 2) / (1 + a w)`` passes on average.

*Ranks.* With attention ranks it may wait up to ``rank_timeout_iters`` passes until every rank has a prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.runs import COUNTS_ALL_RANKS, Run

Array = NDArray[np.float64]
#: prompt tokens of a prefill pass where no recipe says (the usual setting)
PASS_TOKENS = 16384.0
#: steps in which the wait for the last rank is summed
_STEPS = 240


def held_passes(run: Run) -> float:
    """Decode passes that a prompt of a worker that also decodes is held back on average."""
    row, settings = run.row, run.row.decode.settings
    if row.prefill is not None:
        return 0.0
    arriving = row.concurrency / row.decode.workers / run.instance.workload.decode_steps
    gathering = settings.gathers_passes
    if gathering and settings.gathers_tokens is not None:
        more = max(0.0, settings.gathers_tokens / row.input_tokens - 1.0)
        gathering = min(gathering, more / arriving)
    ranks = _until_all(row.decode.attention_dp, arriving, settings.ranks_passes)
    return settings.looks_every / 2.0 + _gathered(gathering, arriving) + ranks


def _gathered(window: float, arriving: float) -> float:
    """Mean wait of those who come in a window that the first of them opens."""
    return window * (1.0 + arriving * window / 2.0) / (1.0 + arriving * window)


def _until_all(ranks: int, arriving: float, most: float) -> float:
    """Mean wait from one's own coming until all ranks have a prompt, at most ``most`` passes after the first.

    Prompts come to each of ``d`` ranks as a Poisson process of rate ``r``. At ``t`` a rank has one with ``p = 1 - e^-rt``.
    Some are still without with ``1 - p^(d-1)``; ``1 + r t`` wait then at the first's rank and
    ``(d - 1) r t (1 - p^(d-2)) / (1 - p^(d-1))`` at others. Waits are summed over ``t`` and divided by those who come.
    """
    if ranks == 1 or most == 0:
        return 0.0
    passes = np.linspace(0.0, most, _STEPS + 1)
    due = arriving / ranks * passes
    there = -np.expm1(-due)
    open_still = 1.0 - there ** (ranks - 1)
    waiting = open_still * (1.0 + due) + (ranks - 1) * due * (1.0 - there ** (ranks - 2))
    step = most / _STEPS
    return _area(waiting, step) / (1.0 + arriving * _area(open_still, step))


def _area(values: Array, step: float) -> float:
    return float(values[:-1].sum() + values[1:].sum()) * step / 2.0


def passes_ahead(runs: Sequence[Run], prompts: Array) -> Array:
    """Prefill passes that the prompts of all users take at their worker; none in a pool of its own, which is always full.

    ``prompts``: at work together in one prefill, one an attention rank.
    """
    users = np.array([run.row.concurrency / run.row.decode.workers for run in runs]) / prompts
    together = np.array([_prompts_of_a_pass(run) for run in runs])
    mixed = np.array([run.row.prefill is None for run in runs])
    return np.asarray(mixed * users / np.minimum(together, np.maximum(users, 1.0)))


def _prompts_of_a_pass(run: Run) -> float:
    """Whole prompts of one attention rank that a prefill pass takes."""
    group = run.row.decode
    tokens = group.settings.chunk_tokens or PASS_TOKENS
    if run.row.engine in COUNTS_ALL_RANKS:
        tokens /= group.attention_dp
    return float(max(1.0, tokens // run.row.input_tokens))
