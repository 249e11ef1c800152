"""What a profile says of measured runs: the batch that decodes, TPOT and TTFT.

*Batch.* An aggregated worker decodes its whole concurrency (as far as HBM holds it). With a prefill
pool, closed-loop users are split by Little's law: ``X`` requests per second, at most what the prefill
pool does, keep ``X output TPOT`` of them decoding.

*Waves.* A decoding request shares its worker with a steady stream of the others' prefill (the mixed
replica): who finishes is replaced at once. An engine that prefills all that wait before it decodes keeps
requests of one length together instead: they come in waves, prefilled in a few passes of up to
:data:`WAVE_TOKENS`; who is prefilled early waits for the later passes, half of them on average.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.terms import Constants, constants_of
from costmodel.measured.runs import Run, RunTable, run_table
from costmodel.question.profile import FirstToken, Profile, load_profile

Array = NDArray[np.float64]
#: constants of each pass from the number of its run ``[passes]``
Pricing = Callable[[NDArray[np.intp]], Constants]

#: engines that prefill all waiting requests before they decode on
PREFILL_FIRST = ("sglang",)
#: prompt tokens of one of their prefill passes (the usual setting)
WAVE_TOKENS = 16384.0

_ROUNDS = 6


@dataclass(frozen=True)
class Prediction:
    """Seconds per run ``[runs]``, and the sequences that decode per worker.

    ``ttft_s`` is the mean under the row's load, ``steady_ttft_s`` that of evenly spaced arrivals.
    """

    tpot_s: Array
    ttft_s: Array
    batch: Array
    steady_ttft_s: Array


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


def wave_shares(runs: Sequence[Run], batches: Array) -> Array:
    """Share of the others' prefill that decoding sees: all, or that of waves; see the module."""
    shares = np.ones(len(runs))
    for i, (run, batch) in enumerate(zip(runs, batches, strict=True)):
        if run.row.fixed_lengths and run.row.engine in PREFILL_FIRST:
            passes = np.ceil(batch * run.row.input_tokens / WAVE_TOKENS)
            shares[i] = 0.5 * (1.0 - 1.0 / max(passes, 1.0))
    return shares


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


def predict(
    runs: Sequence[Run], pricing: Pricing, first_token: Mapping[str, FirstToken]
) -> Prediction:
    """TPOT and TTFT of runs; ``first_token`` as in a profile."""
    batches = decode_batches(runs, pricing)
    table = run_table(runs, batches)
    seconds = table.terms.seconds(pricing(owners(table)))
    load = prefill_load(runs, table, seconds)
    ttft = np.array([load.ttft_s(i, constants_of_run(r, first_token)) for i, r in enumerate(runs)])
    return Prediction(tpot_s(runs, table, seconds), ttft, batches, steady_ttft_s(runs, load))


def steady_ttft_s(runs: Sequence[Run], load: PrefillLoad) -> Array:
    """Mean TTFT of evenly spaced arrivals, as :func:`costmodel.replica.serving.serve` has it.

    A prompt waits for half a prefill and (where one worker does both) half a decode pass, then for its own.
    """
    mixed = np.array([run.row.prefill is None for run in runs])
    return np.asarray(load.own_s + (load.own_s + mixed * load.pass_s) / 2.0)


def constants_of_run(run: Run, first_token: Mapping[str, FirstToken]) -> FirstToken:
    """TTFT constants of a run's engine, else of the mode, else physics."""
    return first_token.get(run.row.engine, first_token.get(run.row.mode, FirstToken()))


def predict_under(runs: Sequence[Run], profile: Profile) -> Prediction:
    """TPOT and TTFT of runs under a profile."""
    return predict(runs, profile_pricing(runs, profile), profile.first_token)


def bound_s(runs: Sequence[Run]) -> Array:
    """Least TPOT that the hardware allows at the stated concurrency, whatever the order of prefill.

    Requests of one length may all start together, and then see half of the others' prefill.
    """
    pricing = profile_pricing(runs, load_profile("physics"))
    table = run_table(runs, decode_batches(runs, pricing))
    halves = np.array([0.5 if run.row.fixed_lengths else 1.0 for run in runs])
    half = replace(table, events=table.events * halves)
    return half.tpot_s(table.terms.seconds(pricing(owners(table))))


def tpot_s(runs: Sequence[Run], table: RunTable, seconds: Array) -> Array:
    """TPOT from priced passes."""
    return replace(table, events=table.events * wave_shares(runs, table.batches)).tpot_s(seconds)


@dataclass(frozen=True)
class PrefillLoad:
    """What TTFT is made of, per run: one's own prefill, everybody's who shares the worker, a decode pass."""

    own_s: Array
    users_s: Array
    pass_s: Array

    def ttft_s(self, index: int, constants: FirstToken) -> float:
        """Mean TTFT of one run."""
        return float(
            constants.base_s
            + constants.prefill_factor * self.own_s[index]
            + constants.queue_share * self.users_s[index]
            + constants.decode_passes * self.pass_s[index]
        )


def prefill_load(runs: Sequence[Run], table: RunTable, seconds: Array) -> PrefillLoad:
    """Seconds of prefill from priced passes."""
    servers = np.array([float((r.row.prefill or r.row.decode).workers) for r in runs])
    users = np.array([run.row.concurrency for run in runs])
    own = table.prefill_s(seconds)
    return PrefillLoad(own, users / servers * own / table.prompts, seconds[table.decode])
