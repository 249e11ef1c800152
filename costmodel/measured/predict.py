"""What a profile says of measured runs: the batch that decodes, TPOT and TTFT.

*Batch.* An aggregated worker decodes its whole concurrency (as far as HBM holds it). With a prefill
pool, closed-loop users are split by Little's law: ``X`` requests per second, at most what the prefill
pool does, keep ``X output TPOT`` of them decoding.

*Waves.* Requests of one fixed length that start together stay together: they are prefilled one after
the other and then decode side by side, so that a decoding request sees on average half of the others'
prefill, and waits half of it for its first token. Random lengths drift apart: decoding then shares the
worker with a steady stream of prefill (the mixed replica), and queueing is that of the utilisation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.runs import Run, RunTable, run_table
from costmodel.measured.terms import Constants, constants_of
from costmodel.profile import Profile

Array = NDArray[np.float64]
#: constants of each pass from the number of its run ``[passes]``
Pricing = Callable[[NDArray[np.intp]], Constants]

#: share of the users of drifting requests who still sit in the starting burst's queue (assumed: a
#: run sends about ten requests per user, the first of which start together)
BURST_SHARE = 0.1
_ROUNDS = 6


@dataclass(frozen=True)
class Prediction:
    """Seconds per run ``[runs]``, and the sequences that decode per worker."""

    tpot_s: Array
    ttft_s: Array
    batch: Array


def profile_pricing(runs: Sequence[Run], profile: Profile) -> Pricing:
    """Pricing under a profile: each run by its chip and engine."""
    engines = {run.row.engine: profile.of_engine(run.row.engine) for run in runs}
    found = [engines[run.row.engine].for_chip(run.chip) for run in runs]
    return lambda owner: constants_of([found[i] for i in owner])


def owners(table: RunTable) -> NDArray[np.intp]:
    """The run of every pass."""
    owner = np.zeros(table.terms.num_passes, dtype=np.intp)
    owner[table.decode] = np.arange(len(table.decode))
    owner[table.prefill] = np.arange(len(table.decode))
    return owner


def stated_batches(runs: Sequence[Run]) -> Array:
    """Concurrency per decode worker, as far as HBM holds it."""
    return np.array([max(1.0, min(r.row.concurrency / r.row.decode.workers, r.most)) for r in runs])


def wave_shares(runs: Sequence[Run]) -> Array:
    """Share of the others' prefill that decoding sees: a half in waves of equal requests, else all."""
    return np.array([0.5 if run.row.fixed_lengths else 1.0 for run in runs])


def decode_batches(runs: Sequence[Run], pricing: Pricing) -> Array:
    """Sequences that decode in each decode worker."""
    batches = stated_batches(runs)
    apart = [i for i, run in enumerate(runs) if run.row.prefill is not None]
    if not apart:
        return batches
    some = [runs[i] for i in apart]
    users = np.array([run.row.concurrency for run in some])
    workers = np.array([float(run.row.decode.workers) for run in some])
    servers = np.array([float(run.row.prefill.workers) for run in some if run.row.prefill])
    steps = np.array([float(run.instance.workload.decode_steps) for run in some])
    most = np.array([run.most for run in some])
    batch = batches[apart]
    for _ in range(_ROUNDS):
        table = run_table(some, batch)
        owner = owners(table)
        index = np.asarray(apart, dtype=np.intp)
        seconds = table.terms.seconds(pricing(index[owner]))
        decode_s = steps * table.tpot_s(seconds)
        prefill_s = table.prefill_s(seconds)
        rate = np.minimum(users / (decode_s + prefill_s), servers * table.prompts / prefill_s)
        wanted = np.clip(rate * decode_s / workers, 1.0, np.minimum(most, users / workers))
        batch = np.sqrt(batch * np.maximum(wanted, 1e-9))
    batches[apart] = batch
    return batches


def predict(runs: Sequence[Run], pricing: Pricing) -> Prediction:
    """TPOT and TTFT of runs."""
    batches = decode_batches(runs, pricing)
    table = run_table(runs, batches)
    seconds = table.terms.seconds(pricing(owners(table)))
    return predict_table(runs, table, seconds, batches)


def predict_table(
    runs: Sequence[Run], table: RunTable, seconds: Array, batches: Array
) -> Prediction:
    """TPOT and TTFT from priced passes."""
    shared = replace(table, events=table.events * wave_shares(runs))
    tpot = shared.tpot_s(seconds)
    return Prediction(tpot, _ttft_s(runs, table, seconds, tpot, batches), batches)


def _ttft_s(
    runs: Sequence[Run], table: RunTable, seconds: Array, tpot: Array, batches: Array
) -> Array:
    users = np.array([run.row.concurrency for run in runs])
    workers = np.array([float(run.row.decode.workers) for run in runs])
    steps = np.array([float(run.instance.workload.decode_steps) for run in runs])
    apart = np.array([run.row.prefill is not None for run in runs])
    servers = np.array([float(run.row.prefill.workers) if run.row.prefill else 1.0 for run in runs])
    waves = np.array([run.row.fixed_lengths for run in runs])
    one = table.prefill_s(seconds)
    each = one / table.prompts
    step = seconds[table.decode]
    # waiting behind a burst of all users, in full or what is left of the first
    others = np.maximum(users / np.where(apart, servers, workers) - table.prompts, 0.0)
    burst = np.where(waves, 1.0, BURST_SHARE) * others / 2 * each
    load = np.minimum(
        batches / (tpot * steps) * np.where(apart, workers / servers, 1.0) * each, 0.95
    )
    queue = np.where(waves, 0.0, load / (1.0 - load) * one / 2)
    # users who find no room wait until those before them are done
    held = np.maximum(users / workers - batches, 0.0) / np.maximum(batches, 1.0) * tpot * steps
    return np.asarray(one + step / 2 + burst + queue + held)
