"""What a replay says of a load test: the server as it was started, the requests as they were sent.

Nothing is fitted here. A request reaches the engine's queue after the profile's base time of its engine
(HTTP, tokenising). Where a load generator repeats few prompts, those that came before are found in the
prefix cache in whole blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodel.layout.plain_layout import plain_layout
from costmodel.measured.load.runs import STAGE_S, LoadRun
from costmodel.measured.systems import served_as
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.profile import FirstToken
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.requests import Requests, drawn_count
from costmodel.question.workload import Workload
from costmodel.replay.job import Habits
from costmodel.replay.met import Met
from costmodel.replay.replay import Course, replay
from topology.errors import InstanceError, Problem

#: sequences of a server and tokens of a pass where a run does not say: defaults of the engines' servers
_SLOTS, _CHUNK = 256, 8192
#: prompts of the usual load generator (groups, prompts of a group) and the engine's cache block
_GROUPS, _OWN, _BLOCK = 10, 10, 16


@dataclass(frozen=True)
class Replayed:
    """One run and its replay."""

    run: LoadRun
    met: Met


def predict_load(run: LoadRun, profile: str, seed: int = 0) -> Replayed:
    """Replay one run. Raises ``InstanceError`` where it cannot be: the message says what is missing."""
    requests = requests_of(run, seed)
    instance = instance_of(run, requests, profile)
    if run.tp % run.attention_dp:
        message = f"{run.attention_dp} ranks do not divide {run.tp} chips"
        raise InstanceError(Problem("attention_dp", message))
    slots = run.server_args.max_num_seqs or _SLOTS
    layout = plain_layout(
        instance, "mixed", tp=run.tp // run.attention_dp, attention_dp=run.attention_dp * run.dp,
        pp=1, batch=slots * run.attention_dp * run.dp, first_chip=0,
    )  # fmt: skip
    engine = instance.engine
    assert engine is not None
    habits = Habits(
        engine.habits.prompts,
        run.server_args.max_num_batched_tokens or _CHUNK,
        engine.habits.reserves_kv,
        engine.habits.schedules_ahead,
    )
    base = instance.profile.first_token.get(run.engine, FirstToken()).base_s
    course = Course(
        habits, in_flight=run.concurrency if run.loop == "closed" else None, host_s=base
    )
    return Replayed(run, replay(instance, layout, requests, course))


def instance_of(run: LoadRun, requests: Requests, profile: str) -> Instance:
    """The server's model, chips and engine."""
    if run.engine not in ("vllm", "sglang", "trtllm"):
        raise InstanceError(Problem("engine", f"{run.engine} is not known"))
    if run.speculative:
        raise InstanceError(
            Problem("speculative", "drafts of a simulated acceptance are not priced")
        )
    precision = next((name for name in ("fp8", "fp4", "int4") if name in run.dtype.lower()), "")
    what = served_as(run.hf_model_id, precision, run.engine, run.chip)
    return resolve_instance(
        Scenario(
            model=what.model,
            cluster=what.cluster,
            weight_dtype=what.weight_dtype,
            kv_dtype=what.kv_dtype,
            workload=Workload(
                input_tokens=max(1, round(requests.input_tokens.mean())),
                output_tokens=max(1, round(requests.output_tokens.mean())),
                # a server without expert parallelism cuts every expert over its chips
                expert_load="skewed" if run.attention_dp * run.dp > 1 else "uniform",
            ),
            profile=profile,
            engine=run.engine,
        )
    )


def requests_of(run: LoadRun, seed: int) -> Requests:
    """The run's requests: as recorded, or as its load generator sends them."""
    if run.requests is not None:
        given = np.array(run.requests.input_tokens, dtype=np.int64)
        return Requests(
            np.array(run.requests.t_s), given,
            np.array(run.requests.output_tokens, dtype=np.int64), np.zeros_like(given),
        )  # fmt: skip
    if run.loop == "closed":
        return _closed(run)
    if run.profile is None:
        raise InstanceError(Problem("profile", "neither requests nor their lengths are given"))
    rates = run.stage_rates if run.pooled else [run.requested_rate] if run.requested_rate else None
    if not rates:
        raise InstanceError(Problem("requested_rate", "is not known"))
    rng = np.random.default_rng(seed)
    stage_s = STAGE_S
    if run.duration_s is not None:
        stage_s = run.duration_s / (len(rates) if run.pooled else 1)
    # exponential gaps, rescaled to fill the stage: uniform times in order
    drawn_count(sum(rate * stage_s for rate in rates), "duration_s")
    times = [
        index * stage_s + np.sort(rng.uniform(0.0, stage_s, max(1, round(rate * stage_s))))
        for index, rate in enumerate(rates)
    ]
    return _repeated(run, np.concatenate(times), rng)


def _repeated(run: LoadRun, arrival: np.ndarray, rng: np.random.Generator) -> Requests:
    """Requests that draw their prompt from few; later stages find all of them in the cache."""
    lengths = run.profile
    assert lengths is not None
    count = len(arrival)
    given = lengths.system_prompt_tokens + lengths.question_tokens
    tokens = np.full(count, given, dtype=np.int64)
    output = np.full(count, lengths.output_tokens, dtype=np.int64)
    nothing = np.zeros(count, dtype=np.int64)
    if run.server_args.prefix_caching is False:
        return Requests(arrival, tokens, output, nothing)
    whole, shared = given // _BLOCK, lengths.system_prompt_tokens // _BLOCK
    if run.stage > 0:
        return Requests(arrival, tokens, output, nothing + whole * _BLOCK)
    prompts = _GROUPS * _OWN
    blocks = [
        tuple(prompt // _OWN * whole + place for place in range(shared))
        + tuple((_GROUPS + prompt) * whole + place for place in range(shared, whole))
        for prompt in range(prompts)
    ]
    drawn = rng.integers(0, prompts, count)
    sizes = (_BLOCK,) * whole
    return Requests(
        arrival, tokens, output, nothing, [blocks[i] for i in drawn.tolist()], [sizes] * count
    )


def _closed(run: LoadRun) -> Requests:
    """As many requests as were measured, all of the mean length."""
    if run.concurrency is None:
        raise InstanceError(Problem("concurrency", "is missing in a closed loop"))
    if run.prompt_len.mean is None or run.output_len.mean is None:
        raise InstanceError(Problem("prompt_len", "mean lengths are not given"))
    if run.server_args.prefix_caching is not False:
        raise InstanceError(Problem("requests", "sessions with think time are not replayed"))
    count = drawn_count(run.n_requests or 10 * run.concurrency, "concurrency")
    return Requests(
        np.zeros(count),
        np.full(count, round(run.prompt_len.mean), dtype=np.int64),
        np.full(count, round(run.output_len.mean), dtype=np.int64),
        np.zeros(count, dtype=np.int64),
    )
