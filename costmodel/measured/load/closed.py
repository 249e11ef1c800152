"""The requests of a measured run as its client sent them, replayed: all users at once, each anew when its answer is there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from costmodel.layout.plain_layout import plain_layout
from costmodel.measured.load.predict import CHUNK, SLOTS
from costmodel.measured.rows import DRAWN, LEAST_DRAWN
from costmodel.measured.runs import Run
from costmodel.question.engine_files import load_engine
from costmodel.question.profile import Profile
from costmodel.question.traffic.requests import Requests
from costmodel.replay.job import Habits
from costmodel.replay.met import Met
from costmodel.replay.replay import Course, replay


def closed_loop(run: Run, profile: Profile, count: int) -> Met:
    """What ``count`` requests of a run meet, without what its server takes before the queue.

    Lengths are drawn as its client drew them, slots and tokens of a pass are those of its command, or the usual ones.
    """
    row, group = run.row, run.row.decode
    instance = replace(
        run.instance,
        profile=profile.of_engine(run.priced_as).routed_as(run.instance.workload.expert_load),
    )
    rng = np.random.default_rng(0)

    def lengths(mean: float) -> NDArray[np.int64]:
        least = 1.0 if row.fixed_lengths else LEAST_DRAWN / DRAWN
        drawn = mean * rng.uniform(least, 2.0 - least, count)
        return np.maximum(1, np.round(drawn)).astype(np.int64)

    nothing = np.zeros(count, dtype=np.int64)
    requests = Requests(
        np.zeros(count), lengths(row.input_tokens), lengths(row.output_tokens), nothing
    )
    slots = round(group.settings.running or SLOTS)
    layout = plain_layout(
        instance, "mixed", tp=group.tp, attention_dp=group.attention_dp, pp=group.pp,
        batch=slots * group.attention_dp, first_chip=0,
    )  # fmt: skip
    chunk = int(group.settings.chunk_tokens or CHUNK)
    users = max(1, round(row.concurrency))
    course = Course(Habits.of(load_engine(run.priced_as).habits, chunk), in_flight=users)
    return replay(instance, layout, requests, course)
