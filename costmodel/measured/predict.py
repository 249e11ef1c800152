"""What a profile says of measured runs: the batch that decodes, TPOT and TTFT.

*Batch.* An aggregated worker decodes its whole concurrency (as far as HBM holds it). With a prefill
pool, closed-loop users are split by Little's law: ``X`` requests per second, at most what the prefill
pool does, keep ``X output TPOT`` of them decoding.

*Waves.* A decoding request shares its worker with a steady stream of the others' prefill (the mixed
replica): who finishes is replaced at once. An engine that prefills all that wait before it decodes keeps
requests of one length together instead: they come in waves, prefilled in a few passes of up to
:data:`PASS_TOKENS`; who is prefilled early waits for the later passes, half of them on average.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import erf

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.terms import Constants, constants_of
from costmodel.measured.rows import MeasuredRow
from costmodel.measured.runs import PREFILL_FIRST, Run, RunTable, full_pools, run_table
from costmodel.measured.waiting import PASS_TOKENS, held_passes, passes_ahead
from costmodel.question.profile import Efficiency, Profile, load_profile
from costmodel.question.profile_parts import FirstToken, Regime, first_token_of
from topology import load_chip

Array = NDArray[np.float64]
#: constants of each pass from the number of its run ``[passes]``
Pricing = Callable[[NDArray[np.intp]], Constants]

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
    """Pricing under a profile: each run by its chip and engine.

    Whether its expert layers are unfused a run's recipe says, not its chip: what they take is known by engine.
    """
    cells: dict[tuple[str, str], Efficiency] = {}
    for chip, engine in {(run.chip, run.priced_as) for run in runs}:
        own = profile.of_engine(engine)
        most = max(one.unfused_moe_overhead_s for one in (own.default, *own.chips.values()))
        found = own.for_chip(chip).model_copy(update={"unfused_moe_overhead_s": most})
        cells[chip, engine] = found.on(load_chip(chip))
    each = [cells[run.chip, run.priced_as] for run in runs]
    return launched(lambda owner: constants_of([each[i] for i in owner]), runs, profile.launches)


def launched(pricing: Pricing, runs: Sequence[Run], launches: Mapping[str, float]) -> Pricing:
    """Pricing whose passes last at least until the host has launched their kernels (seconds each, by release).

    One user's tokens are the one batch that every engine keeps as a graph, and a graph is launched at once.
    """
    each = np.array([launches.get(r.row.release, 0.0) * (r.row.concurrency > 1) for r in runs])
    return (lambda owner: replace(pricing(owner), launch_s=each[owner])) if each.any() else pricing


def owners(table: RunTable) -> NDArray[np.intp]:
    """The run of every pass."""
    owner = np.zeros(table.terms.num_passes, dtype=np.intp)
    owner[table.decode] = np.arange(len(table.decode))
    owner[table.prefill] = np.arange(len(table.decode))
    return owner


def stated_batches(runs: Sequence[Run]) -> Array:
    """Concurrency per decode worker, as far as HBM and its settings hold it."""
    users = np.array([run.row.concurrency / run.row.decode.workers for run in runs])
    return np.maximum(1.0, users - turned_away(runs))


def turned_away(runs: Sequence[Run]) -> Array:
    """Requests that wait at one decode worker for a place among those that decode together.

    Requests are dealt to workers whatever is free there, so that a worker has a Poisson number of them (less what
    the number of users fixes): waiting is the mean of a normal variable's excess over the places.
    """
    users = np.array([run.row.concurrency / run.row.decode.workers for run in runs])
    workers = np.array([float(run.row.decode.workers) for run in runs])
    places = np.array([run.most for run in runs])
    spread = np.sqrt(users * (1.0 - 1.0 / workers))
    excess = np.where(np.isfinite(places), users - places, -1e9)
    z = excess / np.maximum(spread, 1e-9)
    density = np.exp(-0.5 * np.clip(z, -40.0, 40.0) ** 2) / np.sqrt(2.0 * np.pi)
    below = 0.5 * (1.0 + np.vectorize(erf)(np.clip(z, -40.0, 40.0) / np.sqrt(2.0)))
    return np.where(spread > 0, excess * below + spread * density, np.maximum(0.0, excess))


def waved(runs: Sequence[Run]) -> NDArray[np.bool_]:
    """Runs whose requests come in waves; see the module."""
    return np.array(
        [
            r.row.fixed_lengths and r.row.engine in PREFILL_FIRST and not r.row.scattered
            for r in runs
        ]
    )


def scattered(runs: Sequence[Run], releases: Collection[str]) -> list[Run]:
    """The runs, those of these releases with requests that come one by one where they would come in waves."""
    return [
        run.with_row(replace(run.row, scattered=True))
        if wave and run.row.release in releases
        else run
        for run, wave in zip(runs, waved(runs), strict=True)
    ]


def wave_shares(runs: Sequence[Run], batches: Array) -> Array:
    """Share of the others' prefill that decoding sees: all, or that of waves; see the module."""
    tokens = np.array([run.row.input_tokens for run in runs])
    halves = 0.5 * (1.0 - 1.0 / np.maximum(np.ceil(batches * tokens / PASS_TOKENS), 1.0))
    return np.where(waved(runs), halves, 1.0)


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
    index = np.asarray(apart, dtype=np.intp)
    pools = full_pools(some)
    most_rate = servers * pools.prompts_per_s(pools.terms.seconds(pricing(index)))
    for _ in range(_ROUNDS):
        table = run_table(some, batch)
        owner = owners(table)
        seconds = table.terms.seconds(pricing(index[owner]))
        decode_s = steps * table.tpot_s(seconds)
        prefill_s = table.prefill_s(seconds)
        rate = np.minimum(users / (decode_s + prefill_s), most_rate)
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
    load = prefill_load(runs, table, seconds, pricing)
    ttft = load.ttft_s([constants_of_run(run, first_token) for run in runs])
    return Prediction(tpot_s(runs, table, seconds), ttft, batches, steady_ttft_s(runs, load))


def steady_ttft_s(runs: Sequence[Run], load: PrefillLoad) -> Array:
    """Mean TTFT of evenly spaced arrivals, as :func:`costmodel.replica.serving.serve` has it.

    A prompt waits for half a prefill and (where one worker does both) half a decode pass, then for its own.
    """
    mixed = np.array([run.row.prefill is None for run in runs])
    return np.asarray(load.own_s + (load.own_s + mixed * load.pass_s) / 2.0)


def regime_of(row: MeasuredRow) -> Regime:
    """How requests come to prefill: a pool of its own, all of one length at once, or drawn one by one."""
    if row.prefill is not None:
        return "disaggregated"
    return "equal" if row.fixed_lengths and not row.scattered else "drawn"


def constants_of_run(run: Run, first_token: Mapping[str, FirstToken]) -> FirstToken:
    """TTFT constants of a run's regime under its engine."""
    return first_token_of(first_token, run.row.engine, regime_of(run.row))


def predict_under(runs: Sequence[Run], profile: Profile) -> Prediction:
    """TPOT and TTFT of runs under a profile."""
    runs = scattered(runs, profile.scattered)
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
    """What TTFT is made of, per run: one's own prefill, everybody's who shares the worker, a decode pass.

    ``ahead``: layers of the prefill passes that everybody's prompts take. ``busy``: share of the time in which a worker prefills.
    ``others``, ``beside``: share of a worker's users that are not oneself, where prompts are prefilled and where they are
    decoded: who is alone waits for nobody. ``waiting_s``: for a place among the sequences that decode together, or in a full
    prefill pool (Little's law). ``held_s``: by the engine's settings.
    """

    own_s: Array
    users_s: Array
    ahead: Array
    busy: Array
    others: Array
    pass_s: Array
    beside: Array
    waiting_s: Array
    held_s: Array

    def of(self, chosen: NDArray[np.bool_]) -> PrefillLoad:
        """The same of the chosen runs."""
        return PrefillLoad(*(one[chosen] for one in vars(self).values()))

    def ttft_s(self, constants: Sequence[FirstToken]) -> Array:
        """Mean TTFT of every run under its constants."""
        return self.mean_s(
            *np.array(
                [
                    (c.base_s, c.prefill_factor, c.queue_share, c.decode_passes, c.prefill_layer_s)
                    for c in constants
                ]
            ).T
        )

    def mean_s(
        self, base: Array, factor: Array, share: Array, passes: Array, each_layer: Array
    ) -> Array:
        """The same from the constants as arrays ``[runs]``."""
        queue = share * self.others * (self.users_s + self.ahead * each_layer)
        own = (1.0 + (factor - 1.0) * self.busy * self.others) * self.own_s
        alone = base + own + passes * self.beside * self.pass_s + self.held_s
        return np.asarray(alone + np.maximum(queue, self.waiting_s))


def prefill_load(
    runs: Sequence[Run], table: RunTable, seconds: Array, pricing: Pricing
) -> PrefillLoad:
    """Seconds of prefill from priced passes."""
    servers = np.array([float((r.row.prefill or r.row.decode).workers) for r in runs])
    decoding = np.array([float(r.row.decode.workers) for r in runs])
    users = np.array([run.row.concurrency for run in runs])
    own = table.prefill_s(seconds)
    token_s = tpot_s(runs, table, seconds)
    decode_s = np.array([float(r.instance.workload.decode_steps) for r in runs]) * token_s
    pools = full_pools(runs)
    most_rate = np.full(len(runs), np.inf)
    most_rate[pools.places] = servers[pools.places] * pools.prompts_per_s(
        pools.terms.seconds(pricing(pools.places))
    )
    apart = np.isfinite(most_rate)
    # a mixed worker keeps a place while it prefills, a decode worker only decodes
    inside_s = decode_s + np.where(apart, 0.0, own)
    rate = np.minimum((users - decoding * turned_away(runs)) / inside_s, most_rate)
    waiting = np.maximum(0.0, users / rate - decode_s - own)
    each_s = np.where(apart, 1.0 / most_rate, own / table.prompts / servers)
    # a wave waits for half of its prefill on average
    waves = waved(runs)
    shares = wave_shares(runs, table.batches)
    waiting = waiting + np.where(waves, shares * table.batches * own / table.prompts, 0.0)
    held = token_s * np.array([held_passes(run) for run in runs])
    layers = np.array([float(run.instance.operations.num_layers) for run in runs])
    ahead = layers * passes_ahead(runs, table.prompts)
    busy = np.minimum(1.0, rate * each_s)
    others, beside = (1.0 - 1.0 / np.maximum(1.0, users / some) for some in (servers, decoding))
    pass_s = seconds[table.decode]
    return PrefillLoad(
        own, users * each_s, ahead, busy, others, pass_s, beside, waiting, held
    )  # fmt: skip
