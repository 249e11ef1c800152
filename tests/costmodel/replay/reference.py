"""A plain simulator: one pass after another, each priced by the cost model itself.

Shares nothing with ``costmodel.replay`` but the cost model: no tables, no sums over rounds, no events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from costmodel.layout.layout import Layout, Replica
from costmodel.passes.tokens import Tokens
from costmodel.question.instance import Instance
from costmodel.question.traffic.requests import Requests
from costmodel.replica.replica import replica_rates
from costmodel.replica.stage_times import StagePass, stage_times


@dataclass
class Sequence:
    index: int
    arrival_s: float
    prompt: int
    answer: int
    done: int = 0
    out: int = 0
    first_s: float = -1.0
    end_s: float = -1.0


@dataclass
class Plain:
    """One mixed replica of one stage: prompts have passes of their own between two rounds of decoding."""

    instance: Instance
    layout: Layout
    replica: Replica
    chunk: int
    known: dict[Tokens, float] = field(default_factory=dict)

    def seconds(self, tokens: Tokens) -> float:
        if tokens not in self.known:
            rates = replica_rates(self.instance, self.replica)
            (timed,) = stage_times(
                self.instance, self.layout, [StagePass(self.replica, tokens, rates)]
            )
            self.known[tokens] = float(timed.total_s.sum())
        return self.known[tokens]

    def round_s(self, running: list[Sequence]) -> float:
        ranks = self.replica.shape.attention_dp
        context = sum(s.prompt + s.out for s in running) / len(running)
        busiest = ceil(len(running) / ranks)
        fill = len(running) / ranks / busiest
        return self.seconds(Tokens(decode=float(busiest), context=context, fill=fill))

    def prompts_s(self, pieces: list[tuple[int, Sequence, int]]) -> float:
        """A pass whose busiest rank has these prompt tokens; attention of unlike prompts adds up."""
        ranks = self.replica.shape.attention_dp
        rows = [0] * ranks
        ended = [0] * ranks
        attended = [0.0] * ranks
        for rank, s, tokens in pieces:
            rows[rank] += tokens
            ended[rank] += s.done + tokens == s.prompt
            attended[rank] += self.attention_s(s.done + tokens) - self.attention_s(s.done)
        busiest = max(rows)
        whole = Tokens(
            prefill=float(busiest), prefill_start=0.0, prefill_end=float(busiest),
            prompts=float(max(ended)), fill=sum(rows) / ranks / busiest,
        )  # fmt: skip
        return self.seconds(whole) - self.attention_s(busiest) + max(attended)

    def attention_s(self, tokens: int) -> float:
        if tokens == 0:
            return 0.0
        rates = replica_rates(self.instance, self.replica)
        given = Tokens(prefill=float(tokens), prefill_start=0.0, prefill_end=float(tokens))
        (timed,) = stage_times(self.instance, self.layout, [StagePass(self.replica, given, rates)])
        return float(timed.parts["attention_context"].sum())

    def run(self, requests: Requests) -> list[Sequence]:
        every = [
            Sequence(i, t, given, asked)
            for i, (t, given, asked) in enumerate(
                zip(
                    requests.arrival_s.tolist(),
                    requests.input_tokens.tolist(),
                    requests.output_tokens.tolist(),
                    strict=True,
                )
            )
        ]
        ranks, slots = self.replica.shape.attention_dp, self.replica.shape.batch
        coming, waiting = list(every), []
        prompts: list[tuple[int, Sequence]] = []
        running: list[Sequence] = []
        now, decode_next = 0.0, False
        while coming or waiting or prompts or running:
            if not (waiting or prompts or running):
                now = max(now, coming[0].arrival_s)
            while coming and coming[0].arrival_s <= now:
                waiting.append(coming.pop(0))
            while waiting and len(running) + len(prompts) < slots:
                left = [
                    sum(s.prompt - s.done for at, s in prompts if at == rank)
                    for rank in range(ranks)
                ]
                if min(left) >= self.chunk:
                    break
                prompts.append((left.index(min(left)), waiting.pop(0)))
            if prompts and not (decode_next and running):
                decode_next = True
                room, pieces = [self.chunk] * ranks, []
                for rank, s in prompts:
                    tokens = min(s.prompt - s.done, room[rank])
                    if tokens:
                        room[rank] -= tokens
                        pieces.append((rank, s, tokens))
                now += self.prompts_s(pieces)
                for _, s, tokens in pieces:
                    s.done += tokens
                    if s.done == s.prompt:
                        s.first_s, s.out = now, 1
                        if s.answer == 1:
                            s.end_s = now
                        else:
                            running.append(s)
                prompts = [(rank, s) for rank, s in prompts if s.done < s.prompt]
                continue
            decode_next = False
            if not running:
                continue
            now += self.round_s(running)
            for s in running:
                s.out += 1
                if s.out == s.answer:
                    s.end_s = now
            running = [s for s in running if s.out < s.answer]
        return every
