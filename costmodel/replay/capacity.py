"""What a prefill replica computes of given prompts at most, all waiting from the start; and how long one takes alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from costmodel.layout.layout import Layout, Replica
from costmodel.question.instance import Instance
from costmodel.question.traffic.requests import Requests
from costmodel.replay.fleet import Tables, standing
from costmodel.replay.gaps import Gaps
from costmodel.replay.replay import Course, run


def prompts_per_s(
    instance: Instance,
    layout: Layout,
    replica: Replica,
    requests: Requests,
    course: Course,
    tables: Tables | None = None,
) -> float:
    """Prompts per second of a prefill replica with a full queue.

    Ranks wait for the one with the longest contexts in each pass: what a steady state at the mean leaves
    out. The first tenth and the last tenth of the prompts do not count. ``tables``: see :func:`replay`.
    """
    count = len(requests)
    ends = np.sort(_first_tokens(instance, layout, replica, requests, course, tables))
    first, last = count // 10, count - 1 - count // 10
    return float((last - first) / (ends[last] - ends[first]))


def alone_s(
    instance: Instance,
    layout: Layout,
    replica: Replica,
    request: Requests,
    course: Course,
    tables: Tables | None = None,
) -> float:
    """Seconds of one request on a replica that has nothing else to do, up to its first token."""
    return float(_first_tokens(instance, layout, replica, request, course, tables)[0])


def _first_tokens(
    instance: Instance,
    layout: Layout,
    replica: Replica,
    requests: Requests,
    course: Course,
    tables: Tables | None,
) -> NDArray[np.float64]:
    """When each of some prompts is computed on one replica, where all come at once."""
    count = len(requests)
    at_once = replace(
        requests, arrival_s=np.zeros(count), output_tokens=np.ones(count, dtype=np.int64)
    )
    alone = layout.model_copy(update={"replicas": (replica,)})
    fleet = standing(instance, alone, course.habits, Gaps(), requests.longest, tables)
    return np.array([job.ends_s for job in run(instance, fleet, at_once, course)])
