"""A few timed requests, one after the other: the workload's prompt, at most some of its output."""

from __future__ import annotations

import random
from dataclasses import dataclass
from statistics import fmean

from costmodel.question.instance import Instance
from rackfit.live.site import Site

#: output tokens of a timed request: the time of a token hardly changes over more
_MOST_OUTPUT = 64
_PATH = "/v1/completions"


@dataclass(frozen=True)
class Timed:
    """Means over ``requests`` that were alone on their servers."""

    url: str
    requests: int
    input_tokens: int
    output_tokens: int
    ttft_s: float
    tpot_s: float


def timed(site: Site, model: str, instance: Instance, requests: int) -> Timed:
    """Send one request to warm up (it also fills the prefix cache) and ``requests`` that are timed.

    Prompts are random token ids; those that the workload says are cached are the same in each. Raises
    ``InstanceError`` where the server refuses them.
    """
    workload, rng = instance.workload, random.Random(0)
    output = min(workload.output_tokens, _MOST_OUTPUT)
    most = max(2, min(instance.model.vocab_size, 2**15))

    def ids(count: int) -> list[int]:
        return [rng.randrange(1, most) for _ in range(count)]

    shared = ids(workload.cached_tokens)
    first, each = [], []
    for number in range(requests + 1):
        prompt = shared + ids(workload.input_tokens - len(shared))
        ttft, tpot = _one(site, model, prompt, output)
        if number:
            first.append(ttft)
            each.append(tpot)
    return Timed(site.url, requests, workload.input_tokens, output, fmean(first), fmean(each))


def _one(site: Site, model: str, prompt: list[int], output: int) -> tuple[float, float]:
    """Seconds to the first token, and for each one after it."""
    body = {
        "model": model, "prompt": prompt, "max_tokens": output, "min_tokens": output,
        "ignore_eos": True, "temperature": 0.0, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    moments: list[float] = []
    tokens = 0
    for now, event in site.events(_PATH, body):
        if "error" in event:
            raise site.problem(f"{_PATH}: {str(event['error'])[:200]}")
        if event.get("choices"):
            moments.append(now)
        usage = event.get("usage")
        if isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int):
            tokens = usage["completion_tokens"]
    if not moments or tokens < 1:
        raise site.problem(f"{_PATH} ends without a token")
    return moments[0], (moments[-1] - moments[0]) / max(tokens - 1, 1)
