"""Asks N random questions in some processes and prints what came of them; goes on where it stopped.

    python -m benchmarks.hunt 2000                        seeds 0 to 1,999, build/hunt.jsonl
    python -m benchmarks.hunt --seed 17 --write FOLDER    one question, its files kept in FOLDER

Every outcome is a line of ``--out``; seeds that are there are not asked again. Exit code 1 if one failed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import tempfile
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.hunt.asking import ask
from benchmarks.hunt.outcome import Outcome
from benchmarks.hunt.summary import read_outcomes, summary

#: a question with all its checks that takes longer is given up, seconds
_GIVEN_UP_S = 300
#: questions of one process before a fresh one takes its place
_TASKS = 100


def asked(seed: int, time_limit_s: float = 20.0) -> dict[str, Any]:
    """The outcome of a seed, in a process of its own choosing."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"given up after {_GIVEN_UP_S} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(_GIVEN_UP_S)
    try:
        with tempfile.TemporaryDirectory(prefix="hunt-") as folder:
            return ask(seed, Path(folder), time_limit_s=time_limit_s).as_dict()
    except TimeoutError as error:
        late = Outcome(seed, answer="given up", wall_s=float(_GIVEN_UP_S))
        late.fail("over 60 s", str(error))
        return late.as_dict()
    finally:
        signal.alarm(0)


def hunt(seeds: list[int], out: Path, processes: int, time_limit_s: float = 20.0) -> None:
    """Ask all seeds and append each outcome to ``out`` at once."""
    out.parent.mkdir(parents=True, exist_ok=True)
    left = list(seeds)
    while left:
        try:
            _hunt_in_pool(left, out, processes, time_limit_s)
        except (
            BrokenProcessPool
        ):  # one question killed its process: the first that was not answered
            done = read_outcomes(out)
            left = [seed for seed in left if seed not in done]
            dead = Outcome(left[0], answer="fault")
            dead.fail("crash", "the process that asked died (or one asked at the same time did)")
            _append(out, dead.as_dict())
        done = read_outcomes(out)
        left = [seed for seed in left if seed not in done]


def _append(out: Path, outcome: dict[str, Any]) -> None:
    with out.open("a") as file:
        file.write(json.dumps(outcome) + "\n")


def _hunt_in_pool(seeds: list[int], out: Path, processes: int, time_limit_s: float) -> None:
    context = multiprocessing.get_context("spawn")
    waiting = iter(seeds)
    with ProcessPoolExecutor(processes, context, max_tasks_per_child=_TASKS) as pool:
        running: set[Future[dict[str, Any]]] = set()
        count = 0
        while True:
            for seed in waiting:
                running.add(pool.submit(asked, seed, time_limit_s))
                if len(running) >= 2 * processes:
                    break
            if not running:
                return
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                outcome = future.result()
                _append(out, outcome)
                count += 1
                for failure in outcome["failures"]:
                    print(
                        f"seed {outcome['seed']}: {failure['kind']}: {failure['detail'][:160]}",
                        file=sys.stderr,
                    )
                if count % 50 == 0:
                    print(f"{count} of {len(seeds)} asked", file=sys.stderr)


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hunt", description=__doc__)
    parser.add_argument(
        "count", type=int, nargs="?", default=200, help="questions, from --first on"
    )
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--time-limit", type=float, default=20.0, help="of each search, seconds")
    parser.add_argument("--out", type=Path, default=Path("build/hunt.jsonl"))
    parser.add_argument("--seed", type=int, help="ask this one question and print its outcome")
    parser.add_argument("--write", type=Path, help="with --seed: keep its files here")
    options = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    if options.seed is not None:
        with tempfile.TemporaryDirectory(prefix="hunt-") as folder:
            outcome = ask(
                options.seed, options.write or Path(folder), time_limit_s=options.time_limit
            )
        print(json.dumps(outcome.as_dict(), indent=1))
        return 1 if outcome.failures else 0
    wanted = range(options.first, options.first + options.count)
    done = read_outcomes(options.out)
    left = [seed for seed in wanted if seed not in done]
    hunt(left, options.out, options.processes, options.time_limit)
    found = {seed: one for seed, one in read_outcomes(options.out).items() if seed in wanted}
    print(summary(found))
    return 1 if any(one["failures"] for one in found.values()) else 0
