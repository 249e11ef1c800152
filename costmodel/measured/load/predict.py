"""What a replay says of a load test: the server as it was started, the requests as they were sent.

Nothing is fitted here. A request reaches the engine's queue after what the profile says that the engine's server
takes (HTTP, tokenising). Where a load generator repeats few prompts, those that came before are found in the
prefix cache in whole blocks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from costmodel.layout.layout import Layout
from costmodel.layout.plain_layout import plain_layout
from costmodel.measured.load.runs import STAGE_S, LoadRun
from costmodel.measured.systems import served_as
from costmodel.question.engine import EngineHabits
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.speculation import Speculative
from costmodel.question.spread import MAX_TOKENS
from costmodel.question.traffic.follows import Follows
from costmodel.question.traffic.requests import Requests, drawn_count
from costmodel.question.traffic.sessions import Sessions
from costmodel.question.workload import Workload
from costmodel.replay.fleet import Tables
from costmodel.replay.job import Habits
from costmodel.replay.met import Met
from costmodel.replay.replay import Course, replay
from topology.errors import InstanceError, Problem, option

#: sequences of a server and tokens of a pass where a run does not say: defaults of the engines' servers
SLOTS, CHUNK = 256, 8192
#: prompts of the usual load generator (groups, prompts of a group) and the engine's cache block
_GROUPS, _OWN, _BLOCK = 10, 10, 16
#: how near to its measured rate a run with sessions is replayed, and how often its pauses are stretched for that
_NEAR, _TRIES = 0.01, 4
#: conversations' requests that are drawn for each one that is sent, so that no lane is at its end before
_MORE = 1.5


@dataclass(frozen=True)
class Replayed:
    """One run and its replay."""

    run: LoadRun
    met: Met


def predict_load(
    run: LoadRun, profile: str, seed: int = 0, sessions: Sessions | None = None
) -> Replayed:
    """Replay one run. Raises ``InstanceError`` where it cannot be: the message says what is missing.

    ``sessions``: conversations that stand for those of runs whose own are not known, scaled to a run's mean lengths.
    Their requests wait for the answer before and a pause; all pauses are stretched alike until requests are served at the run's
    rate. Where even none leave the server slower, that is its rate.
    """
    requests, follows = requests_of(run, seed, sessions)
    instance = instance_of(run, requests, profile)
    if run.tp % run.attention_dp:
        message = f"{run.attention_dp} ranks do not divide {run.tp} chips"
        raise InstanceError(Problem("attention_dp", message))
    slots = run.server_args.max_num_seqs or SLOTS
    layout = plain_layout(
        instance, "mixed", tp=run.tp // run.attention_dp, attention_dp=run.attention_dp * run.data_parallel,
        pp=1, batch=slots * run.attention_dp * run.data_parallel, first_chip=0,
    )  # fmt: skip
    engine = instance.engine
    assert engine is not None
    course = Course(
        _habits(run, engine.habits),
        in_flight=run.concurrency if run.loop == "closed" and follows is None else None,
        host=instance.profile.host_of(run.engine),
        follows=follows,
        # SGLang's simulated acceptance draws one length for all sequences of a pass, vLLM's one for each
        alike=run.engine == "sglang" and "simulated" in (run.speculative or ""),
    )
    if follows is not None:
        requests, follows = _paced(
            run, instance, layout, requests, replace(course, follows=follows)
        )
    return Replayed(run, replay(instance, layout, requests, replace(course, follows=follows)))


def _paced(
    run: LoadRun, instance: Instance, layout: Layout, requests: Requests, course: Course
) -> tuple[Requests, Follows]:
    """The run's number of conversations' requests, those that come first, at its rate or as near as the server gets."""
    follows, rate, lanes = course.follows, run.achieved_rate, run.concurrency
    assert follows is not None
    assert rate is not None
    assert lanes is not None
    count, stretch = round(len(requests) / _MORE), 1.0
    tables = Tables()
    for _ in range(_TRIES):
        now = follows.stretched(stretch)
        arrival = replay(instance, layout, requests, replace(course, follows=now), tables).arrival_s
        first = np.sort(np.argsort(arrival, kind="stable")[:count])
        found = count / float(arrival[first].max())
        # a lane's requests are so many seconds too close to each other
        short = lanes * (1.0 / rate - 1.0 / found)
        wanted = max(0.0, stretch + short / max(follows.mean_pause_s, 1e-9))
        if abs(found / rate - 1.0) <= _NEAR or wanted == stretch:
            break
        stretch = wanted
    return requests.rows(first), now.rows(first)


def _habits(run: LoadRun, engine: EngineHabits) -> Habits:
    """How the server schedules: as its engine does, with what a note says of prompts that wait."""
    arguments = run.server_args
    habits = Habits.of(engine, arguments.max_num_batched_tokens or CHUNK)
    note = arguments.max_num_batched_tokens_note or ""
    every = re.search(r"every (\d{1,3}) steps", note)
    piece = re.search(r"threshold (\d{1,6})", note)
    return replace(
        habits,
        every=max(1, int(every[1])) if every and habits.prompts == "mixed" else 1,
        piece_tokens=int(piece[1]) if piece else 0,
    )


def instance_of(run: LoadRun, requests: Requests, profile: str) -> Instance:
    """The server's model, chips and engine."""
    if run.engine not in ("vllm", "sglang", "trtllm"):
        raise InstanceError(Problem("engine", f"{run.engine} is not known"))
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
                expert_load="skewed" if run.attention_dp * run.data_parallel > 1 else "uniform",
            ),
            profile=profile,
            engine=run.engine,
            speculative=None if run.speculative is None else drafted(run.speculative, what.model),
        )
    )


def drafted(words: str, model: str = "") -> Speculative:
    """Drafts as a run says them: so many draft tokens, and the mean tokens that a pass emits (acceptance length).

    An EAGLE-3 head is that of the catalogue for the ``model``. The acceptance is that of equal chances at every place
    (:attr:`Speculative.emitted`). Raises ``InstanceError`` where a number is missing, or more tokens are emitted than a pass
    verifies.
    """
    tokens = re.search(r"(\d{1,2}) draft tokens?", words)
    length = re.search(r"acceptance length\D{0,20}(\d{1,2}(?:\.\d{1,6})?)", words)
    if tokens is None or length is None:
        message = (
            "needs draft tokens and acceptance length (3 draft tokens, acceptance length 2.49)"
        )
        raise InstanceError(Problem("speculative", f"{message}, got {words[:80]!r}"))
    count, emitted = int(tokens[1]), float(length[1])
    if not 1 <= count <= 16 or not 1.0 <= emitted <= count + 1:
        message = f"a pass with {count} drafts emits 1 to {count + 1} tokens, got {emitted:g}"
        raise InstanceError(Problem("speculative", message))
    polynomial = [1.0] * count + [1.0 - emitted]
    chances = [root.real for root in np.roots(polynomial) if abs(root.imag) < 1e-9]
    return Speculative(
        draft_tokens=count,
        acceptance=min(1.0, max(chances, default=0.0)),
        draft=f"{model}-eagle3" if "EAGLE3" in words else None,
    )


def requests_of(
    run: LoadRun, seed: int, sessions: Sessions | None = None
) -> tuple[Requests, Follows | None]:
    """The run's requests: as recorded, as its load generator sends them, or sessions like its own; what they wait for."""
    if run.requests is not None:
        given = np.array(run.requests.input_tokens, dtype=np.int64)
        recorded = Requests(
            np.array(run.requests.t_s), given,
            np.array(run.requests.output_tokens, dtype=np.int64), np.zeros_like(given),
        )  # fmt: skip
        return recorded, None
    if run.loop == "closed":
        return _closed(run, seed, sessions)
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
    return _repeated(run, np.concatenate(times), rng), None


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
    # the tool shuffles its prompts once and goes round them, so that all of the first ones are new
    drawn = rng.permutation(prompts)[np.arange(count) % prompts]
    sizes = (_BLOCK,) * whole
    return Requests(
        arrival, tokens, output, nothing, [blocks[i] for i in drawn.tolist()], [sizes] * count
    )


def _closed(run: LoadRun, seed: int, sessions: Sessions | None) -> tuple[Requests, Follows | None]:
    """As many requests as were measured: all of the mean length, or those of sessions."""
    if run.concurrency is None:
        raise InstanceError(Problem("concurrency", "is missing in a closed loop"))
    lengths = run.mean_lengths
    if lengths is None:
        message = "mean lengths are not given, nor tokens/s and requests/s that say them"
        raise InstanceError(Problem("prompt_len", message))
    if max(lengths) > MAX_TOKENS:
        message = f"{max(lengths):.3g} tokens a request by tokens/s and requests/s; at most {MAX_TOKENS:,}"
        raise InstanceError(Problem("throughput", message))
    count = drawn_count(run.n_requests or 10 * run.concurrency, "concurrency")
    if run.converses:
        if sessions is None:
            message = f"sessions with think time: give some like them ({option('sessions')})"
            raise InstanceError(Problem("requests", message))
        if run.achieved_rate is None:
            raise InstanceError(Problem("achieved_rate", "is missing: sessions come at a rate"))
        return sessions.drawn(
            round(_MORE * count), run.concurrency, *lengths, seed, run.longest_pause_s
        )
    given, asked = (np.full(count, round(mean), dtype=np.int64) for mean in lengths)
    return Requests(np.zeros(count), given, asked, np.zeros(count, dtype=np.int64)), None
