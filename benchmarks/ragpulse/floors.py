r"""How few GPUs could cover a share of the requests, whatever the schedule and the layout.

A request that counts has its first token within the TTFT limit and its tokens within the TPOT limit on average. So
its whole prompt is computed within ``arrival + TTFT``, and its answer within ``arrival + TTFT + (output - 1) TPOT``. Cut
time into windows. What must be done inside a window, of the requests that come in it and count, is at most the
window's length times the GPUs:

    sum of work_i <= GPUs * seconds        for every window

where ``work_i`` are the GPU seconds of the prompt, without every block that another prompt has too, and of the answer, at
the least price of a token in any replica of at most so many GPUs. What does not fit is not covered; dropping the heaviest requests drops fewest. The windows share no request, so that the numbers dropped add up:
where they exceed what the floor leaves out, so many GPUs are too few. Prices are the solver's bounds over all shapes;
a token costs what it costs in the next shorter prompt, or at the next shorter context, that was priced.

Not covered: passes in which prompts and decoding share; decode batches of unlike size that take turns, where a pass grows
more slowly than its batch; prompts in passes of more than ``prefill_chunk_tokens`` per attention rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from benchmarks.ragpulse.deployments import TPOT_S, TTFT_S
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Slo, Workload
from solver.bounds.pricing import Pricer
from solver.clock import Clock
from solver.rounds import Search
from solver.shapes.shapes import ROLES

Array = NDArray[np.float64]

#: lengths of prompts that fill a pass without a rest, and contexts, at which work is priced, tokens; what is shorter
#: does not count
PROMPTS = (64, 128, 256, 512, 1024, 2048, 4096)
CONTEXTS = (64, 128, 256, 512, 768, 1024, 1280, 1536, 1792, 2048, 2304, 2560, 2816, 3072, 3584, 4096, 5120)  # fmt: skip
#: lengths of windows, seconds
WINDOWS_S = (4.0, 6.0, 8.0, 12.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 300.0, 900.0)
HOUR_S = 3600.0
#: answers by which a decode step is priced, tokens
_ANSWER = 65


@dataclass(frozen=True)
class Prices:
    """GPU seconds of a token by length and GPUs of a replica at most ``[lengths, chips]`` (``inf``: none holds the model).

    ``prompt``: of a prompt of that length; ``step``: of an answer at that context. Longer ones cost no less.
    """

    prompt: Array
    step: Array

    @classmethod
    def of(cls, question: Scenario, most: int) -> Prices:
        """Least prices over all shapes of up to so many GPUs."""
        steady = question.model_copy(update={"slo": Slo(tpot=TPOT_S)})
        search = Search(resolve_instance(steady), Clock(None), 0.01, 0, None)

        def least(role: str, lengths: tuple[int, ...]) -> Array:
            table = np.full((len(lengths), most + 1), np.inf)
            rows = np.flatnonzero(search.shapes.role == ROLES.index(role))
            shapes = search.shapes.take(rows)
            for number, tokens in enumerate(lengths):
                workload = Workload(input_tokens=tokens, output_tokens=_ANSWER)
                instance = resolve_instance(steady.model_copy(update={"workload": workload}))
                pricer = Pricer(instance, search.classes, search.pricer)
                rates = pricer.bounds(shapes).requests_per_s
                parts = tokens if role == "prefill" else _ANSWER
                seconds = np.full(len(rates), np.inf)
                np.divide(shapes.chips, rates * parts, out=seconds, where=rates > 0)
                for chips in range(1, most + 1):
                    table[number, chips] = seconds[shapes.chips <= chips].min(initial=np.inf)
            # what is priced less than something shorter counts as that much for both
            return np.asarray(np.minimum.accumulate(table[::-1])[::-1])

        return cls(least("prefill", PROMPTS), least("decode", CONTEXTS))


@dataclass(frozen=True)
class Work:
    """Requests, and the tokens of each prompt that must be computed ``[requests]``."""

    requests: Requests
    new: NDArray[np.int64]

    @classmethod
    def of(cls, requests: Requests) -> Work:
        """Work of requests of whose prompts only the blocks that no other prompt has are computed."""
        counts = [len(ids) for ids in requests.blocks]
        request = np.repeat(np.arange(len(requests)), counts)
        ids = np.fromiter(chain.from_iterable(requests.blocks), np.int64, len(request))
        sizes = np.fromiter(chain.from_iterable(requests.block_sizes), np.int64, len(request))
        _, block, uses = np.unique(ids, return_inverse=True, return_counts=True)
        shared = np.bincount(request, sizes * (uses[block] > 1), minlength=len(requests))
        return cls(requests, requests.input_tokens - shared.astype(np.int64))

    def fits(self, chips: int, prices: Prices, dropped: int) -> bool:
        """Whether no window shows that so many GPUs must drop more than ``dropped`` requests."""
        seconds = self._seconds(chips, prices)
        if seconds is None:
            return False
        return all(len(self._beyond(chips, w, *seconds)) <= dropped for w in WINDOWS_S)

    def dropped(self, chips: int, prices: Prices, hours: int) -> NDArray[np.int64]:
        """Requests that so many GPUs must drop of those that come in each hour, at least."""
        comes = (self.requests.arrival_s // HOUR_S).astype(np.int64)
        seconds = self._seconds(chips, prices)
        if seconds is None:
            return np.bincount(comes, minlength=hours)
        # no window crosses the end of an hour, so that each hour may be judged by another length
        found = [
            np.bincount(comes[self._beyond(chips, w, *seconds)], minlength=hours) for w in WINDOWS_S
        ]
        return np.asarray(np.max(found, axis=0))

    def _seconds(self, chips: int, prices: Prices) -> tuple[Array, Array] | None:
        """Least GPU seconds of each prompt and answer; ``None`` where so many GPUs hold no model."""
        if not (np.isfinite(prices.prompt[:, chips]) & np.isfinite(prices.step[0, chips])).all():
            return None
        prompt = _price(prices.prompt[:, chips], PROMPTS, self.new) * self.new
        steps = self.requests.output_tokens - 1
        answer = _price(prices.step[:, chips], CONTEXTS, self.requests.input_tokens) * steps
        return prompt, answer

    def _beyond(
        self, chips: int, seconds: float, prompt: Array, answer: Array
    ) -> NDArray[np.int64]:
        """Requests beyond those that fit into windows of so many seconds, the fewest that may be."""
        at, steps = self.requests.arrival_s, self.requests.output_tokens - 1
        window = np.floor(at / seconds).astype(np.int64)
        end = (window + 1) * seconds
        due = np.where(at + TTFT_S <= end, prompt, 0.0)
        due += np.where(at + TTFT_S + steps * TPOT_S <= end, answer, 0.0)
        order = np.lexsort((due, window))
        due, window = due[order], window[order]
        # lightest first within each window: those beyond what fits are dropped
        starts = np.flatnonzero(np.diff(window, prepend=-1))
        before = np.concatenate([[0.0], np.cumsum(due)])[starts]
        sums = np.cumsum(due) - np.repeat(before, np.diff(np.append(starts, len(due))))
        return np.asarray(order[sums > chips * seconds * (1.0 + 1e-9)])


def _price(by_length: Array, lengths: tuple[int, ...], tokens: NDArray[np.int64]) -> Array:
    place = np.searchsorted(lengths, tokens, side="right") - 1
    return np.where(place < 0, 0.0, by_length[np.maximum(place, 0)])


def fewest(work: Work, prices: Prices, floor: float, most: int) -> int:
    """The fewest GPUs, up to ``most``, that no window rules out at a floor of coverage."""
    # the share of requests that may miss a limit, in whole requests
    dropped = int(np.floor((1.0 - floor) * len(work.requests) + 1e-6))
    for chips in range(1, most):
        if work.fits(chips, prices, dropped):
            return chips
    return most
