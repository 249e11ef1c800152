"""What a prefill replica computes of given prompts at most: all of them wait from the start."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from costmodel.layout.layout import Layout, Replica
from costmodel.question.instance import Instance
from costmodel.question.traffic.requests import Requests
from costmodel.replay.fleet import standing
from costmodel.replay.gaps import Gaps
from costmodel.replay.replay import Course, run


def prompts_per_s(
    instance: Instance, layout: Layout, replica: Replica, requests: Requests, course: Course
) -> float:
    """Prompts per second of a prefill replica with a full queue.

    Ranks wait for the one with the longest contexts in each pass: what a steady state at the mean leaves
    out. The first tenth and the last tenth of the prompts do not count.
    """
    count = len(requests)
    at_once = replace(
        requests, arrival_s=np.zeros(count), output_tokens=np.ones(count, dtype=np.int64)
    )
    alone = layout.model_copy(update={"replicas": (replica,)})
    fleet = standing(instance, alone, course.habits, Gaps(), requests.longest)
    ends = np.sort([job.ends_s for job in run(instance, fleet, at_once, course)])
    first, last = count // 10, count - 1 - count // 10
    return float((last - first) / (ends[last] - ends[first]))
