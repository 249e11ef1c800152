"""Time of one search: its deadline, and how Ctrl-C or a caller stops it at once.

Every CP-SAT solve goes through :meth:`Clock.run`, so that :meth:`Clock.stop`, from any thread, ends
the solve that is running and all later ones.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ortools.sat.python import cp_model

from topology.errors import InstanceError, NoLayoutInTime, Problem

#: least time given to a solve, seconds: enough to prove a small model
_LEAST_S = 0.05
#: CP-SAT's own measure of work, the same on every machine, that a second of a limit allows
_WORK_PER_S = 0.1
#: seconds that a limit of one second may take at most, where the machine is slow or busy
_SLOWER = 4.0


#: the largest seed that CP-SAT takes
MAX_SEED = 2**31 - 1


def check_seed(seed: int) -> None:
    """Raise ``InstanceError`` for a seed that CP-SAT or numpy does not take."""
    if not 0 <= seed <= MAX_SEED:
        raise InstanceError(Problem("seed", f"must be 0 to {MAX_SEED}, got {seed}"))


def check_time_limit(seconds: float | None) -> None:
    """Raise ``InstanceError`` for a time limit that is no time; ``None`` is no limit."""
    if seconds is not None and not 0 < seconds < 1e9:
        raise InstanceError(Problem("time limit", f"must be positive seconds, got {seconds:g}"))


def one_worker(seed: int = 0) -> cp_model.CpSolver:
    """A solver on one thread that leaves signals alone.

    Else it takes Ctrl-C over from the program while it runs, from whichever thread, and afterwards leaves the
    program with none of its own: the next signal ends the program where it stands.
    """
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.catch_sigint_signal = False
    # what presolve does here with "exactly one of these" beside a linear rule with close coefficients loses solutions:
    # with it, every fifth of 3,000 random questions of plans had a wrong optimum or none (OR-Tools 9.15)
    solver.parameters.presolve_inclusion_work_limit = 0
    return solver


#: strategies of CP-SAT that take turns, beside its searches around the best answer: the first raises bounds, the second finds answers
_IN_TURNS = ("core", "quick_restart_no_lp", "pseudo_costs")


class Clock:
    """Deadline and stop switch of one search."""

    def __init__(self, limit_s: float | None = None, *, started: float | None = None):
        """``started``: when the time began to run, by ``time.perf_counter``; now unless it is given."""
        self.started = time.perf_counter() if started is None else started
        #: the answer as it is now, for a caller who cannot wait for the search to end by itself
        self.kept: Callable[[], Any] = lambda: None
        self.limit_s = limit_s
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._own = threading.local()
        self._running: set[cp_model.CpSolver] = set()
        self._followers: list[Clock] = []

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started

    @property
    def remaining_s(self) -> float:
        """Seconds left; infinite without a limit, 0 when stopped."""
        if self._stopped.is_set():
            return 0.0
        if self.limit_s is None:
            return float("inf")
        return max(0.0, self.limit_s - self.elapsed_s)

    @property
    def stopped(self) -> bool:
        """Whether somebody asked to stop."""
        return self._stopped.is_set()

    @property
    def over(self) -> bool:
        """Whether the search must end."""
        return self.remaining_s <= 0.0

    @property
    def unsettled(self) -> int:
        """Models of this thread that ended neither proven optimal nor proven infeasible, so far."""
        count: int = getattr(self._own, "unsettled", 0)
        return count

    @property
    def cut_short(self) -> bool:
        """Whether the limit, and not its share of the work, ended a model of this thread that was left unsettled."""
        return bool(getattr(self._own, "cut_short", False))

    def late(self, what: str) -> NoLayoutInTime:
        """The error that says what was not reached, and whether the time limit or somebody ended the search."""
        passed = self.limit_s is not None and self.elapsed_s >= self.limit_s
        why = "stopped" if self.stopped and not passed else "the time limit came"
        return NoLayoutInTime(f"{why} before {what}")

    def stop(self) -> None:
        """End the search as soon as possible. Safe from any thread."""
        self._stopped.set()
        with self._lock:
            for solver in self._running:
                solver.stop_search()
            followers = list(self._followers)
        for clock in followers:
            clock.stop()

    def follower(self, share: float = 1.0) -> Clock:
        """The clock of a further search, whose answer is not this one's: it ends when this one does.

        ``share``: of the time that is left, what it has.
        """
        # what is left by the time alone, so that a stopped search is not said to be late
        limit = None if self.limit_s is None else share * max(0.0, self.limit_s - self.elapsed_s)
        found = Clock(limit)
        with self._lock:
            self._followers.append(found)
        if self.stopped:
            found.stop()
        return found

    def run(
        self,
        model: cp_model.CpModel,
        *,
        seed: int,
        limit_s: float,
        linearize: bool = False,
        accept_gap: float = 0.0,
        in_turns: bool = False,
    ) -> tuple[cp_model.CpSolver, int]:
        """Solve a model within about ``limit_s`` and the time left, on one thread, reproducibly.

        ``limit_s`` is counted in CP-SAT's work, so that a busy machine gives the same answer as an idle one.
        One worker that adds the full linear relaxation (``linearize``) closes these small models
        sooner than a portfolio on two cores, and gives the same answer every time. ``in_turns``: several strategies take turns
        on the thread, which closes models with many ways of nearly equal cost that one worker leaves open.
        """
        solver = one_worker(seed)
        if in_turns:
            solver.parameters.interleave_search = True
            solver.parameters.subsolvers.extend(_IN_TURNS)
        solver.parameters.max_deterministic_time = limit_s * _WORK_PER_S
        whole_s, left_s = limit_s * _SLOWER, self.remaining_s
        solver.parameters.max_time_in_seconds = max(_LEAST_S, min(whole_s, left_s))
        solver.parameters.relative_gap_limit = accept_gap
        if linearize:
            solver.parameters.linearization_level = 2
        with self._lock:
            self._running.add(solver)
        try:
            if self._stopped.is_set():
                solver.parameters.max_time_in_seconds = _LEAST_S
            status = int(solver.solve(model))
            if status not in (cp_model.OPTIMAL, cp_model.INFEASIBLE):
                self._own.unsettled = self.unsettled + 1
                worked = solver.response_proto.deterministic_time
                if left_s < whole_s and worked < solver.parameters.max_deterministic_time:
                    self._own.cut_short = True
            return solver, status
        finally:
            with self._lock:
                self._running.discard(solver)
