"""One replica over time: prompts wait, passes run, sequences decode and finish.

Passes that differ only in the age of their sequences are taken together: between two decisions (a
prompt starts, a sequence ends, KV is full) a round of decoding lasts longer by the same amount each time,
so that any number of rounds is one sum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import takewhile

from costmodel.layout.layout import Role
from costmodel.replay.gaps import Gaps
from costmodel.replay.job import Habits, Job
from costmodel.replay.pass_table import STEP, Line, PassTable, Pending
from costmodel.replay.prefix_cache import Prefixes
from costmodel.replay.rounds import lasting, rounds_until


class Server:
    """One replica.

    ``share``: of the replica's KV room that one sequence takes, by its context in tokens. ``slots``: sequences it runs at once.
    """

    def __init__(
        self, role: Role, table: PassTable, share: Line, slots: int, habits: Habits, gaps: Gaps
    ) -> None:
        self.role, self.table, self.share, self.slots = role, table, share, slots
        self.habits, self.gaps = habits, gaps
        self.waiting, self.pending = deque[Job](), Pending(table)
        self.prompts: list[Job] = []
        self.running: list[tuple[int, int, Job]] = []
        self.cache: Prefixes | None = None
        self.rounds = self.version = self.put_back = 0
        self.context = self.kv_kept = 0.0
        self.busy = False
        self.started = self.busy_s = self.slot_seconds = self._stall = 0.0
        #: seconds by hundredths of the KV room in use
        self.kv_seconds = [0.0] * 101
        self._run: tuple[int, float, float] | None = None
        self._pass: tuple[list[tuple[Job, int]], float, int] | None = None
        self._rank = [0] * table.ranks
        #: rounds of decoding alone before the next pass with prompts
        self._due = 0
        #: what came later is not part of the next pass
        self._settled = 0.0
        #: requests that were handed over, whose first token is not out yet; first tokens that the round computes
        self._handed: list[Job] = []
        self._firsts = 0

    @property
    def taken(self) -> float:
        """Share of the slots that requests here have or wait for."""
        return (len(self.waiting) + len(self.prompts) + len(self.running)) / self.slots

    def kv_fill(self) -> float:
        """Share of the KV room in use."""
        count, share = len(self.running), self.share
        used = count * share.at(self.context / count) if count else 0.0
        return used + sum([share.at(job.done) for job in self.prompts]) if self.prompts else used

    def add(self, job: Job, now: float) -> float | None:
        """Take in a request; when the next decision is, if that has changed: an idle replica's when all of now have come."""
        if self.role != "decode":
            job.prompt = max(job.prompt, job.input_tokens)
            self.pending.add(0, job.prompt)
        job.queued_s = now
        self.waiting.append(job)
        if not self.busy:
            self.busy, self.started, self._settled = True, now, now
            self.version += 1
            return now
        if self._run is None:
            return None
        rounds, first, more = self._run
        shorter = min(rounds, rounds_until(now - self.started, first, more) + self.habits.ahead)
        if shorter == rounds:
            return None
        self._run = (shorter, first, more)
        self.version += 1
        return self.started + lasting(shorter, first, more)

    def resume(self, jobs: Iterable[Job], now: float) -> float | None:
        """Go on with sequences that decode already, as many as there is room for; when the next decision is."""
        for job in takewhile(self._room, jobs):
            self._join(job)
        return self._decide(now)

    def step(self, now: float, done: list[Job]) -> float | None:
        """End what runs at ``now``; adds what left to ``done``; when the next decision is."""
        if took := now - self.started:
            self.busy_s += took
            self.slot_seconds += took * len(self.running)
            self.kv_seconds[round(100 * min(self.kv_fill(), 1.0))] += took
        if self._run is not None:
            self._end_rounds(now, done)
        elif self._pass is not None:
            self._end_pass(now, done)
        self.busy = False
        if not self.habits.ahead or not (self.running or self.prompts):
            self._settled = now
        return self._decide(now)

    def _end_rounds(self, now: float, done: list[Job]) -> None:
        assert self._run is not None
        rounds, first, more = self._run
        self._run, self._due = None, max(0, self._due - rounds)
        self._settled = self.started + lasting(rounds - 1, first, more)
        count = len(self.running)
        self.gaps.add(first + self._stall, count - self._firsts)
        if rounds > 1:
            self.gaps.add(first + more * rounds / 2, count * (rounds - 1))
        self._stall = 0.0
        self._advance(rounds, now, done)

    def _advance(self, rounds: int, now: float, done: list[Job]) -> None:
        """Every running sequence has so many rounds more."""
        running = self.running
        self.rounds += rounds
        self.context += rounds * len(running) * self.table.emitted
        while running and running[0][0] <= self.rounds:
            _, _, job = heappop(running)
            self._leave(job)
            job.ends_s = now + job.lag_s
            done.append(job)

    def _leave(self, job: Job) -> None:
        self.kv_kept -= job.kv
        self.context -= job.input_tokens + job.emitted + job.rounds * self.table.emitted
        if not self.running:
            self.context = 0.0

    def _end_pass(self, now: float, done: list[Job]) -> None:
        assert self._pass is not None
        pieces, whole_s, decoding = self._pass
        self._pass, self._settled = None, self.started
        if decoding:
            self.gaps.add(now - self.started + self._stall, decoding)
            self._stall = 0.0
            self._advance(1, now, done)
        else:
            self._stall += now - self.started
        for job, tokens in pieces:
            self.pending.drop(job.done, job.done + tokens)
            job.done += tokens
            piece, left = self.habits.piece, job.prompt - job.done
            self._rank[job.rank] -= piece(left + tokens) - piece(left)
            if job.done < job.prompt:
                continue
            if self.cache is not None and job.blocks:
                self.cache.use(job.blocks, job.block_sizes)
            if job.first_s < 0:
                job.first_s = self.started + whole_s
                job.emitted = 1
            if self.role == "prefill" or job.emitted >= job.output_tokens:
                self.kv_kept -= job.kv
                job.ends_s = job.first_s
                done.append(job)
            else:
                job.lag_s = self.started + whole_s - now if self.table.stages > 1 else 0.0
                self._join(job)
        self.prompts = [job for job in self.prompts if job.done < job.prompt]

    def _join(self, job: Job) -> None:
        """A sequence decodes from now on."""
        rounds = job.join(self.table.emitted, self.table.spread)
        heappush(self.running, (self.rounds + rounds, job.index, job))
        self.context += job.input_tokens + job.emitted

    def _room(self, job: Job) -> bool:
        """Whether a request may start; takes its KV if so."""
        if len(self.running) + len(self.prompts) >= self.slots:
            return False
        whole = self.habits.reserves and self.role != "prefill"
        job.kv = self.share.at(job.input_tokens + (job.output_tokens if whole else job.emitted))
        used = self.kv_kept if self.habits.reserves else self.kv_fill()
        if used + job.kv > 1.0 + 1e-9 and (self.running or self.prompts):
            return False
        self.kv_kept += job.kv
        return True

    def _decide(self, now: float) -> float | None:
        """Start the next pass or run of rounds; when it ends, ``None`` for nothing to do."""
        self._admit(now)
        self.started = now
        self.version += 1
        if self.prompts and not (self._due and self.running):
            self._due = self.habits.rounds_between
            return self._start_pass(now)
        if not self.running:
            return None
        self.busy = True
        late = bool(self.waiting) and self.waiting[0].queued_s > self._settled
        rounds = 1 if late else self.running[0][0] - self.rounds
        if self.prompts:
            rounds = min(rounds, self._due)
        if not self.habits.reserves:
            rounds = self._until_full(rounds)
        count = len(self.running)
        mean = self.context / count
        first = self.table.round_s(count, mean)
        self._firsts = len(self._handed) * (self.habits.first_token == "decodes")
        while self._handed:
            self._handed.pop().first_s = now + (first if self._firsts else 0.0)
        last = self.table.round_s(count, mean + rounds * self.table.emitted)
        more = (last - first) / rounds if rounds > 1 else 0.0
        self._run = (rounds, first, more)
        return now + lasting(rounds, first, more)

    def _until_full(self, rounds: int) -> int:
        """Rounds until no KV is left, putting back what no longer fits."""
        while True:
            count = len(self.running)
            mean = self.context / count
            used = count * self.share.at(mean)
            slope = count * self.table.emitted * (self.share.at(mean + 1.0) - self.share.at(mean))
            if count == 1 or slope <= 0 or used + slope <= 1.0:
                return max(1, min(rounds, int((1.0 - used) / slope))) if slope > 0 else rounds
            last = max(range(count), key=lambda i: (self.running[i][2].started_s, i))
            ends, _, job = self.running.pop(last)
            self.running.sort()
            job.start_again(ends - self.rounds, self.table.emitted)
            self.context -= job.prompt
            self.kv_kept -= job.kv
            self.pending.add(0, job.prompt)
            self.put_back += 1
            self._handed = [one for one in self._handed if one is not job]
            self.waiting.appendleft(job)
            rounds = min(rounds, self.running[0][0] - self.rounds)

    def _admit(self, now: float) -> None:
        waiting, rank, chunk = self.waiting, self._rank, self.habits.chunk_tokens
        if self.role == "decode":
            while waiting and waiting[0].queued_s <= self._settled and self._room(waiting[0]):
                job = waiting.popleft()
                if job.first_s < 0:
                    self._handed.append(job)
                self._join(job)
            return
        while waiting:
            least = min(rank)
            if least >= chunk or waiting[0].queued_s > self._settled or not self._room(waiting[0]):
                return
            job = waiting.popleft()
            self._find_prefix(job)
            job.rank = rank.index(least)
            rank[job.rank] += self.habits.piece(job.prompt - job.done)
            self.prompts.append(job)

    def _find_prefix(self, job: Job) -> None:
        """Prompt tokens that need no pass: what came with it, or what the cache still has."""
        known = job.cached_tokens
        if self.cache is not None and job.blocks:
            free = max(1.0 - self.kv_fill(), 0.0)
            per_token = (self.share.at(2.0 * STEP) - self.share.at(STEP)) / STEP
            self.cache.shrink(free / per_token if per_token > 0 else float("inf"))
            known = max(known, self.cache.known(job.blocks, job.block_sizes))
            job.read_s = self.cache.read_s(job.blocks, job.block_sizes)
        job.done = min(known, job.prompt - 1)
        if job.first_s < 0:
            job.hit_tokens = job.done
        self.pending.drop(0, job.done)

    def _start_pass(self, now: float) -> float:
        """A pass with pieces of prompts, after what they read back: each rank takes its own in order, up to its chunk."""
        self.busy = True
        table, ranks = self.table, self.table.ranks
        count = len(self.running) if self.habits.prompts == "mixed" else 0
        own = -(-count // (ranks * table.stages)) * table.verified
        room = [max(float(self.habits.chunk_tokens) - own, 1.0)] * ranks
        pieces: list[tuple[Job, int]] = []
        ended, read_s = [0] * ranks, 0.0
        whole, slowest = [0.0] * ranks, [0.0] * ranks
        for job in self.prompts:
            rank = job.rank
            tokens = min(self.habits.piece(job.prompt - job.done), int(room[rank]))
            if tokens <= 0:
                continue
            if job.started_s < 0:
                job.started_s = now
            read_s, job.read_s = read_s + job.read_s, 0.0
            room[rank] -= tokens
            end = job.done + tokens
            attended = table.attention_s(job.done, end)
            whole[rank] += attended[0]
            slowest[rank] += attended[1]
            ended[rank] += end == job.prompt
            pieces.append((job, tokens))
        total = sum(tokens for _, tokens in pieces)
        most = max(float(self.habits.chunk_tokens) - own, 1.0) - min(room)
        held, end_to_end = table.pass_s(
            most, total / ranks, max(ended), (max(whole), max(slowest)), count,
            self.context / count if count else 0.0,
        )  # fmt: skip
        self._pass = (pieces, read_s + end_to_end, count)
        return now + read_s + held
